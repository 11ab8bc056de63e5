"""Markdown, CSV, JSON, LaTeX and HTML of each table hold the same numbers, and so do the files
of a results folder.
"""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers.folder import Folder, call_verb, labelled_ax
from helpers.read_pages import READERS, read_markdown
from typer.main import get_command

from glue_bench.board.board import open_board
from glue_bench.board.compare import open_comparison
from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.board.versus import compare_paths
from glue_bench.cli import app
from glue_bench.data.diagnostic import read_diagnostic
from glue_bench.pages.contrasts import page_of_options
from glue_bench.pages.diagnostics import diagnostics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.page import Page
from glue_bench.pages.papers import list_page, named_page
from glue_bench.pages.render import PAGE_FORMATS, render
from glue_bench.pages.versus import versus_page
from glue_bench.pages.versus_figures import versus_figures

ROOT = Path(__file__).parents[2]
CONVERTED = ROOT / "results" / "minilm"
PLANNED = ROOT / "results" / "study"
"""Committed results: converted arms; pretrained arms with planned contrasts."""


def fill(path: Path, *checkpoints: int) -> Path:
    """Make two arms after each number of steps of pretraining, with a missing cell and a
    collapsed run.
    """
    folder = Folder(path)
    runs = product(checkpoints, ("add", "none"), ("cola", "mnli", "rte"), (1, 2, 3))
    for steps, arm, task, seed in runs:
        folder.run(
            arm,
            task,
            seed=1,
            pretraining_seed=seed,
            steps=steps,
            collapsed=("validation",) if (task, seed) == ("cola", 2) else (),
            recorded=(arm, task, seed) != ("none", "rte", 2),
            right=0.3 + steps / 40 + seed * len(arm) / 40,
        )
    return folder.plan()


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results after two numbers of steps, beside a labelled diagnostic set."""
    return fill(tmp_path_factory.mktemp("made") / "toy", 4, 8)


PAPERS = [row["table"] for row in json.loads(render(list_page(), "json"))["rows"]]
PAGES: dict[str, Callable[[Path], Page]] = {
    "leaderboard": lambda toy: leaderboard_page(open_leaderboard(toy)),
    "leaderboard of converted arms": lambda _: leaderboard_page(open_leaderboard(CONVERTED)),
    "diagnostics": lambda toy: diagnostics_page(open_board(toy), read_diagnostic(labelled_ax(toy))),
    "statistics": lambda toy: page_of_options(open_comparison(toy), 1.0, None, None),
    "statistics of converted arms": lambda _: page_of_options(
        open_comparison(CONVERTED), 1.0, None, None
    ),
    "planned contrasts": lambda _: page_of_options(open_comparison(PLANNED), 1.0, None, None),
    "power": lambda toy: page_of_options(open_comparison(toy), None, 1.0, None),
    "papers": lambda _: list_page(),
    "anyone's runs": lambda _: versus_page(compare_paths([CONVERTED])),
}
PAGES |= {name: lambda toy, name=name: named_page(name, toy) for name in PAPERS}
"""Pages by name, made from the results of `toy` or from committed ones."""


@pytest.fixture(scope="module")
def text_of(toy) -> Callable[[str, str], str]:
    """Write a page of PAGES in a format."""

    @cache
    def page_of(name: str) -> Page:
        make_page = PAGES[name]
        return make_page(toy)

    def write(name: str, format: str) -> str:
        page = page_of(name)
        if (name, format) == ("anyone's runs", "html"):  # which alone has figures
            page = replace(page, figures=versus_figures(compare_paths([CONVERTED])))
        return render(page, format)

    return cache(write)


CALLS = {
    "leaderboard": "leaderboard FOLDER",
    "diagnostics": "leaderboard FOLDER --diagnostic LABELS",
    "statistics": "statistics FOLDER --equivalent 1",
    "papers": "table",
    "anyone's runs": "compare CONVERTED",
}
"""The words of a command for each verb that has formats, by the page that it prints."""


def test_every_verb_that_has_formats_is_called():
    verbs: set[str] = set()
    for name, command in get_command(app).commands.items():
        if any("latex" in (getattr(option, "help", "") or "") for option in command.params):
            verbs.add(name)
    assert verbs == {words.split()[0] for words in CALLS.values()}


@pytest.mark.parametrize("format", PAGE_FORMATS)
@pytest.mark.parametrize("name", CALLS)
def test_a_verb_prints_its_page_in_the_format_that_it_is_given(toy, text_of, name, format):
    places = {"FOLDER": toy, "LABELS": labelled_ax(toy), "CONVERTED": CONVERTED}
    words = [places.get(word, word) for word in CALLS[name].split()]
    assert call_verb(*words, "--format", format).strip() == text_of(name, format).strip()


def value_of(text: str, value: Any) -> Any:
    """Read a text of a CSV file as a value of JSON of the same type."""
    text = re.sub("^'(?=[=+@-])", "", text)  # which a spreadsheet would take for a formula
    if isinstance(value, bool):
        return {"True": True, "False": False}.get(text)
    if isinstance(value, int | float):
        return float(text)
    return text or (None if value is None else "")


@pytest.mark.parametrize("name", PAGES)
def test_csv_and_json_have_the_same_rows(text_of, name):
    rows = json.loads(text_of(name, "json"))["rows"]
    lines = csv.DictReader(StringIO(text_of(name, "csv")))
    read: list[dict[str, Any]] = []
    for line, row in zip(lines, rows, strict=True):
        read.append({key: value_of(line[key], value) for key, value in row.items()})
    assert read == rows


@pytest.mark.parametrize("format", ["latex", "html"])
@pytest.mark.parametrize("name", PAGES)
def test_a_format_has_the_cells_of_markdown(text_of, name, format):
    """Texts are the same, and so are the bold ones."""
    read = READERS[format]
    tables = read(text_of(name, format))
    expected = read_markdown(text_of(name, "markdown"))
    assert [table[1:] for table in tables] == [table[1:] for table in expected] != []


@pytest.mark.parametrize("name", PAGES)
def test_json_has_the_texts_of_markdown(text_of, name):
    texts: list[list[list[str]]] = []
    for table in json.loads(text_of(name, "json"))["tables"]:
        texts.append([[text.strip() for text in row.values()] for row in table["rows"]])
    expected = read_markdown(text_of(name, "markdown"))
    assert texts == [table.texts for table in expected]


def test_the_page_of_the_diagnostic_set_has_the_means_and_deviations_of_its_data(text_of):
    """The texts of other pages are those of tests/pages, and of the committed results."""
    document = json.loads(text_of("diagnostics", "json"))
    texts = {text for row in document["tables"][0]["rows"] for text in row.values()}
    expected = {f"{row['mean']:.2f} ± {row['std']:.2f}" for row in document["rows"]}
    assert expected - texts == set()
    assert expected


def test_the_leaderboard_is_of_the_last_checkpoint_alone(text_of, tmp_path):
    """Cells of an earlier checkpoint of a pretraining change nothing."""
    last = leaderboard_page(open_leaderboard(fill(tmp_path / "toy", 8)))
    rows = json.loads(render(last, "json"))["rows"]
    assert rows == json.loads(text_of("leaderboard", "json"))["rows"] != []
