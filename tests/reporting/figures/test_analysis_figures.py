"""Figures of an analysis: what is drawn, on which scale, with which names."""

import numpy as np
import pytest
from made_up import analysis, arm_names, read

from glue_bench.errors import UserError
from glue_bench.reporting.analysis_figures import figure_formats
from glue_bench.reporting.figures.decoding import decoding_by_layer
from glue_bench.reporting.figures.style import COLUMN, WIDE
from glue_bench.reporting.figures.tables import dimension_deviations, position_cosines, share_curves, spectra
from glue_bench.reporting.figures.terms import term_panels, term_panels_by_head, term_shares

MINUS = "\N{MINUS SIGN}"
ONE = analysis()
OF_TABLES = {
    share_curves: ("subspace_curve", ["leading word directions", "share of positions' variance"]),
    spectra: ("spectrum", ["principal direction", "share of the variance", "words", "positions"]),
    dimension_deviations: ("dimensions", ["dimension", "standard deviation", "over words", "over positions"]),
    position_cosines: ("positions_cosine", ["position", "cosine of two positions"]),
}


def images(figure):
    return [image for axes in figure.axes for image in axes.images]


@pytest.mark.parametrize(("value", "said"), [("rms", "RMS over sequences"), ("mean", "mean over sequences")])
def test_four_panels_of_the_first_block_have_one_scale(value, said):
    figure = term_panels(ONE["terms"], value)
    texts = read(figure)
    assert {"word to word", "word to position", "position to word", "position to position", f"logits, {said}"} <= set(
        texts
    )
    assert {"query (token)", "key (token)"} <= set(texts)
    largest = ONE["terms"][value].abs().max()
    limits = {image.get_clim() for image in images(figure)}
    assert limits == {(-largest if value == "mean" else 0.0, largest)}


def test_a_cell_stands_at_its_positions():
    cells = ONE["terms"].query("block == 1 and query == 'word' and key == 'position'")
    drawn = images(term_panels(ONE["terms"]))[1]
    assert drawn.get_array()[2, 1] == cells.query("i == 16 and j == 8")["rms"].item()
    assert drawn.get_extent() == [0, 32, 32, 0]


def test_variants_with_fewer_terms_or_a_bias_have_fewer_panels():
    terms = ONE["terms"]
    untied = terms[terms["query"] == terms["key"]]
    assert len(images(term_panels(untied))) == 2
    bias = terms.query("query == 'word' and key == 'word'").assign(query="bias", key="bias")
    assert "bias" in read(term_panels(bias))


def test_nothing_but_zeros_and_missing_cells_are_drawn():
    terms = ONE["terms"].assign(rms=0.0)
    terms.loc[terms.index[0], "rms"] = np.nan
    assert read(term_panels(terms))


@pytest.mark.parametrize("heads", [1, 12])
def test_heads_stand_one_below_the_other(heads):
    cells = analysis(heads=heads)["terms_heads"]
    cells["rms"] *= cells["head"] / cells["rms"].max()
    figure = term_panels_by_head(cells)
    texts = {f"{heads} ({heads})", "head (largest), query", "word\nto word"}
    assert {*texts, "key (token)"} <= set(read(figure))
    assert figure.get_figwidth() == COLUMN
    stacked = images(figure)[1].get_array().filled(np.nan)
    last = cells.query(f"query == 'word' and key == 'position' and head == {heads}").pivot(index="i", columns="j")[
        "rms"
    ]
    assert stacked[-4:] == pytest.approx(last.to_numpy() / heads), "a share of the head's own largest"
    assert {(image.norm.vmin, image.norm.vmax) for image in images(figure)} == {(0, 1)}
    assert np.isnan(stacked).all(axis=1).sum() == heads - 1


def test_shares_stand_beside_their_baselines():
    figure = term_shares(ONE["terms_share"], ONE["terms_baseline"])
    assert {"position to rest", "share of variance", "measured", "fresh weights"} <= set(read(figure))
    first = ONE["terms_share"].query("block == 1")["share"]
    assert any(list(line.get_xdata()) == list(first) for line in figure.axes[0].lines)
    assert "fresh weights" not in read(term_shares(ONE["terms_share"]))


@pytest.mark.parametrize("draw", OF_TABLES)
@pytest.mark.parametrize("checkpoints", [1, 2, pytest.param(18, marks=pytest.mark.slow)])
def test_figures_of_tables_name_their_axes(draw, checkpoints):
    name, said = OF_TABLES[draw]
    figure = draw(analysis(arm_names(checkpoints))[name])
    assert set(said) <= set(read(figure))
    assert figure.get_figwidth() == (COLUMN if checkpoints < 3 else WIDE)


def test_the_band_of_random_rotations_is_drawn():
    axes = share_curves(ONE["subspace_curve"]).axes[0]
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((1 / 8 - 0.1, 1.1))
    assert list(axes.lines[0].get_ydata()) == [m / 8 for m in range(1, 9)]


def test_cosines_have_the_whole_scale():
    assert images(position_cosines(ONE["positions_cosine"]))[0].get_clim() == (-1, 1)


@pytest.mark.parametrize("checkpoints", [1, 18])
def test_decoding_has_a_line_for_each_checkpoint_and_chance(checkpoints):
    names = arm_names(checkpoints)
    figure = decoding_by_layer(analysis(names, layers=("sum", "norm", *map(str, range(13))))["decoding"], names, "add")
    assert {*names, "chance", "sum", "norm", "12", "Decoding of the position", "accuracy (0 to 1)"} <= set(read(figure))
    drawn = [list(line.get_xdata()) for line in figure.axes[0].lines if max(line.get_ydata()) == 0.9]
    assert drawn == [[0, 1], list(range(2, 15))] * checkpoints


def test_layers_are_in_order_where_a_checkpoint_has_no_sum():
    decoding = analysis(("untied", "add"))["decoding"]
    decoding = decoding[(decoding["checkpoint"] == "add") | decoding["layer"].isin(["1", "2"])]
    labels = decoding_by_layer(decoding).axes[-1].get_xticklabels()
    assert [label.get_text() for label in labels] == ["sum", "norm", "1", "2"]


def test_formats_are_named_in_a_list_or_none():
    assert figure_formats("svg,png") == ["svg", "png"]
    assert figure_formats("none") == []
    with pytest.raises(UserError, match="unknown format of figures 'svgz'; did you mean 'svg'"):
        figure_formats("svg,svgz")
