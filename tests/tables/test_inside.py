"""An analysis as a table: marks by hand, what a legend explains, files that are read again, figures."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from read_pages import texts_of

from glue_bench.analysis.chance import Analysis, Row, row
from glue_bench.errors import UserError
from glue_bench.tables.inside import HEADLINES, LEGEND, inside_page, read_analysis, write_analysis
from glue_bench.tables.inside_figures import DESCRIPTIONS, inside_figures
from glue_bench.tables.report import inside_part

FOUR = [(query, key) for query in ("word", "position") for key in ("word", "position")]


def analysis(labels=("one",), more: list[Row] | None = None) -> Analysis:
    """Made-up rows and matrices of each kind, with cells of 8 tokens and two heads."""
    rows = [row(measure, 0.5, chance=(0.4, 0.6)) for measure in HEADLINES] if more is None else more
    for query, key in FOUR:
        rows = [*rows, row(f"terms.share.{query}_{key}", 0.25, (0.2, 0.3), layer=1, n=9)]
        rows += [row(f"terms.share.{query}_{key}", 0.2, layer=1, head=head, n=9) for head in (1, 2)]
        rows.append(row(f"terms.share_fresh.{query}_{key}", 0.1, layer=1, n=9))
    for what in ("position", "word"):
        rows += [row(f"decoding.{of}.{what}_accuracy", 0.9, chance=(0.1, 0.1)) for of in ("norm", "random")]
        rows += [row(f"decoding.layers.{what}_accuracy", 0.8, chance=(0.1, 0.1), layer=layer) for layer in (0, 1)]
    cells = pd.DataFrame([(i, j) for i in range(0, 32, 8) for j in range(0, 32, 8)], columns=["i", "j"])
    cells = cells.assign(cosine=np.linspace(-1, 1, 16))
    steps = pd.DataFrame({"m": [1, 2], "index": [1, 2], "dimension": [0, 1], "share": [0.5, 1.0]})
    steps = steps.assign(low=0.4, high=0.6, variance=[0.9, 0.1], sd_words=0.5, sd_positions=[0.1, 0.9])
    matrices = {
        "positions_cosine": cells,
        "subspace_curve": steps,
        "dimensions": steps,
        "spectrum": steps.merge(pd.DataFrame({"table": ["words", "positions"]}), how="cross"),
    }
    each = pd.DataFrame({"checkpoint": labels})
    frame = pd.DataFrame(rows, columns=Row._fields).astype({"layer": "Int64", "head": "Int64"})
    return Analysis(
        text="a text",
        text_digest="t" * 64,
        sequences=9,
        subjects=each.assign(variant="add", weights=list(labels)),
        measures=each.merge(frame, how="cross"),
        left_out=pd.DataFrame([(labels[0], "order", "no head")], columns=["checkpoint", "measure", "reason"]),
        matrices={name: each.merge(matrix, how="cross") for name, matrix in matrices.items()},
    )


MARKED = [
    (row("subspaces.overlap", 0.2, chance=(0.9, 1.1)), "0.2 ▼"),
    (row("subspaces.overlap", 1.0, chance=(0.9, 1.1)), "1"),
    (row("subspaces.overlap", 4.0, chance=(0.9, 1.1)), "4 ▲"),
    (row("terms.mixed", 1.2, (0.5, 1.3), (0.9, 1.1)), "120.0 ▲"),
    (row("order.swap.1", 0.6, (0.45, 0.75), (0.5, 0.5)), "60.0"),
    (row("order.swap.1", 0.9997, (0.95, 1.0), (0.5, 0.5)), "99.97 ▲"),
    (row("order.swap.1", 0.4, (0.35, 0.45), (0.5, 0.5)), "40.0 ▼"),
    (row("order.swap.1", 0.5, chance=(0.5, 0.5)), "50.0"),
]


@pytest.mark.parametrize(("measured", "shown"), MARKED)
def test_a_number_is_marked_where_it_lies_outside_what_chance_gives(measured, shown):
    table = inside_page(analysis(more=[measured])).tables[0]
    ((_, text, *_),) = table.rows
    assert text.text == shown


def test_the_table_has_a_row_a_headline_and_a_legend_for_what_is_there():
    one, two = (inside_page(analysis(labels)).tables[0] for labels in (("one",), ("one", "two")))
    assert len(one.rows) == len(HEADLINES)
    assert (one.header, two.header) == (["Measure", "one", "95% interval", "Chance"], ["Measure", "one", "two"])
    assert [cell.text for cell in one.rows[0]] == ["Mixed terms in attention's logits (%)", "50.0", "", "40.0 to 60.0"]
    few = inside_page(analysis(more=[row("order.swap.1", 0.5, chance=(0.5, 0.5))])).tables[0]
    assert few.legend == (one.legend[0], LEGEND["order"])
    assert {measure.partition(".")[0] for measure in HEADLINES} == set(LEGEND)
    reasons = [(label, name, "no text") for name in ("terms", "layers") for label in ("one", "two")]
    left_out = pd.DataFrame(reasons, columns=["checkpoint", "measure", "reason"])
    table = inside_page(replace(analysis(("one", "two")), left_out=left_out)).tables[1]
    assert [[cell.text for cell in cells] for cells in table.rows] == [["one, two", "terms, layers", "no text"]]


def test_files_are_read_again_for_the_digests_that_are_asked_for(tmp_path):
    made = analysis(("one", "two"))
    for folder in ("first", "second"):
        write_analysis(made, tmp_path / folder)
    files = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()}
    assert set(files) == {"analysis.json", "analysis.md", "measures.csv", *(f"{name}.csv" for name in made.matrices)}
    facts = json.loads(files["analysis.json"])["checkpoints"]["one"]
    assert facts["measures"]["subspaces.overlap"] == {"value": 0.5, "chance": [0.4, 0.6]}
    assert facts["measures"]["terms.share.word_word"] == {"value": 0.25, "interval": [0.2, 0.3], "n": 9}
    assert facts["measures"]["decoding.layers.1.word_accuracy"]["chance"] == [0.1, 0.1]
    assert facts["left_out"] == {"order": "no head"}
    whole = read_analysis(tmp_path / "first", ["one", "two", "three"])
    assert inside_page(whole).to_markdown() == inside_page(made).to_markdown() == files["analysis.md"].decode()
    part = read_analysis(tmp_path / "first", ["two"])
    assert set(part.measures["checkpoint"]) == set(part.subjects["checkpoint"]) == {"two"}
    assert all(set(matrix["checkpoint"]) == {"two"} for matrix in part.matrices.values())
    assert len(part.left_out) == 0
    assert read_analysis(tmp_path / "first", ["of other weights"]) is None
    assert read_analysis(tmp_path / "nowhere", ["one"]) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"checkpoints": {}}', '{"checkpoints": {"a": 1}, "matrices": []}'])
def test_a_damaged_folder_is_one_line(content, tmp_path):
    write_analysis(analysis(), tmp_path)
    (tmp_path / "analysis.json").write_text(content)
    with pytest.raises(UserError, match=r"is damaged .*run `glue-bench analyse -o "):
        read_analysis(tmp_path, ["one"])


def test_a_report_shows_the_analysis_of_its_own_arms_alone(tmp_path):
    write_analysis(analysis(("one", "two")), tmp_path / "analysis")
    results = [SimpleNamespace(folder=tmp_path, pretrainings=pd.DataFrame({"weights": weights}))
               for weights in (["of another run", None], ["two", None])]  # fmt: skip
    assert list(inside_part(results[0])) == []
    (shown,) = inside_part(results[1])
    assert shown.tables[0].header == ["Measure", "two", "95% interval", "Chance"]
    assert {figure.name for figure in shown.figures} == set(DESCRIPTIONS)


# Figures


@pytest.fixture(scope="module")
def figures():
    """By name."""
    return {drawing.name: drawing.figure for drawing in inside_figures(analysis())}


def test_every_figure_that_has_numbers_is_drawn(figures):
    assert set(figures) == set(DESCRIPTIONS)
    few = replace(analysis(), matrices={"spectrum": analysis().matrices["spectrum"]}, measures=analysis().measures[:1])
    assert [drawing.name for drawing in inside_figures(few)] == ["spectrum"]


def test_cosines_stand_at_their_positions(figures):
    (image,) = figures["positions_cosine"].axes[0].images
    cell = analysis().matrices["positions_cosine"].query("i == 16 and j == 8")["cosine"].item()
    assert (image.get_clim(), image.get_extent(), image.get_array()[2, 1]) == ((-1, 1), [0, 32, 32, 0], cell)


SHOWN = {
    "terms_share": ({"position to word", "share of variance", "measured", "fresh weights"}, [0.25] * 4),
    "decoding": ({"Decoding of the word", "sum", "norm", "0", "1", "chance", "one"}, [0.8, 0.8]),
    "subspace_curve": ({"positions", "random rotations, 95%", "share of positions' variance"}, [0.5, 1.0]),
    "spectrum": ({"words", "positions", "principal direction"}, [0.9, 0.1]),
    "dimensions": ({"words", "positions", "standard deviation"}, [0.1, 0.9]),
    "positions_cosine": ({"cosine of two positions"}, None),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_figure_says_what_it_shows_and_draws_the_numbers(name, figures):
    words, line = SHOWN[name]
    assert {*texts_of(figures[name])} >= words
    lines = [list(side) for each in figures[name].axes[0].lines for side in each.get_data()]
    assert line is None or line in lines
