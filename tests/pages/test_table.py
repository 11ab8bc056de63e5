"""One table in every format: the same texts come back out of each."""

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

from glue_bench.errors import UNSHOWN, UserError
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

NASTY = ("a_b", "50%", "x|y", "<b>", "{}", "**x**", "[1]", "\\", "&amp;", "~^", "# $1", "a--b", '"q"', "`c`", "† ±",
         "a---b", "''", "&#38;", "#", "=1")  # fmt: skip
each = pytest.mark.parametrize("format", READERS)
shown = st.one_of(
    st.sampled_from(NASTY),
    st.text(string.ascii_letters + string.digits + string.punctuation + "†‡±–é◇▲▼", min_size=1),  # noqa: RUF001
)


def page(
    rows: dict, columns: dict | None = None, title: str = "A title", banner: str = "", **more
) -> Page:
    """A page of one table; columns that are not given are texts of their own names."""
    known = {name: Column(name) for name in rows} | (columns or {})
    return Page(
        title=title, banner=banner, tables=(Table(frame=pd.DataFrame(rows), columns=known, **more),)
    )


def printed(made: Page, width: int, file: str = "page.md") -> list[str]:
    console = Console(width=width, record=True, file=StringIO(), force_terminal=True)
    print_page(made, console, file)
    return [line.rstrip() for line in console.export_text().splitlines()]


@each
@given(arm=shown, title=shown, value=shown, bold=st.booleans())
def test_the_texts_of_cells_come_back(format, arm, title, value, bold):
    marks = {"bold": pd.DataFrame({"b": [bold]}), "marks": pd.DataFrame({"b": ["‡"]})}
    made = page({"a": [arm], "b": [value]}, {"b": Column(title)}, title=title, **marks)
    (table,) = READERS[format](render(made, format))
    assert table.title == {"latex": f"{title}."}.get(format, title)
    assert table.header == ["a", title]
    assert table.rows == [[(arm, False), (f"{value}‡", bold)]]


def test_numbers_have_fixed_decimals_texts_stand_to_the_left_and_what_is_missing_is_a_dash_or_nothing():
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


@each
def test_a_table_without_rows_has_its_header(format):
    (table,) = READERS[format](render(page({"a": [], "b": []}), format))
    assert (table.header, table.rows) == (["a", "b"], [])


@each
def test_feet_stand_below_a_rule_and_captions_and_legends_have_bold_and_code(format):
    made = page({"a": ["add", "floor"], "b": [2.0, 1.0]}, {"b": Column("B", 2)}, feet=1,
                caption="Against `add`: **50%** of c_d.", legend=("* see https://x.org/a_b?c=1&d=2).",))  # fmt: skip
    text = render(made, format)
    (table,) = READERS[format](text)
    assert [row[0][0] for row in table.rows] == ["add", "floor"]
    said = {
        "markdown": ("Against `add`: **50%** of c_d.", "- \\* see https://x.org/a_b?c=1&d=2).\n"),
        "latex": (
            r"Against \texttt{add}: \textbf{50\%} of c\_d.",
            r"\item {*} see https://x.org/a\_b?c=1\&d=2).",
        ),
        "html": (
            "Against <code>add</code>: <strong>50%</strong>",
            '* see <a href="https://x.org/a_b?c=1&amp;d=2">',
        ),
    }
    assert all(part in text for part in said[format])
    ruled = {"latex": r"add & 2.00 \\" + "\n\\midrule\nfloor", "html": "<tfoot>\n<tr><th"}
    assert ruled.get(format, "") in text


def test_latex_repeats_what_a_floating_table_loses_and_is_made_smaller_only_where_it_is_too_wide():
    made = page(
        {"a": ["x" * 50], "b": ["-2-d"]},
        {"b": Column("b", show=str)},
        title="Tiny: a long way",
        banner="Demo.",
    )
    text = to_latex(replace(made, tables=(*made.tables, *made.tables)))
    assert text.count(r"\caption{Tiny: a long way. \textbf{Demo.}}") == 2
    assert re.findall(r"\\label\{tab:(.*)\}", text) == ["tiny-a-long-way", "tiny-a-long-way-2"]
    assert r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" in text
    assert r"\begin{tabular}{p{0.3\linewidth}r}" in text
    assert r" & $-$2-d \\" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex with booktabs")
@pytest.mark.parametrize("layout", ["onecolumn", "twocolumn"])
def test_latex_has_no_overfull_box(layout, tmp_path):
    wide = {f"c{i}": ["100.00"] * 3 for i in range(20)}
    made = page(
        {"a": [*NASTY[:2], "x " * 60], **wide},
        {name: Column("MNLI-mm†", show=str) for name in wide},
    )
    preamble = (
        rf"\documentclass[{layout}]{{article}}\usepackage{{booktabs,graphicx}}\begin{{document}}"
    )
    (tmp_path / "page.tex").write_text(f"{preamble}\n{to_latex(made)}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, encoding="latin-1", check=False
    )
    assert ended.returncode == 0, ended.stdout[-2000:]
    assert "Overfull" not in ended.stdout


def test_html_stands_alone_and_says_what_its_cells_are():
    text = to_html(
        page({"a": ["<i>"], "b": [1.0]}, {"b": Column("B", 2)}, title="<script>", legend=("x",))
    )
    read = parse_html(text)
    assert not {"src", "href"} & {name for _, name, _ in read.attributes}
    assert not {"script", "link", "img"} & set(read.texts)
    assert read.texts["title"] == read.texts["caption"] == ["<script>"]
    assert (
        '<tr><th scope="col" class="text"><span>a</span></th><th scope="col" class="number"><span>B</span></th></tr>'
        in text
    )
    assert (
        '<tr><th scope="row" class="text">&lt;i&gt;</th><td class="number">1.00</td></tr>' in text
    )
    assert re.search(r"\.number \{ text-align: right", text)


def test_a_terminal_leaves_out_the_last_columns_that_do_not_fit_and_says_where_they_are():
    names = ("Avg.", "CoLA", "RTE")
    rows = {"arm": ["add", "none"], **{name: [100.0, 99.5] for name in names}}
    made = page(rows, {name: Column(name, 2) for name in names}, caption="Who wins", banner="Demo.")
    assert printed(made, 40) == ["Demo.", "Who wins", "arm    Avg.   CoLA    RTE", "add  100.00 100.00 100.00",
                                 "none  99.50  99.50  99.50"]  # fmt: skip
    assert printed(made, 24)[2:] == ["arm    Avg.   CoLA", "add  100.00 100.00", "none  99.50  99.50",
                                     "More columns (1):", "page.md"]  # fmt: skip
    lines = printed(
        page({"arm": ["add"], "what": ["word " * 30]}), 60
    )  # long texts are broken into lines
    assert len(lines) > 3
    assert max(map(len, lines)) <= 60


def test_csv_has_the_whole_frame_or_the_data_and_json_the_same_rows_with_captions_and_legend():
    frame = pd.DataFrame({"arm": ["add"], "score": [1.23456], "hidden_loss": [2.34567]})
    table = Table(frame=frame, columns={"arm": Column("Arm")}, caption="c", legend=("l",))
    made = Page(title="t", tables=(table,), column_decimals={"hidden_loss": 3})
    assert to_csv(made) == "arm,score,hidden_loss\nadd,1.23,2.346\n"
    assert json.loads(to_json(made)) == {
        "title": "t", "banner": "", "captions": ["c"], "legend": ["l"],
        "rows": [{"arm": "add", "score": 1.23, "hidden_loss": 2.346}],
        "tables": [{"title": "", "columns": {"arm": "Arm"}, "rows": [{"arm": "add"}]}],
    }  # fmt: skip
    assert (
        to_csv(Page(title="t", tables=(table,), data=frame[["score"]], decimals=4))
        == "score\n1.2346\n"
    )


def test_the_format_is_the_one_asked_for_or_that_of_the_file():
    suffixes = {
        "md": "markdown",
        "csv": "csv",
        "json": "json",
        "tex": "latex",
        "html": "html",
        "HTML": "html",
    }
    assert {suffix: resolve_format(None, Path(f"a.{suffix}")) for suffix in suffixes} == suffixes
    assert resolve_format(None) == resolve_format(None, Path("a")) == "markdown"
    assert resolve_format("latex", Path("a.html")) == "latex"
    for asked, said in (
        ({"format": "latx"}, "did you mean 'latex'"),
        ({"output": Path("a.xlsx")}, "'.xlsx'.*--format"),
    ):
        with pytest.raises(UserError, match=said):
            resolve_format(**{"format": None} | asked)


def test_csv_keeps_texts_that_look_like_formulas_texts_and_numbers_numbers():
    frame = pd.DataFrame(
        {"arm": ["=1+1", "+x", "-2+3", "@a", "-1.5", "a=1", "-"], "value": [-1.5, 0, 1, 2, 3, 4, 5]}
    )
    assert csv_text(frame, 2).splitlines() == [
        *("arm,value", "'=1+1,-1.50", "'+x,0.00", "'-2+3,1.00", "'@a,2.00"),
        *("-1.5,3.00", "a=1,4.00", "'-,5.00"),
    ]


def test_json_has_no_character_that_controls_a_terminal_and_says_the_same():
    name = "\x1b[2J\x7f\x9b\u202e\u2028 ü"
    text = json_text({name: name})
    assert not UNSHOWN.search(text)
    assert json.loads(text) == {name: name}
    assert " ü" in text
