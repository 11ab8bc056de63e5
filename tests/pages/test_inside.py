"""An analysis as a table: marks by hand, its legend, files that are read again, figures."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from helpers.read_pages import check_texts
from helpers.stored import digest

from glue_bench.analysis.chance import Analysis, Row, row
from glue_bench.board.compare import open_comparison
from glue_bench.pages.analysis_files import read_analysis, write_analysis
from glue_bench.pages.inside import HEADLINES, INSIDE_LEGEND, inside_page
from glue_bench.pages.inside_figures import FIGURES, inside_figures
from glue_bench.pages.render import to_markdown
from glue_bench.pages.report import make_report

TERMS = ["word_word", "word_position", "position_word", "position_position"]
LEFT_OUT_COLUMNS = ["checkpoint", "measure", "reason"]


def headline_rows() -> list[Row]:
    """Make a row for each headline, inside the range of chance."""
    return [row(measure, 0.5, chance=(0.4, 0.6)) for measure in HEADLINES]


def rows_of_figures() -> list[Row]:
    """Make the rows that the figures draw."""
    rows = []
    for term in TERMS:
        rows.append(row(f"terms.share.{term}", 0.25, (0.2, 0.3), layer=1, n=9))
        rows.append(row(f"terms.share_fresh.{term}", 0.1, layer=1, n=9))
    for target in ("position", "word"):
        for source in ("norm", "random"):
            rows.append(row(f"decoding.{source}.{target}_accuracy", 0.9, chance=(0.1, 0.1)))
        for layer in (0, 1):
            name = f"decoding.layers.{target}_accuracy"
            rows.append(row(name, 0.8, chance=(0.1, 0.1), layer=layer))
    return rows


def analysis(labels=("one",), headlines: list[Row] | None = None) -> Analysis:
    """Make an analysis with made-up rows of each kind, and a matrix."""
    rows = headline_rows() if headlines is None else headlines
    measures = pd.DataFrame([*rows, *rows_of_figures()], columns=Row._fields)
    curve = pd.DataFrame({"m": [1, 2], "share": [0.5, 1.0], "low": 0.4, "high": 0.6})
    checkpoints = pd.DataFrame({"checkpoint": labels})
    return Analysis(
        text="a text",
        text_digest="t" * 64,
        sequences=9,
        subjects=checkpoints.assign(variant="add", weights=list(labels)),
        measures=checkpoints.merge(measures.astype({"layer": "Int64"}), how="cross"),
        left_out=pd.DataFrame([(labels[0], "order", "no head")], columns=LEFT_OUT_COLUMNS),
        matrices={"subspace_curve": checkpoints.merge(curve, how="cross")},
    )


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (row("subspaces.overlap", 0.2, chance=(0.9, 1.1)), "0.2 ▼"),
        (row("subspaces.overlap", 1.0, chance=(0.9, 1.1)), "1"),
        (row("terms.mixed", 1.2, (0.5, 1.3), (0.9, 1.1)), "120.0 ▲"),
        (row("order.swap.1", 0.6, (0.45, 0.75), (0.5, 0.5)), "60.0"),
        (row("order.swap.1", 0.9997, (0.95, 1.0), (0.5, 0.5)), "99.97 ▲"),
        (row("order.swap.1", 0.5, chance=(0.5, 0.5)), "50.0"),
    ],
)
def test_a_number_outside_the_range_of_chance_is_marked(measured, expected):
    table = inside_page(analysis(headlines=[measured])).tables[0]
    ((_, cell, *_),) = table.rows
    assert cell.text == expected


def test_the_table_has_a_row_for_each_headline():
    table = inside_page(analysis()).tables[0]
    assert len(table.rows) == len(HEADLINES)
    texts = [cell.text for cell in table.rows[0]]
    assert texts == ["Mixed terms in attention's logits (%)", "50.0", "", "40.0 to 60.0"]


def test_a_single_checkpoint_has_its_interval_and_chance():
    table = inside_page(analysis()).tables[0]
    assert table.header == ["Measure", "one", "95% interval", "Chance"]


def test_two_checkpoints_have_a_column_each():
    table = inside_page(analysis(("one", "two"))).tables[0]
    assert table.header == ["Measure", "one", "two"]


def test_an_analysis_without_headlines_has_no_rows():
    assert inside_page(analysis(headlines=[])).tables[0].rows == []


def test_the_legend_explains_the_headlines_of_the_table():
    swapped = row("order.swap.1", 0.5, chance=(0.5, 0.5))
    table = inside_page(analysis(headlines=[swapped])).tables[0]
    assert table.legend == (INSIDE_LEGEND["marks"], INSIDE_LEGEND["order"])


def test_each_headline_has_a_line_in_the_legend():
    kinds = set()
    for measure in HEADLINES:
        kind, _, _ = measure.partition(".")
        kinds.add(kind)
    expected = INSIDE_LEGEND.keys() - {"marks"}
    assert kinds == expected


def test_measures_that_are_left_out_have_a_row_for_each_reason():
    reasons = []
    for name in ("terms", "layers"):
        for label in ("one", "two"):
            reasons.append((label, name, "no text"))
    left_out = pd.DataFrame(reasons, columns=LEFT_OUT_COLUMNS)
    table = inside_page(replace(analysis(("one", "two")), left_out=left_out)).tables[1]
    (cells,) = table.rows
    assert [cell.text for cell in cells] == ["one, two", "terms, layers", "no text"]


@pytest.fixture
def written(tmp_path):
    """The folder of an analysis of two checkpoints."""
    write_analysis(analysis(("one", "two")), tmp_path / "first")
    return tmp_path / "first"


def contents(folder):
    """Return the bytes of the files of a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_analysis_gives_the_same_bytes(written, tmp_path):
    write_analysis(analysis(("one", "two")), tmp_path / "second")
    assert contents(written) == contents(tmp_path / "second")
    names = {"analysis.json", "analysis.md", "measures.csv", "subspace_curve.csv"}
    assert set(contents(written)) == names


def test_analysis_json_has_each_value_with_its_interval_and_chance(written):
    document = json.loads((written / "analysis.json").read_bytes())
    facts = document["checkpoints"]["one"]
    measures = facts["measures"]
    assert measures["subspaces.overlap"] == {"value": 0.5, "chance": [0.4, 0.6]}
    assert measures["terms.share.word_word"] == {"value": 0.25, "interval": [0.2, 0.3], "n": 9}
    assert measures["decoding.layers.1.word_accuracy"]["chance"] == [0.1, 0.1]
    assert facts["left_out"] == {"order": "no head"}


def test_an_analysis_that_is_read_again_gives_the_same_page(written):
    page = to_markdown(inside_page(read_analysis(written, ["one", "two", "three"])))
    assert page == to_markdown(inside_page(analysis(("one", "two"))))
    assert page == (written / "analysis.md").read_text()


def test_only_the_encoders_that_are_asked_for_are_read(written):
    part = read_analysis(written, ["two"])
    for frame in (part.measures, part.subjects, part.matrices["subspace_curve"]):
        assert set(frame["checkpoint"]) == {"two"}
    assert len(part.left_out) == 0


@pytest.mark.parametrize(("name", "weights"), [("first", "of other weights"), ("nowhere", "one")])
def test_an_analysis_of_other_encoders_or_in_no_folder_is_not_read(written, name, weights):
    assert read_analysis(written.with_name(name), [weights]) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("analysis.json", "{"),
        ("analysis.json", "[]"),
        ("analysis.json", '{"checkpoints": {}}'),
        ("measures.csv", "checkpoint\n"),
    ],
)
def test_the_report_leaves_a_damaged_analysis_out_and_says_so_in_one_line(name, content, bench):
    bench.finish()
    label = digest("weights")
    bench.pretrain(weights={1: label})
    write_analysis(analysis((label,)), bench.path / "analysis")
    (bench.path / "analysis" / name).write_text(content)
    report = make_report(open_comparison(bench.plan(data_source="demo")))
    (part,) = [part for part in report.parts if part.title == "Inside the encoders"]
    ((message,),) = part.tables[0].rows
    command = "glue-bench analyse RESULTS/toy -o RESULTS/toy/analysis"
    pattern = rf"analysis/ is damaged \(.+\); delete it, or make it again: {command}"
    assert re.fullmatch(pattern, message.text)


DRAWN = {
    "terms_share": (
        {"position to word", "share of variance", "measured", "fresh weights"},
        [0.25] * 4,
    ),
    "decoding": ({"Decoding of the word", "sum", "norm", "0", "1", "chance", "one"}, [0.8, 0.8]),
    "subspace_curve": (
        {"positions", "random rotations, 95%", "share of positions' variance"},
        [0.5, 1.0],
    ),
}
"""The texts in each figure, and the values of one of its lines."""


@pytest.mark.parametrize("is_read_again", [False, True])
def test_every_figure_has_its_texts_and_draws_its_values(tmp_path, is_read_again):
    source = analysis()
    if is_read_again:
        write_analysis(source, tmp_path)
        source = read_analysis(tmp_path, ["one"])
    figures = {drawing.name: drawing.figure for drawing in inside_figures(source)}
    assert set(figures) == set(FIGURES) == set(DRAWN)
    for name, (texts, values) in DRAWN.items():
        figure = figures[name]
        assert texts <= set(check_texts(figure)), name
        sides: list[list[float]] = []
        for line in figure.axes[0].lines:
            sides += map(list, line.get_data())
        assert values in sides, name


def test_a_figure_without_numbers_is_not_drawn():
    part = replace(analysis(), measures=analysis().measures[:1])
    assert [drawing.name for drawing in inside_figures(part)] == ["subspace_curve"]
