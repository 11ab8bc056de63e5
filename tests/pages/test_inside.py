"""An analysis as a table: marks by hand, what a legend explains, files that are read again, figures."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from helpers.read_pages import texts_of
from helpers.stored import digest

from glue_bench.analysis.chance import Analysis, Row, row
from glue_bench.board.compare import open_comparison
from glue_bench.pages.analysis_files import read_analysis, write_analysis
from glue_bench.pages.inside import HEADLINES, LEGEND, inside_page
from glue_bench.pages.inside_figures import FIGURES, inside_figures
from glue_bench.pages.render import to_markdown
from glue_bench.pages.report import make_report

FOUR = [f"{query}_{key}" for query in ("word", "position") for key in ("word", "position")]


def analysis(labels=("one",), more: list[Row] | None = None) -> Analysis:
    """Made-up rows of each kind, and a matrix."""
    rows = [row(measure, 0.5, chance=(0.4, 0.6)) for measure in HEADLINES] if more is None else more
    for term in FOUR:
        rows = [*rows, row(f"terms.share.{term}", 0.25, (0.2, 0.3), layer=1, n=9)]
        rows.append(row(f"terms.share_fresh.{term}", 0.1, layer=1, n=9))
    for what in ("position", "word"):
        rows += [
            row(f"decoding.{of}.{what}_accuracy", 0.9, chance=(0.1, 0.1))
            for of in ("norm", "random")
        ]
        rows += [
            row(f"decoding.layers.{what}_accuracy", 0.8, chance=(0.1, 0.1), layer=layer)
            for layer in (0, 1)
        ]
    each, curve = (
        pd.DataFrame({"checkpoint": labels}),
        pd.DataFrame({"m": [1, 2], "share": [0.5, 1.0]}),
    )
    frame = pd.DataFrame(rows, columns=Row._fields).astype({"layer": "Int64"})
    return Analysis(
        text="a text",
        text_digest="t" * 64,
        sequences=9,
        subjects=each.assign(variant="add", weights=list(labels)),
        measures=each.merge(frame, how="cross"),
        left_out=pd.DataFrame(
            [(labels[0], "order", "no head")], columns=["checkpoint", "measure", "reason"]
        ),
        matrices={"subspace_curve": each.merge(curve.assign(low=0.4, high=0.6), how="cross")},
    )


MARKED = [
    (row("subspaces.overlap", 0.2, chance=(0.9, 1.1)), "0.2 ▼"),
    (row("subspaces.overlap", 1.0, chance=(0.9, 1.1)), "1"),
    (row("terms.mixed", 1.2, (0.5, 1.3), (0.9, 1.1)), "120.0 ▲"),
    (row("order.swap.1", 0.6, (0.45, 0.75), (0.5, 0.5)), "60.0"),
    (row("order.swap.1", 0.9997, (0.95, 1.0), (0.5, 0.5)), "99.97 ▲"),
    (row("order.swap.1", 0.5, chance=(0.5, 0.5)), "50.0"),
]


@pytest.mark.parametrize(("measured", "shown"), MARKED)
def test_a_number_is_marked_where_it_lies_outside_what_chance_gives(measured, shown):
    ((_, text, *_),) = inside_page(analysis(more=[measured])).tables[0].rows
    assert text.text == shown


def test_the_table_has_a_row_a_headline_and_a_legend_for_what_is_there():
    one, two = (inside_page(analysis(labels)).tables[0] for labels in (("one",), ("one", "two")))
    assert len(one.rows) == len(HEADLINES)
    assert (one.header, two.header) == (
        ["Measure", "one", "95% interval", "Chance"],
        ["Measure", "one", "two"],
    )
    assert [cell.text for cell in one.rows[0]] == [
        "Mixed terms in attention's logits (%)",
        "50.0",
        "",
        "40.0 to 60.0",
    ]
    few = inside_page(analysis(more=[row("order.swap.1", 0.5, chance=(0.5, 0.5))])).tables[0]
    assert few.legend == (LEGEND["marks"], LEGEND["order"])
    assert {measure.partition(".")[0] for measure in HEADLINES} == LEGEND.keys() - {"marks"}
    assert inside_page(analysis(more=[])).tables[0].rows == []
    reasons = [(label, name, "no text") for name in ("terms", "layers") for label in ("one", "two")]
    left_out = pd.DataFrame(reasons, columns=["checkpoint", "measure", "reason"])
    table = inside_page(replace(analysis(("one", "two")), left_out=left_out)).tables[1]
    assert [[cell.text for cell in cells] for cells in table.rows] == [
        ["one, two", "terms, layers", "no text"]
    ]


def test_files_are_read_again_for_the_digests_that_are_asked_for(tmp_path):
    made = analysis(("one", "two"))
    for folder in ("first", "second"):
        write_analysis(made, tmp_path / folder)
    files = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()}
    assert set(files) == {"analysis.json", "analysis.md", "measures.csv", "subspace_curve.csv"}
    facts = json.loads(files["analysis.json"])["checkpoints"]["one"]
    assert facts["measures"]["subspaces.overlap"] == {"value": 0.5, "chance": [0.4, 0.6]}
    assert facts["measures"]["terms.share.word_word"] == {
        "value": 0.25,
        "interval": [0.2, 0.3],
        "n": 9,
    }
    assert facts["measures"]["decoding.layers.1.word_accuracy"]["chance"] == [0.1, 0.1]
    assert facts["left_out"] == {"order": "no head"}
    whole = read_analysis(tmp_path / "first", ["one", "two", "three"])
    assert (
        to_markdown(inside_page(whole))
        == to_markdown(inside_page(made))
        == files["analysis.md"].decode()
    )
    part = read_analysis(tmp_path / "first", ["two"])
    for frame in (part.measures, part.subjects, part.matrices["subspace_curve"]):
        assert set(frame["checkpoint"]) == {"two"}
    assert len(part.left_out) == 0
    assert read_analysis(tmp_path / "first", ["of other weights"]) is None
    assert read_analysis(tmp_path / "nowhere", ["one"]) is None


DAMAGED = [
    *(("analysis.json", text) for text in ("{", "[]", '{"checkpoints": {}}')),
    ("measures.csv", "checkpoint\n"),
]


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_a_damaged_analysis_is_left_out_of_the_report_which_says_so_in_one_line(
    name, content, bench
):
    bench.finish()
    bench.pretrain(weights={1: (label := digest("weights"))})
    write_analysis(analysis((label,)), bench.path / "analysis")
    (bench.path / "analysis" / name).write_text(content)
    parts = {
        part.title: part
        for part in make_report(open_comparison(bench.plan(data_source="demo"))).parts
    }
    (((said, _),),) = parts["Inside the encoders"].tables[0].rows
    again = "glue-bench analyse RESULTS/toy -o RESULTS/toy/analysis"
    assert re.fullmatch(rf"analysis/ is damaged \(.+\); delete it, or make it again: {again}", said)


SHOWN = {
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


def test_every_figure_that_has_numbers_is_drawn_says_what_it_shows_and_draws_them(tmp_path):
    write_analysis(analysis(), tmp_path)
    for made in (analysis(), read_analysis(tmp_path, ["one"])):
        figures = {drawing.name: drawing.figure for drawing in inside_figures(made)}
        assert set(figures) == set(FIGURES) == set(SHOWN)
        for name, (words, line) in SHOWN.items():
            assert {*texts_of(figures[name])} >= words
            assert line in [
                list(side) for each in figures[name].axes[0].lines for side in each.get_data()
            ]
    few = replace(analysis(), measures=analysis().measures[:1])
    assert [drawing.name for drawing in inside_figures(few)] == ["subspace_curve"]
