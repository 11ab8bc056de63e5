"""Pages in three markups: the same texts come back out of each."""

import json
import re
import string
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from read_pages import READERS, latex_text, parse_html, read_latex
from rich.console import Console

from glue_bench.errors import UNSHOWN, UserError
from glue_bench.reporting.formats import PAGES, chosen_format, render_page
from glue_bench.reporting.grid import Grid, GridCell, Page, PageSection
from glue_bench.reporting.latex import layout_of
from glue_bench.reporting.terminal import show
from glue_bench.tables.numbers import frame_csv, json_text

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
)
each = pytest.mark.parametrize("format", PAGES)
shown = st.one_of(
    st.sampled_from(NASTY),
    st.text(string.ascii_letters + string.digits + string.punctuation + "†‡±–é→", min_size=1),  # noqa: RUF001
)


def page(*rows: tuple[GridCell, ...], header=("Arm", "CoLA"), title="A title", **more) -> Page:
    return Page(title=title, sections=(PageSection(title="Pretrained", grid=Grid(header=header, rows=rows)),), **more)


@each
@given(arm=shown, header=shown, value=shown, bold=st.booleans())
def test_the_texts_of_cells_come_back(format, arm, header, value, bold):
    made = page((GridCell(arm), GridCell(value, bold=bold, marks=" ‡")), header=("Arm", header))
    (table,) = READERS[format](render_page(made, format))
    assert table.header == ["Arm", header]
    assert table.rows == [[(arm, False), (f"{value} ‡", bold)]]


@each
@pytest.mark.parametrize("text", NASTY)
def test_nasty_texts_come_back(format, text):
    made = page((GridCell(text), GridCell(text, bold=True, marks=" †")), header=(text, text))
    (table,) = READERS[format](render_page(made, format))
    assert (table.header, table.rows) == ([text, text], [[(text, False), (f"{text} †", True)]])


@each
@given(title=shown)
def test_titles_are_plain_text(format, title):
    section = PageSection(title=title, grid=Grid(header=("a", "b"), rows=((GridCell("x"), GridCell("1")),)))
    (table,) = READERS[format](render_page(Page(title=title, sections=(section,)), format))
    assert table.title == {"latex": f"{title}. {title}."}.get(format, title)


def test_a_sentence_has_bold_and_code_and_nothing_else():
    made = page(notes=("**50%** of `a_b` & c_d, see https://x.org/a_b?c=1&d=2).",), title="t")
    markdown, latex, html = (render_page(made, format) for format in ("markdown", "latex", "html"))
    assert "- **50%** of `a_b` & c_d, see https://x.org/a_b?c=1&d=2).\n" in markdown
    assert r"\item \textbf{50\%} of \texttt{a\_b} \& c\_d, see https://x.org/a\_b?c=1\&d=2)." in latex
    address = "https://x.org/a_b?c=1&amp;d=2"
    assert f'<strong>50%</strong> of <code>a_b</code> &amp; c_d, see <a href="{address}">{address}</a>).' in html


def test_markdown_sets_marks_outside_the_bold_and_escapes_pipes():
    text = render_page(page((GridCell("x|y"), GridCell("1.00 ± 2.00", bold=True, marks=" (2 of 3) ‡"))))
    assert text.splitlines()[-1] == r"| x\|y | **1.00 ± 2.00** (2 of 3) ‡ |"


@each
def test_a_page_without_rows_or_notes_or_grids(format):
    made = Page(title="t", sections=(PageSection(title="s", text="why"), page().sections[0]), banner="Beware & **run**")
    text = render_page(made, format)
    (table,) = READERS[format](text)
    assert (table.header, table.rows) == (["Arm", "CoLA"], [])
    assert "why" in text
    assert "Notes" not in text


def test_latex_repeats_what_a_floating_table_loses():
    made = page((GridCell("a"), GridCell("1")), title="Leaderboard: tiny", banner="Demo.")
    text = render_page(made, "latex")
    assert r"\caption{Leaderboard: tiny. Pretrained. \textbf{Demo.}}" in text
    assert r"\label{tab:leaderboard-tiny-pretrained}" in text


@each
def test_feet_and_what_stands_beside_a_number_come_back(format):
    grid = Grid(
        header=("Arm", "CoLA"),
        rows=((GridCell("a"), GridCell("1.00", bold=True, marks="▲‡", aside="-2.00")),),
        feet=((GridCell("majority class"), GridCell("0.00")),),
    )
    made = Page(title="t", lead="**a** is `best`.", sections=(PageSection(title="s", grid=grid),))
    text = render_page(made, format)
    (table,) = READERS[format](text)
    assert table.rows == [
        [("a", False), ("1.00▲‡ (-2.00)", True)],
        [("majority class", False), ("0.00", False)],
    ]
    lead = {
        "markdown": "**a** is `best`.",
        "latex": r"\textbf{a} is \texttt{best}.",
        "html": "<strong>a</strong> is <code>",
    }
    assert lead[format] in text


def wide(columns: int, text: str = "100.00", name: str = "MNLI-mm", **more) -> Grid:
    return Grid(
        header=("Arm", *(name for _ in range(columns))),
        rows=((GridCell("untied-relative"), *(GridCell(f"{text}{i}", **more) for i in range(columns))),),
    )


def test_latex_makes_wide_tables_smaller_and_folds_those_that_nothing_makes_fit():
    narrow = render_page(page((GridCell("a"), GridCell("1"))), "latex")
    assert "\\small\n" in narrow
    assert r"\begin{table}" in narrow
    for columns, environment, parts in ((5, "table*", 1), (8, "table*", 2), (20, "table*", 4)):
        made = Page(title="t", sections=(PageSection(title="s", grid=wide(columns)),))
        text = render_page(made, "latex")
        assert rf"\begin{{{environment}}}" in text
        assert text.count(r"\begin{tabular}") == parts
        (table,) = read_latex(text)
        assert [cell for cell, _ in table.rows[0]] == ["untied-relative", *(f"100.00{i}" for i in range(columns))]


CMR = {"small": 9.25, "footnotesize": 8.5, "scriptsize": 7.97}
"""Points of an em of cmr9, cmr8 and cmr7 (two digits); a bold digit is 1.15 times as wide as an upright one."""


@pytest.mark.parametrize("columns", [1, 4, 6, 8, 11, 14])
@pytest.mark.parametrize("aside", ["", "-31.50"])
def test_no_latex_table_is_wider_than_its_column(columns, aside):
    """By the widths of Computer Modern itself, of which the layout knows less: digits, capitals, m and i."""
    ems = {**dict.fromkeys("0123456789", 0.5 * 1.15), ".": 0.29, "-": 0.78, "(": 0.39, ")": 0.39, "▲": 0.5, "‡": 0.45}
    ems |= {"M": 0.92, "N": 0.75, "L": 0.63, "I": 0.36, "m": 0.83, "i": 0.28, "l": 0.28, "t": 0.39, " ": 0.34}
    grid = wide(columns, bold=True, marks="▲‡", aside=aside)
    layout = layout_of(grid)
    for part in layout.parts:
        width = 0.0
        for i, name in enumerate(part.header):
            shown = [name, *(f"{row[i].text}{row[i].marks}" for row in part.rows)]
            beside = f" ({aside})" if aside and i else ""
            texts = max(sum(ems.get(c, 0.56) for c in text) for text in shown) * CMR[layout.size]
            width += texts + sum(ems.get(c, 0.56) for c in beside) * 5 * 1.36 + 6
        assert width <= {"table": 221, "table*": 345}[layout.environment]


def test_latex_breaks_long_texts():
    grid = Grid(header=("a", "b"), rows=((GridCell("x" * 50), GridCell("1")),))
    text = render_page(Page(title="t", sections=(PageSection(title="s", grid=grid),)), "latex")
    assert r"{p{0.3\linewidth}r}" in text


def test_a_terminal_folds_a_wide_table_and_aligns_its_numbers():
    console = Console(width=60, record=True, file=StringIO(), force_terminal=True)
    rows = (
        (GridCell("a"), GridCell("1.00", marks="▲"), GridCell("2.00")),
        (GridCell("b"), GridCell("10.00"), GridCell("3.00")),
    )
    show(
        Page(title="", sections=(PageSection(title="", grid=Grid(header=("Arm", "CoLA", "RTE"), rows=rows)),)), console
    )
    assert console.export_text().splitlines() == ["Arm   CoLA  RTE", "a    1.00▲ 2.00", "b   10.00  3.00"]
    console = Console(width=60, record=True, file=StringIO(), force_terminal=True)
    made = Page(title="", sections=(PageSection(title="", grid=wide(11, aside="+1.00")),))
    show(made, console, ["next: `glue-bench run`"])
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("untied-relative") for line in lines) == 4
    assert lines[-1] == "next: glue-bench run"


def test_latex_sets_a_minus_before_numbers_and_no_other_hyphen():
    text = render_page(page((GridCell("-2-d"), GridCell("-5.83 to -1.00"))), "latex")
    assert r"-2-d & \ensuremath{-}5.83 to \ensuremath{-}1.00 \\" in text


@pytest.mark.parametrize("broken", ["a_b", "50%", "a & b", "{", r"\textbf{a", r"\unknown", "a--b"])
def test_the_latex_reader_sees_what_is_not_escaped(broken):
    with pytest.raises(AssertionError):
        latex_text(broken)


def test_the_latex_reader_sees_a_missing_cell():
    text = render_page(page((GridCell("a"), GridCell("1"))), "latex")
    with pytest.raises(AssertionError):
        read_latex(text.replace("a & 1", "a"))


def test_html_stands_alone_and_says_what_its_cells_are():
    grid = Grid(
        header=("Model", "Row", "CoLA", "Why"),
        rows=((GridCell(""), GridCell("ours"), GridCell("1.00"), GridCell("")),),
    )
    made = page((GridCell("a"), GridCell("1")), title="<script>", notes=("**x**",))
    made = Page(title=made.title, sections=(PageSection(title="", grid=Grid(**{**vars(grid), "texts": {0, 1, 3}})),))
    text = render_page(made, "html")
    read = parse_html(text)
    assert {tag for tag, name, _ in read.attributes if name in ("src", "href")} == set()
    assert not {"script", "link", "img"} & set(read.texts)
    assert ("meta", "charset", "utf-8") in read.attributes
    assert read.texts["title"] == ["<script>"]
    assert read.texts["caption"] == ["<script>"]
    assert '<tr><td></td><th scope="row">ours</th><td class="number">1.00</td><td></td></tr>' in text
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"\.number \{ text-align: right", text)


def test_the_format_is_the_one_asked_for_or_that_of_the_file():
    suffixes = {"md": "markdown", "csv": "csv", "json": "json", "tex": "latex", "html": "html", "HTML": "html"}
    assert {suffix: chosen_format(None, Path(f"a.{suffix}")) for suffix in suffixes} == suffixes
    assert chosen_format(None) == chosen_format(None, Path("a.txt")) == chosen_format(None, Path("a")) == "markdown"
    assert chosen_format("latex", Path("a.html")) == "latex"


def test_an_unknown_format_is_refused():
    with pytest.raises(UserError, match="unknown format 'latx'; did you mean 'latex'"):
        chosen_format("latx")
    with pytest.raises(UserError, match="unknown format 'csv'; known: markdown, latex, html"):
        render_page(page(), "csv")


def test_csv_keeps_texts_that_look_like_formulas_texts_and_numbers_numbers():
    frame = pd.DataFrame({"arm": ["=1+1", "+x", "-2+3", "@a", "-1.5", "a=1", "-"], "value": [-1.5, 0, 1, 2, 3, 4, 5]})
    lines = frame_csv(frame).splitlines()
    assert lines == [
        *("arm,value", "'=1+1,-1.50", "'+x,0.00", "'-2+3,1.00", "'@a,2.00"),
        *("-1.5,3.00", "a=1,4.00", "'-,5.00"),
    ]


def test_json_has_no_character_that_controls_a_terminal_and_says_the_same():
    name = "\x1b[2J\x7f\x9b\u202e\u2028 ü"
    text = json_text({name: name})
    assert not UNSHOWN.search(text)
    assert json.loads(text) == {name: name}
    assert " ü" in text
