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
from folder import Folder, labelled_ax, verb
from read_pages import READERS
from stored import Bench
from typer.main import get_command

from glue_bench.cli import app
from glue_bench.data.tasks import TRAINABLE

ROOT = Path(__file__).parents[2]
STORED = [ROOT / "results" / name for name in ("minilm", "study")]  # converted arms; pretrained ones, planned contrasts


said = cache(verb)


# What is read


def fill(bench: Bench, *, last: bool = False) -> Path:
    """Three arms of two origins after 300 and 1,000 steps: ties, a missing cell, a collapsed run, partial data."""
    for arm, origin, base in (("a_b", "pretrained", 0.5), ("add", "pretrained", 0.4), ("cat", "grafted", 0.6)):
        for steps in (300, 1000)[last:]:
            for number, task in enumerate(TRAINABLE):
                for seed in (1, 2):
                    value = base - 0.11 * (steps == 300) + 0.0123 * seed * (number % 4) if number else 0.123
                    where = {"arm": arm, "origin": origin, "rate": steps * 1e-6, "variant": "add"}
                    collapsed = ["validation"] if task == "cola" and seed == 2 else []
                    if (arm, task, seed) == ("cat", "rte", 2):
                        bench.expect(task, seed, **where)
                    else:
                        bench.finish(task, seed, value, collapsed=collapsed, partial=task == "qqp", **where)
                    bench.cells[-1]["steps"] = steps
    return bench.plan()


@pytest.fixture(scope="module")
def words_of(tmp_path_factory: pytest.TempPathFactory):
    """The words of a case with the folders that are made for it: one of them has predicted the diagnostic set."""
    asked = Folder(tmp_path_factory.mktemp("asked") / "asked")
    for arm, seed in product(("add", "none"), (1, 2, 3)):
        asked.run(arm, "mnli", 1, seed)
    made = fill(Bench(tmp_path_factory.mktemp("made") / "toy"))
    places = {"MADE": made, "ASKED": asked.plan(), "LABELS": labelled_ax(asked.path)}
    return lambda words: [places.get(word, word) for word in words]


PAPERS = [row["table"] for row in json.loads(said("table", "--format", "json"))["rows"]]
CASES: list[tuple[Any, ...]] = [
    *(("leaderboard", folder) for folder in ("MADE", *STORED)),
    ("leaderboard", "ASKED", "--diagnostic", "LABELS"),
    *(("statistics", folder, "--pairs", "--equivalent", 1) for folder in ("MADE", *STORED)),
    ("statistics", STORED[1], "--difference", 1),
    *[("table",), *(("table", name, "MADE") for name in PAPERS)],
]
each = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join(getattr(word, "name", str(word)) for word in case[:3])
)


def test_every_verb_that_has_formats_is_here():
    verbs = get_command(app).commands.items()
    having = {name for name, one in verbs if any("latex" in (getattr(p, "help", "") or "") for p in one.params)}
    assert having == {case[0] for case in CASES}


@each
def test_csv_and_json_have_the_same_rows(case, words_of):
    rows = json.loads(said(*words_of(case), "--format", "json"))["rows"]
    lines = list(csv.DictReader(StringIO(said(*words_of(case), "--format", "csv"))))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        for name, value in row.items():
            text = re.sub("^'(?=[=+@-])", "", line[name])  # which a spreadsheet would take for a formula
            number = isinstance(value, int | float) and not isinstance(value, bool)
            assert float(text) == value if number else text == ("" if value is None else str(value)), name


@each
def test_markdown_latex_html_and_json_have_the_same_cells(case, words_of):
    """Texts, and which are bold, as far as the format knows."""
    markdown, latex, html = (READERS[name](said(*words_of(case), "--format", name)) for name in READERS)
    assert markdown
    assert [table[1:] for table in markdown] == [table[1:] for table in latex] == [table[1:] for table in html]
    texts = [[[text.strip() for text in row.values()] for row in table["rows"]] for table in
             json.loads(said(*words_of(case), "--format", "json"))["tables"]]  # fmt: skip
    assert texts == [[[text for text, _ in row] for row in table.rows] for table in markdown]


def test_the_page_of_the_diagnostic_set_has_the_means_and_deviations_of_its_data(words_of):
    """The texts of other pages are those of tests/tables, and of the committed results."""
    found = json.loads(said(*words_of(("leaderboard", "ASKED", "--diagnostic", "LABELS")), "--format", "json"))
    shown = {text for row in found["tables"][0]["rows"] for text in row.values()}
    assert shown >= {f"{row['mean']:.2f} ± {row['std']:.2f}" for row in found["rows"]} != set()


def test_the_leaderboard_is_of_the_last_checkpoint_alone(words_of, tmp_path):
    """Cells of an earlier checkpoint of a pretraining change nothing."""
    places = [*words_of(["MADE"]), fill(Bench(tmp_path / "toy"), last=True)]
    both, one = (json.loads(said("leaderboard", place, "--format", "json"))["rows"] for place in places)
    assert both == one != []
