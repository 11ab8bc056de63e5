"""One table in every format: the same texts are read from each format."""

import json
import re
import shutil
import string
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from helpers.read_pages import READERS, parse_html
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from glue_bench.errors import CONTROL_CHARACTERS, UserError
from glue_bench.pages.latex import to_latex
from glue_bench.pages.numbers import abbreviate_number
from glue_bench.pages.page import Column, Page, Table
from glue_bench.pages.render import (
    csv_text,
    json_text,
    render,
    resolve_format,
    to_csv,
    to_html,
    to_json,
    to_markdown,
)
from glue_bench.pages.screen import print_page

NASTY = (
    "a_b",
    "50%",
    "x|y",
    "<b>",
    "{}",
    "**x**",
    "[1]",
    "\\",
    "&amp;",
    "~^",
    "# $1",
    "a--b",
    '"q"',
    "`c`",
    "† ±",
    "a---b",
    "''",
    "&#38;",
    "#",
    "=1",
)
LETTERS = string.ascii_letters + string.digits + string.punctuation + "†‡±–é◇▲▼"  # noqa: RUF001
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(LETTERS, min_size=1))
in_each_format = pytest.mark.parametrize("format", READERS)


def page(
    rows: dict, columns: dict | None = None, title: str = "A title", banner: str = "", **options
) -> Page:
    """Make a page of one table. By default columns are texts, with their names as titles."""
    all_columns = {name: Column(name) for name in rows} | (columns or {})
    table = Table(frame=pd.DataFrame(rows), columns=all_columns, **options)
    return Page(title=title, banner=banner, tables=(table,))


def read_back(any_page: Page, format: str):
    """Write a page, and read its only table."""
    read = READERS[format]
    (table,) = read(render(any_page, format))
    return table


def printed(any_page: Page, width: int, file: str = "page.md") -> list[str]:
    """Return the lines that a terminal shows for a page."""
    console = Console(width=width, record=True, file=StringIO(), force_terminal=True)
    print_page(any_page, console, file)
    return [line.rstrip() for line in console.export_text().splitlines()]


@in_each_format
@given(arm=TEXTS, title=TEXTS, value=TEXTS, bold=st.booleans())
def test_the_texts_of_cells_come_back(format, arm, title, value, bold):
    nasty_page = page(
        {"a": [arm], "b": [value]},
        {"b": Column(title)},
        title=title,
        bold=pd.DataFrame({"b": [bold]}),
        marks=pd.DataFrame({"b": ["‡"]}),
    )
    table = read_back(nasty_page, format)
    assert table.title == {"latex": f"{title}."}.get(format, title)
    assert table.header == ["a", title]
    expected = [[(arm, False), (f"{value}‡", bold)]]
    assert table.rows == expected


def test_numbers_have_decimals_and_a_missing_value_is_a_dash_or_empty():
    rows = {
        "arm": ["add", None],
        "score": [1.005, float("nan")],
        "size": [1e6, None],
        "loss": [-0.0001, 2.0],
    }
    columns = {
        "score": Column("Score", 2),
        "size": Column("Size", show=abbreviate_number),
        "loss": Column("L", 3),
    }
    assert to_markdown(page(rows, columns)).splitlines()[2:] == [
        "| arm   |   Score |   Size |     L |",
        "|:------|--------:|-------:|------:|",
        "| add   |    1.00 |     1M | 0.000 |",
        "|       |       – |        | 2.000 |",  # noqa: RUF001
    ]


@in_each_format
def test_a_table_without_rows_has_its_header(format):
    table = read_back(page({"a": [], "b": []}), format)
    assert table.header == ["a", "b"]
    assert table.rows == []


@pytest.fixture
def page_with_foot():
    """A page of a row and a foot, with a caption and a legend."""
    return page(
        {"a": ["add", "floor"], "b": [2.0, 1.0]},
        {"b": Column("B", 2)},
        feet=1,
        caption="Against `add`: **50%** of c_d.",
        legend=("* see https://x.org/a_b?c=1&d=2).",),
    )


@in_each_format
def test_feet_stand_below_the_rows(page_with_foot, format):
    table = read_back(page_with_foot, format)
    assert [row[0][0] for row in table.rows] == ["add", "floor"]


@pytest.mark.parametrize(
    ("format", "text"),
    [("latex", "add & 2.00 \\\\\n\\midrule\nfloor"), ("html", "<tfoot>\n<tr><th")],
)
def test_feet_stand_below_a_rule(page_with_foot, format, text):
    assert text in render(page_with_foot, format)


@pytest.mark.parametrize(
    ("format", "caption", "legend"),
    [
        (
            "markdown",
            "Against `add`: **50%** of c_d.",
            "- \\* see https://x.org/a_b?c=1&d=2).\n",
        ),
        (
            "latex",
            r"Against \texttt{add}: \textbf{50\%} of c\_d.",
            r"\item {*} see https://x.org/a\_b?c=1\&d=2).",
        ),
        (
            "html",
            "Against <code>add</code>: <strong>50%</strong>",
            '* see <a href="https://x.org/a_b?c=1&amp;d=2">',
        ),
    ],
)
def test_captions_and_legends_have_bold_and_code(page_with_foot, format, caption, legend):
    text = render(page_with_foot, format)
    assert caption in text
    assert legend in text


def test_each_latex_table_has_its_titles_and_shrinks_only_if_it_is_too_wide():
    single = page(
        {"a": ["x" * 50], "b": ["-2-d"]},
        {"b": Column("b", show=str)},
        title="Tiny: a long way",
        banner="Demo.",
    )
    text = to_latex(replace(single, tables=single.tables * 2))
    assert text.count(r"\caption{Tiny: a long way. \textbf{Demo.}}") == 2
    assert re.findall(r"\\label\{tab:(.*)\}", text) == ["tiny-a-long-way", "tiny-a-long-way-2"]
    assert r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" in text
    assert r"\begin{tabular}{p{0.3\linewidth}r}" in text
    assert r" & $-$2-d \\" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex with booktabs")
@pytest.mark.parametrize("layout", ["onecolumn", "twocolumn"])
def test_latex_has_no_overfull_box(layout, tmp_path):
    rows = {"a": [*NASTY[:2], "x " * 60]}
    columns = {}
    for number in range(20):
        rows[f"c{number}"] = ["100.00"] * 3
        columns[f"c{number}"] = Column("MNLI-mm†", show=str)

    lines = [
        rf"\documentclass[{layout}]{{article}}",
        r"\usepackage{booktabs,graphicx}",
        r"\begin{document}",
        to_latex(page(rows, columns)),
        r"\end{document}",
        "",
    ]
    (tmp_path / "page.tex").write_text("\n".join(lines))

    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, encoding="latin-1", check=False
    )

    assert ended.returncode == 0, ended.stdout[-2000:]
    assert "Overfull" not in ended.stdout


@pytest.fixture
def html():
    """A page with a title and a cell that look like elements."""
    rows = {"a": ["<i>"], "b": [1.0]}
    return to_html(page(rows, {"b": Column("B", 2)}, title="<script>", legend=("x",)))


def test_html_stands_alone(html):
    document = parse_html(html)
    names = {name for _, name, _ in document.attributes}
    elements = set(document.texts)
    assert names.isdisjoint({"src", "href"})
    assert elements.isdisjoint({"script", "link", "img"})
    assert document.texts["title"] == ["<script>"]
    assert document.texts["caption"] == ["<script>"]


@pytest.mark.parametrize(
    "cell",
    [
        '<th scope="col" class="text"><span>a</span></th>',
        '<th scope="col" class="number"><span>B</span></th>',
        '<th scope="row" class="text">&lt;i&gt;</th>',
        '<td class="number">1.00</td>',
    ],
)
def test_html_marks_headers_and_cells(html, cell):
    assert cell in html
    assert re.search(r"\.number \{ text-align: right", html)


@pytest.fixture
def page_of_scores():
    """A page of two arms and three columns of scores."""
    names = ("Avg.", "CoLA", "RTE")
    rows = {"arm": ["add", "none"], **{name: [100.0, 99.5] for name in names}}
    columns = {name: Column(name, 2) for name in names}
    return page(rows, columns, caption="Who wins", banner="Demo.")


def test_a_terminal_shows_the_columns_that_fit(page_of_scores):
    expected = [
        "Demo.",
        "Who wins",
        "arm    Avg.   CoLA    RTE",
        "add  100.00 100.00 100.00",
        "none  99.50  99.50  99.50",
    ]
    assert printed(page_of_scores, 40) == expected


def test_a_terminal_leaves_out_the_last_columns_and_says_where_they_are(page_of_scores):
    expected = [
        "arm    Avg.   CoLA",
        "add  100.00 100.00",
        "none  99.50  99.50",
        "More columns (1):",
        "page.md",
    ]
    assert printed(page_of_scores, 24)[2:] == expected


def test_a_terminal_breaks_long_texts_into_lines():
    lines = printed(page({"arm": ["add"], "text": ["word " * 30]}), 60)
    assert len(lines) > 3
    assert max(map(len, lines)) <= 60


@pytest.fixture
def table_of_three_columns():
    """A table that shows one column of three."""
    frame = pd.DataFrame({"arm": ["add"], "score": [1.23456], "hidden_loss": [2.34567]})
    return Table(frame=frame, columns={"arm": Column("Arm")}, caption="c", legend=("l",))


def test_csv_has_the_whole_frame(table_of_three_columns):
    whole_page = Page(
        title="t", tables=(table_of_three_columns,), column_decimals={"hidden_loss": 3}
    )
    assert to_csv(whole_page) == "arm,score,hidden_loss\nadd,1.23,2.346\n"


def test_csv_has_the_data_of_a_page_if_it_has_any(table_of_three_columns):
    data = table_of_three_columns.frame[["score"]]
    data_page = Page(title="t", tables=(table_of_three_columns,), data=data, decimals=4)
    assert to_csv(data_page) == "score\n1.2346\n"


def test_json_has_the_rows_of_csv_with_captions_and_legend(table_of_three_columns):
    whole_page = Page(
        title="t", tables=(table_of_three_columns,), column_decimals={"hidden_loss": 3}
    )
    assert json.loads(to_json(whole_page)) == {
        "title": "t",
        "banner": "",
        "warnings": [],
        "captions": ["c"],
        "legend": ["l"],
        "rows": [{"arm": "add", "score": 1.23, "hidden_loss": 2.346}],
        "tables": [{"title": "", "columns": {"arm": "Arm"}, "rows": [{"arm": "add"}]}],
    }


@pytest.mark.parametrize(
    ("format", "file", "expected"),
    [
        (None, "a.md", "markdown"),
        (None, "a.csv", "csv"),
        (None, "a.json", "json"),
        (None, "a.tex", "latex"),
        (None, "a.html", "html"),
        (None, "a.HTML", "html"),
        (None, "a", "markdown"),
        ("latex", "a.html", "latex"),
    ],
)
def test_the_format_is_the_one_asked_for_or_follows_from_the_file(format, file, expected):
    assert resolve_format(format, Path(file)) == expected


def test_the_format_is_markdown_if_nothing_is_asked_for():
    assert resolve_format(None) == "markdown"


@pytest.mark.parametrize(
    ("format", "file", "message"),
    [("latx", None, "did you mean 'latex'"), (None, Path("a.xlsx"), "'.xlsx'.*--format")],
)
def test_an_unknown_format_or_suffix_is_refused(format, file, message):
    with pytest.raises(UserError, match=message):
        resolve_format(format, file)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+x", "'+x"),
        ("-2+3", "'-2+3"),
        ("@a", "'@a"),
        ("-1.5", "-1.5"),
        ("a=1", "a=1"),
        ("-", "'-"),
    ],
)
def test_csv_keeps_texts_that_look_like_formulas_texts(text, written):
    frame = pd.DataFrame({"arm": [text], "value": [-1.5]})
    assert csv_text(frame, 2) == f"arm,value\n{written},-1.50\n"


def test_json_has_no_character_that_controls_a_terminal_and_says_the_same():
    name = "\x1b[2J\x7f\x9b\u202e\u2028 ü"
    text = json_text({name: name})
    assert not CONTROL_CHARACTERS.search(text)
    assert json.loads(text) == {name: name}
    assert " ü" in text
