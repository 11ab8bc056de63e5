"""The files of a folder hold the numbers of its page, and bold is what leads; tests/promises has all other tables."""

import csv
import re
from io import StringIO
from typing import Any

import pytest
from read_pages import READERS, Read

from glue_bench.data.tasks import TRAINABLE
from glue_bench.reporting.export import find, write_tables
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.grid import Page
from glue_bench.reporting.leaderboard_page import leaderboard_page


def fill(bench):
    """Three arms of two origins after 300 and 1,000 steps: ties, a missing cell, a collapsed run, partial data."""
    for arm, origin, base in (("a_b", "pretrained", 0.5), ("add", "pretrained", 0.4), ("cat", "grafted", 0.6)):
        for steps in (300, 1000):
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
def filled(lasting_bench):
    """The same for every test that only reads it."""
    fill(lasting_bench)
    return lasting_bench


@pytest.fixture(scope="module")
def findings(filled):
    return find(filled.path)


@pytest.fixture(scope="module")
def page(findings):
    return leaderboard_page(findings)


def tables_of(page: Page) -> list[Read]:
    """The tables of a page, which must be the same in its three markups: texts and what is bold."""
    markdown, latex, html = (READERS[format](render_page(page, format)) for format in READERS)
    assert [table[1:] for table in markdown] == [table[1:] for table in latex] == [table[1:] for table in html]
    assert len(markdown) == len([section for section in page.sections if section.grid])
    return markdown


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+", text)]


def known(*values: float | None) -> list[float]:
    return [value for value in values if value is not None]


def parsed(line: dict[str, str]) -> dict[str, Any]:
    """A line of a CSV: numbers where there are any, None where nothing is."""
    values = {name: text or None for name, text in line.items()}
    return {name: float(text) if re.fullmatch(r"-?\d+\.\d+", text or "") else text for name, text in values.items()}


def test_steps_as_a_file(findings, page):
    files = {file.name: file.read_text() for file in write_tables(findings)}
    *_, steps = tables_of(page)
    flat = {(line["arm"], int(line["steps"])): parsed(line) for line in csv.DictReader(StringIO(files["steps.csv"]))}
    assert len(steps.rows) == len(flat) == 6
    for (arm, _), (after, _), *shown in steps.rows:
        line = flat[arm, int(after.replace(",", ""))]
        assert [numbers(text) for text, _ in shown] == [known(line[name]) for name in findings.columns]


def test_bold_is_what_leads_its_block(page):
    pretrained, grafted, *_ = tables_of(page)
    assert bold(pretrained, "CoLA") == []  # a tie of all
    assert bold(pretrained, "RTE") == ["a_b"]
    assert bold(grafted, "RTE") == []  # no contest


def bold(table: Read, header: str) -> list[str]:
    column = table.header.index(header)
    return [row[0][0] for row in table.rows if row[column][1]]
