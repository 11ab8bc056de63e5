"""Figures: how all of them look, their files, and that each mark stands where the numbers say."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from helpers.read_pages import contrast, linear, texts_of

from glue_bench.board.compare import open_comparison
from glue_bench.pages.figure_files import NO_DATES, figure_bytes, save_figure
from glue_bench.pages.figure_style import (
    CYCLE,
    INK,
    MUTED_COLOUR,
    ON_DARK,
    PAPER,
    arm_styles,
    legend_below,
    panels,
    paper_style,
)
from glue_bench.pages.figures import draw_forest, forest_rows, result_figures

STUDY = Path(__file__).parents[2] / "results" / "study"
SERIES = (INK, *CYCLE)
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.072175],
        [0.0193339, 0.119192, 0.9503041],
    ]
)
BLIND = {  # Machado, Oliveira & Fernandes 2009, severity 1, on linear light
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    "none": np.eye(3),
}  # fmt: skip


def lab(colour, kind="none"):
    """CIELAB of a colour as a reader of this kind of colour blindness sees it."""
    perceived = np.clip(np.array(BLIND[kind]) @ linear(colour), 0, 1)
    xyz = (TO_XYZ @ perceived) / (TO_XYZ @ np.ones(3))
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(
    "colours", [dict(zip(ON_DARK, ON_DARK, strict=True)), ON_DARK], ids=["light", "dark"]
)
def test_lines_and_text_stand_out_from_the_page_and_series_from_each_other_for_every_reader_and_in_grey(
    colours,
):
    assert min(contrast(colours[name], colours[PAPER]) for name in SERIES) >= 3.0
    assert min(contrast(colours[name], colours[PAPER]) for name in (INK, MUTED_COLOUR)) >= 4.5
    assert np.diff(sorted(lab(colours[name])[0] for name in SERIES)).min() >= 5
    for kind in BLIND:
        distances = [
            np.linalg.norm(lab(colours[a], kind) - lab(colours[b], kind))
            for a, b in combinations(SERIES, 2)
        ]
        assert min(distances) >= 18


def test_eighteen_arms_look_different_and_the_reference_is_ink():
    styles = arm_styles([f"arm{i}" for i in range(18)], "arm3")
    for mark in ("linestyle", "marker"):
        assert len({(style["color"], style[mark]) for style in styles.values()}) == 18
    assert (styles["arm3"]["color"], styles["arm0"]["color"]) == (INK, CYCLE[0])


@pytest.mark.parametrize(
    "labels", [["add"], [f"concat-split-{i}" for i in range(18)], ["x" * 70, "y"]]
)
def test_a_legend_stays_inside_its_figure(labels):
    with paper_style():
        figure, (axes,) = panels(1, 4.0)
        for label in labels:
            axes.plot([0, 1], label=label)
        legend_below(figure)
    assert len([text for text in texts_of(figure) if text[0] in "acxy"]) == len(labels)


@paper_style()
def example():
    figure, (axes,) = panels(1, 2.2)
    axes.set(title="Loss of one", xlabel="steps < 10", ylabel="loss")
    axes.plot([1, 2, 3], [1.0, 0.0001, 1.0], color=CYCLE[0], marker="o", markerfacecolor=PAPER)
    return figure


def test_a_figure_has_the_same_bytes_in_every_format_whatever_the_users_settings_are(tmp_path):
    figure = example()
    save_figure(figure, tmp_path / "new" / "loss.first")
    files = {
        format: (tmp_path / "new" / f"loss.first.{format}").read_bytes() for format in NO_DATES
    }
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"loss.first.{format}" for format in NO_DATES
    }
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30}):
        assert files == {format: figure_bytes(example(), format) for format in NO_DATES}
    svg, pdf, png = files.values()
    assert [content[:4] for content in (svg, pdf, png)] == [b"<?xm", b"%PDF", b"\x89PNG"]
    assert b"Date" not in svg + pdf
    assert b"/Type3" not in pdf
    assert int.from_bytes(png[16:20], "big") == 300 * figure.get_figwidth()


def test_an_svg_has_no_ground_and_each_of_its_colours_has_another_one_on_dark_pages():
    text = figure_bytes(example(), "svg").decode()
    root = ElementTree.fromstring(text)
    grounds = [
        path
        for element in root.iter()
        if element.get("id", "").startswith("patch")
        for path in element
    ]
    assert {re.search("fill: ([^;]+)", path.get("style", ""))[1] for path in grounds} == {"none"}
    used = set(
        re.findall(
            r"(?:fill|stroke): (#\w{6})",
            "".join(element.get("style", "") for element in root.iter()),
        )
    )
    assert {INK, PAPER, CYCLE[0]} <= used <= set(ON_DARK) | {"#000000"}
    rule = text[text.index("prefers-color-scheme:dark") : text.index("</style>")]
    assert all(
        f'[style*="{kind}: {colour}"]' in rule
        for colour in used & set(ON_DARK)
        for kind in ("fill", "stroke")
    )


@pytest.mark.exact
def test_the_pictures_beside_the_results_are_those_that_the_results_give():
    assert result_figures(open_comparison(STUDY)) == {
        path.name: path.read_bytes() for path in STUDY.glob("*.svg")
    }


def test_the_panels_of_a_forest_have_the_rows_of_the_primary_column_and_dots_whose_mean_is_the_difference():
    study, columns = open_comparison(STUDY), ["average", "cola", "swap_1"]
    figure = draw_forest(study, columns)
    rows = forest_rows(study, "validation_loss")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"{arm} - {reference}" + "*" * (not planned)
                      for (arm, reference), planned in rows["planned"].items()]  # fmt: skip
    places = [*range(9), *(place + 0.5 for place in range(9, 16))]
    for axes, column in zip(figure.axes, columns, strict=True):
        rows_of_column = (
            forest_rows(study, column)
            .reindex(rows.index)
            .assign(place=places)
            .dropna(subset="difference")
        )
        assert rows_of_column["seeds"].map(len).tolist() == rows_of_column["n_arm"].tolist()
        assert rows_of_column["seeds"].map(np.mean).to_numpy() == pytest.approx(
            rows_of_column["difference"].to_numpy(), abs=1e-9
        )
        points, dots = ([point for line in axes.lines if str(line.get_marker()) in markers
                         for point in zip(line.get_ydata(), line.get_xdata(), strict=True)]
                        for markers in ("^vox", "."))  # fmt: skip
        assert set(points) == {
            *zip(rows_of_column["place"], rows_of_column["difference"], strict=True)
        }
        assert len(dots) == rows_of_column["n_arm"].sum()
        drawn_lines = {
            tuple(segment.ravel()) for lines in axes.collections for segment in lines.get_segments()
        }
        assert drawn_lines >= {
            *zip(
                rows_of_column["low"],
                rows_of_column["place"],
                rows_of_column["high"],
                rows_of_column["place"],
                strict=True,
            )
        }
    assert "* not planned" in texts_of(figure)
