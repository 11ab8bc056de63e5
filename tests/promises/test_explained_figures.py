"""Every figure of docs/explanation/ stands in the rows of tables that its section may take from.

`explained_figures.yaml` names these rows. Any other number of the same tables is no proof: a folder
with analyses has thousands, and almost any figure would be among them.
"""

import csv
import operator
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from helpers.figures import figures_in, is_shown, prose

ROOT = Path(__file__).parents[2]
EXPLANATIONS = ROOT / "docs" / "explanation"
REGISTER: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("explained_figures.yaml").read_text("utf-8")
)
IN_A_CELL = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
OPERATORS = {"/": operator.truediv, "-": operator.sub}
MANY_TOKENS = 1e5
"""From this number on a value may be printed in millions."""


class Section(NamedTuple):
    """A section of a page: its title, its text without code, and its entry in the register."""

    page: str
    title: str
    text: str
    entry: dict[str, Any]


def sections() -> Iterator[Section]:
    """Yield the sections with figures of the pages in the register."""
    for page, entries in REGISTER.items():
        text = (EXPLANATIONS / page).read_text("utf-8")
        for part in re.split(r"^##? ", text, flags=re.MULTILINE)[1:]:
            title = part.partition("\n")[0]
            matching = [entry for start, entry in entries.items() if title.startswith(start)]
            section = Section(page, title, prose(part), matching[0] if matching else {})
            if matching or figures_of(section.text):
                yield section


def figures_of(text: str) -> list[str]:
    """Return the figures of a text."""
    return [figure[0] for figure in figures_in(text)]


@cache
def rows_of(file: str) -> list[list[str]]:
    """Return the rows of a table in results/ as texts of their cells."""
    lines = (ROOT / "results" / file).read_text("utf-8").splitlines()
    if file.endswith(".csv"):
        return list(csv.reader(lines))
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip(" `") for cell in line.strip("|").split("|")])
    return rows


def chosen_rows(file: str, cells: list[str]) -> list[list[str]]:
    """Return the rows of a table that have all of these cells."""
    return [row for row in rows_of(file) if set(cells) <= set(row)]


def values_of(section: Section) -> np.ndarray:
    """Return the numbers of a section's rows, of shares also percents, of tokens also millions."""
    numbers: list[float] = []
    for file, *cells in section.entry.get("rows", []):
        for row in chosen_rows(file, cells):
            for text in IN_A_CELL.findall(" ".join(row)):
                numbers.append(float(text.replace(",", "")))
    values = np.array(numbers)
    return np.concatenate([values, values[values >= MANY_TOKENS] / 1e6])


def computed_value(formula: str) -> float:
    """Return the value of `a / b`, `a - b` or `1 - a / b`."""
    *complement, left, sign, right = formula.split()
    value = OPERATORS[sign](float(left), float(right))
    return float(1 - value) if complement else float(value)


def is_found(figure: str, section: Section) -> bool:
    """Return whether a figure is shown by a section's rows, given, or computed."""
    percents = 100.0 if figure.endswith("%") else 1.0
    if figure in section.entry.get("given", {}):
        return True
    formula = section.entry.get("computed", {}).get(figure)
    if formula:
        return is_shown(figure, percents * computed_value(formula))
    values = values_of(section)
    return is_shown(figure, values) or is_shown(figure, percents * values)


SECTIONS = list(sections())
of_each_section = pytest.mark.parametrize(
    "section", SECTIONS, ids=lambda section: f"{section.page}: {section.title}"
)


def test_every_page_that_quotes_results_is_in_the_register():
    quoting = [path.name for path in EXPLANATIONS.glob("*.md") if "/results/" in path.read_text()]
    assert sorted(quoting) == sorted(REGISTER)


@pytest.mark.parametrize("page", REGISTER)
def test_every_entry_of_the_register_is_of_one_section(page):
    titles = [section.title for section in SECTIONS if section.page == page]
    for start in REGISTER[page]:
        assert sum(title.startswith(start) for title in titles) == 1, start


@of_each_section
def test_every_figure_stands_in_the_rows_of_its_section(section):
    absent = [figure for figure in figures_of(section.text) if not is_found(figure, section)]
    assert absent == []


@of_each_section
def test_every_choice_of_rows_has_rows(section):
    for file, *cells in section.entry.get("rows", []):
        assert chosen_rows(file, cells), (file, cells)


@of_each_section
def test_every_figure_that_is_given_or_computed_stands_in_its_section(section):
    figures = figures_of(section.text)
    for kind in ("given", "computed"):
        assert set(section.entry.get(kind, {})) <= set(figures)


@of_each_section
def test_what_a_figure_is_computed_from_stands_in_the_page_or_its_rows(section):
    page = prose((EXPLANATIONS / section.page).read_text("utf-8"))
    for formula in section.entry.get("computed", {}).values():
        for number in re.findall(r"-?\d\d*\.\d+|\d{4,}", formula):
            assert number in page or float(number) in values_of(section), number


def test_most_other_figures_would_be_refused():
    """The rows of a section have few numbers: a figure with another last digit is not there."""
    others = 0
    found = 0
    for section in SECTIONS:
        for figure in set(figures_of(section.text)) - set(section.entry.get("given", {})):
            for digit in "0123456789":
                other = re.sub(r"\d(?=\D*$)", digit, figure)
                if other != figure:
                    others += 1
                    found += is_found(other, section)
    assert found < 0.2 * others
