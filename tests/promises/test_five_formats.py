"""Markdown, CSV, JSON, LaTeX and HTML of each table hold the same numbers, and so do the files of a results folder."""

import csv
import json
import re
from functools import cache
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers.folder import Folder, labelled_ax, verb
from helpers.read_pages import READERS
from typer.main import get_command

from glue_bench.cli import app

ROOT = Path(__file__).parents[2]
STORED = [
    ROOT / "results" / name for name in ("minilm", "study")
]  # converted arms; pretrained ones, planned contrasts
said = cache(verb)


def fill(path: Path, *checkpoints: int) -> Path:
    """Two arms after so many steps of pretraining, the later the better: a missing cell, a collapsed run."""
    made = Folder(path)
    for steps, arm, task, seed in product(
        checkpoints, ("add", "none"), ("cola", "mnli", "rte"), (1, 2, 3)
    ):
        how = {
            "recorded": (arm, task, seed) != ("none", "rte", 2),
            "right": 0.3 + steps / 40 + seed * len(arm) / 40,
        }
        collapsed = ("validation",) if (task, seed) == ("cola", 2) else ()
        made.run(arm, task, 1, seed, steps=steps, collapsed=collapsed, **how)
    return made.plan()


@pytest.fixture(scope="module")
def words_of(tmp_path_factory: pytest.TempPathFactory):
    """The words of a case with the folder that is made for it."""
    made = fill(tmp_path_factory.mktemp("made") / "toy", 4, 8)
    places = {"MADE": made, "LABELS": labelled_ax(made)}
    return lambda words: [places.get(word, word) for word in words]


PAPERS = [row["table"] for row in json.loads(said("table", "--format", "json"))["rows"]]
CASES: list[tuple[Any, ...]] = [
    *(("leaderboard", folder) for folder in ("MADE", STORED[0])),
    ("leaderboard", "MADE", "--diagnostic", "LABELS"),
    *(("statistics", folder, "--equivalent", 1) for folder in ("MADE", *STORED)),
    ("statistics", "MADE", "--difference", 1),
    *[("table",), *(("table", name, "MADE") for name in PAPERS)],
]
each = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join(getattr(word, "name", str(word)) for word in case[:3])
)


def test_every_verb_that_has_formats_is_here():
    verbs = get_command(app).commands.items()
    having = {
        name
        for name, one in verbs
        if any("latex" in (getattr(p, "help", "") or "") for p in one.params)
    }
    assert having == {case[0] for case in CASES}


@each
def test_csv_and_json_have_the_same_rows(case, words_of):
    rows = json.loads(said(*words_of(case), "--format", "json"))["rows"]
    lines = list(csv.DictReader(StringIO(said(*words_of(case), "--format", "csv"))))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        for name, value in row.items():
            text = re.sub(
                "^'(?=[=+@-])", "", line[name]
            )  # which a spreadsheet would take for a formula
            number = isinstance(value, int | float) and not isinstance(value, bool)
            assert (
                float(text) == value if number else text == ("" if value is None else str(value))
            ), name


@each
def test_markdown_latex_html_and_json_have_the_same_cells(case, words_of):
    """Texts, and which are bold, as far as the format knows."""
    markdown, latex, html = (
        READERS[name](said(*words_of(case), "--format", name)) for name in READERS
    )
    assert markdown
    assert (
        [table[1:] for table in markdown]
        == [table[1:] for table in latex]
        == [table[1:] for table in html]
    )
    texts = [[[text.strip() for text in row.values()] for row in table["rows"]] for table in
             json.loads(said(*words_of(case), "--format", "json"))["tables"]]  # fmt: skip
    assert texts == [[[text for text, _ in row] for row in table.rows] for table in markdown]


def test_the_page_of_the_diagnostic_set_has_the_means_and_deviations_of_its_data(words_of):
    """The texts of other pages are those of tests/tables, and of the committed results."""
    found = json.loads(
        said(*words_of(("leaderboard", "MADE", "--diagnostic", "LABELS")), "--format", "json")
    )
    shown = {text for row in found["tables"][0]["rows"] for text in row.values()}
    assert shown >= {f"{row['mean']:.2f} ± {row['std']:.2f}" for row in found["rows"]} != set()


def test_the_leaderboard_is_of_the_last_checkpoint_alone(words_of, tmp_path):
    """Cells of an earlier checkpoint of a pretraining change nothing."""
    places = [*words_of(["MADE"]), fill(tmp_path / "toy", 8)]
    both, one = (
        json.loads(said("leaderboard", place, "--format", "json"))["rows"] for place in places
    )
    assert both == one != []
