"""Every table holds the same numbers in all five formats."""

import csv
import json
import re
from io import StringIO
from typing import Any

import pytest
from read_pages import READERS, Read

from glue_bench.benchmark.tasks import TRAINABLE
from glue_bench.reporting.budget_page import budget_page
from glue_bench.reporting.document import Page
from glue_bench.reporting.export import render, write_tables
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.leaderboard_page import leaderboard_page
from glue_bench.reporting.papers import TABLES
from glue_bench.reporting.papers.export import compare_named, render_list
from glue_bench.reporting.papers.export import render as render_paper
from glue_bench.reporting.papers.page import paper_page
from glue_bench.results.board import make_board, steps_frame
from glue_bench.results.budgets import budget_frame
from glue_bench.results.protocol import AVERAGES


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
def board(filled):
    return make_board(filled.store)


@pytest.fixture(scope="module")
def page(board, filled):
    return leaderboard_page(board, steps_frame(filled.store))


@pytest.fixture(scope="module")
def compared(filled):
    """The paper's table that most tests look at."""
    return compare_named("tupe-1", filled.path)


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


def rows_by_arm(text: str) -> dict[str, dict[str, Any]]:
    return {line["arm"]: parsed(line) for line in csv.DictReader(StringIO(text))}


def test_the_leaderboard(filled, board, page):
    path = filled.path
    pretrained, grafted, averages, _ = tables_of(page)
    document, flat = json.loads(render(path, "json")), rows_by_arm(render(path, "csv"))
    columns, seen = [*board.columns, *board.averages], 0
    for row, shown in zip(document["rows"], [*pretrained.rows, *grafted.rows], strict=True):
        assert [text for text, _ in shown[:3]] == [row["arm"], row["variant"], str(row["parameters"])]
        for column, (text, _) in zip(columns, shown[3:], strict=True):
            value = known(row[column], row[f"{column}_std"])
            assert numbers(text) == value
            assert known(flat[row["arm"]][column], flat[row["arm"]][f"{column}_std"]) == value
            seen += len(value)
    assert seen > 50
    for row, shown in zip(document["averages"], averages.rows, strict=True):
        assert [numbers(text) for text, _ in shown[2:]] == [known(row[name]) for name in AVERAGES]


@pytest.mark.parametrize("format", READERS)
def test_what_is_rendered_is_the_page(filled, page, compared, format):
    assert render(filled.path, format) == render_page(page, format)
    assert render_paper("tupe-1", filled.path, format) == render_page(paper_page(compared), format)


def test_steps_and_averages_as_files(filled, page):
    files = {file.name: file.read_text() for file in write_tables(filled.path)}
    *_, averages, steps = tables_of(page)
    flat = {(line["arm"], int(line["steps"])): parsed(line) for line in csv.DictReader(StringIO(files["steps.csv"]))}
    assert len(steps.rows) == len(flat) == 6
    for (arm, _), (after, _), *shown in steps.rows:
        line = flat[arm, int(after.replace(",", ""))]
        values = [name for name in line if f"{name}_std" in line]
        assert [numbers(text) for text, _ in shown] == [known(line[name]) for name in values]
    lines = rows_by_arm(files["averages.csv"])
    for (arm, _), _, *shown in averages.rows:
        assert [numbers(text) for text, _ in shown] == [known(lines[arm][name]) for name in AVERAGES]


@pytest.mark.parametrize("name", TABLES)
def test_a_papers_table(filled, name):
    path = filled.path
    (table,) = tables_of(paper_page(compare_named(name, path)))
    document = json.loads(render_paper(name, path, "json"))
    flat = [parsed(line) for line in csv.DictReader(StringIO(render_paper(name, path, "csv")))]
    lines = iter([[text for text, _ in row] for row in table.rows])
    for model in document["rows"]:
        label, _, *printed, _ = next(lines)
        assert label == model["model"]
        assert [float(text) for text in printed] == list(model["published"].values())
        for arm in model["ours"]:
            mine = [line for line in flat if (line["model"], line["arm"]) == (label, arm["arm"])]
            check_arm(arm["values"], mine, [next(lines) for _ in range(lines_of(arm["values"]))])
        if not model["ours"]:
            assert next(lines)[1] == "missing"
    assert next(lines, None) is None


def lines_of(values) -> int:
    """Ours, the interval, the difference, whether theirs lies inside."""
    keys = ("ours", "low", "difference", "inside")
    return 1 + sum(any(value[key] is not None for value in values.values()) for key in keys[1:])


def check_arm(values, mine, shown) -> None:
    by_kind = {row[1].split(":")[0]: row[2:-1] for row in shown}
    for number, (column, value) in enumerate(values.items()):
        line = mine[number]
        assert line["column"] == column
        ours, low, high, difference = (value[key] for key in ("ours", "low", "high", "difference"))
        assert [line[key] for key in ("ours", "low", "high", "difference")] == [ours, low, high, difference]
        assert numbers(by_kind["ours"][number]) == known(ours)
        assert numbers(by_kind.get("95% interval", [""] * 99)[number]) == known(low, high)
        assert numbers(by_kind.get("difference", [""] * 99)[number]) == known(difference)


def test_the_list_of_tables():
    read = [READERS[format](render_list(format))[0] for format in READERS]
    listed = [[text for text, _ in row] for row in read[0].rows]
    assert read[0][1:] == read[1][1:] == read[2][1:]
    assert listed == [list(line.values()) for line in csv.DictReader(StringIO(render_list("csv")))]
    assert listed == [[str(value) for value in row.values()] for row in json.loads(render_list("json"))]
    assert [row[0] for row in listed] == list(TABLES)


def test_budgets(bench):
    bench.finish("rte", 1)
    bench.plan(arms={"add": {"variant": "add", "origin": "pretrained", "parameters": 1_445_760, "length": 64}})
    (table,) = tables_of(budget_page(budget_frame(bench.store), "toy"))
    assert [text for text, _ in table.rows[0]][:4] == ["add", "add", "pretrained", "1,445,760"]


def test_bold_is_what_leads_or_what_is_said_to(board, page):
    pretrained, grafted, averages, _ = tables_of(page)
    assert bold(pretrained, "CoLA (Matthews)") == ["a_b", "add"]  # a tie
    assert bold(pretrained, "RTE (accuracy)") == ["a_b"]
    assert bold(grafted, "RTE (accuracy)") == []  # no contest
    given = {"rte": {"a_b", "add"}, "average_official": {"add"}}
    drawn = leaderboard_page(board, leaders=given, bold_means="Bold is what is drawn by lot")
    pretrained, _, averages = tables_of(drawn)
    assert bold(pretrained, "RTE (accuracy)") == ["a_b", "add"]
    assert bold(pretrained, "SST-2 (accuracy)") == ["a_b"]
    assert bold(averages, "Official") == ["add"]
    assert "Bold is what is drawn by lot; blocks" in drawn.notes[0]


def bold(table: Read, header: str) -> list[str]:
    column = table.header.index(header)
    return [row[0][0] for row in table.rows if row[column][1]]


def test_bold_in_a_papers_table_is_its_best_printed_value(compared):
    (table,) = tables_of(paper_page(compared))
    ours = [row for row in table.rows if not row[0][0]]
    assert ours
    assert not any(is_bold for row in ours for _, is_bold in row)
    assert bold(table, "RTE (acc)") == ["TUPE-R"]
    assert "Bold is the best printed value of a column." in render_paper("tupe-1")
