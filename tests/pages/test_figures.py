"""Figures: how they look, their files, and the places of their marks."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from helpers.read_pages import check_texts, contrast, linear

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
from glue_bench.pages.figures import arm_forest_rows, draw_forest, result_figures

STUDY = Path(__file__).parents[2] / "results" / "study"
SERIES = (INK, *CYCLE)
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.072175],
        [0.0193339, 0.119192, 0.9503041],
    ]
)
PROTANOPIA = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
DEUTERANOPIA = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
]
TRITANOPIA = [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
]
READERS = {
    "protanopia": np.array(PROTANOPIA),
    "deuteranopia": np.array(DEUTERANOPIA),
    "tritanopia": np.array(TRITANOPIA),
    "none": np.eye(3),
}
"""The matrices of colour blindness on linear light (Machado, Oliveira & Fernandes 2009)."""
LIGHT = {colour: colour for colour in ON_DARK}
MIN_CONTRAST_OF_LINES = 3.0
MIN_CONTRAST_OF_TEXT = 4.5
"""The contrasts that WCAG 2.1 asks for (1.4.11 and 1.4.3, level AA)."""
MIN_DIFFERENCE = 18
MIN_DIFFERENCE_IN_GREY = 5
"""Distances in CIELAB, in which about 2 is just seen."""
on_both_pages = pytest.mark.parametrize("colours", [LIGHT, ON_DARK], ids=["light", "dark"])


def lab(colour, reader="none"):
    """Return a colour in CIELAB as a reader with this kind of colour blindness sees it."""
    light = READERS[reader] @ linear(colour)
    perceived = np.clip(light, 0, 1)
    white = TO_XYZ @ np.ones(3)
    xyz = TO_XYZ @ perceived / white
    near_black = (24389 / 27 * xyz + 16) / 116
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), near_black)
    lightness = 116 * y - 16
    return np.array([lightness, 500 * (x - y), 200 * (y - z)])


@on_both_pages
def test_lines_and_text_stand_out_from_the_page(colours):
    for name in SERIES:
        assert contrast(colours[name], colours[PAPER]) >= MIN_CONTRAST_OF_LINES
    for name in (INK, MUTED_COLOUR):
        assert contrast(colours[name], colours[PAPER]) >= MIN_CONTRAST_OF_TEXT


@on_both_pages
def test_series_stand_out_from_each_other_in_grey(colours):
    lightness = sorted(lab(colours[name])[0] for name in SERIES)
    assert np.diff(lightness).min() >= MIN_DIFFERENCE_IN_GREY


@on_both_pages
@pytest.mark.parametrize("reader", READERS)
def test_series_stand_out_from_each_other_for_every_reader(colours, reader):
    for first, second in combinations(SERIES, 2):
        difference = lab(colours[first], reader) - lab(colours[second], reader)
        assert np.linalg.norm(difference) >= MIN_DIFFERENCE


@pytest.mark.parametrize("mark", ["linestyle", "marker"])
def test_eighteen_arms_look_different(mark):
    styles = arm_styles([f"arm{number}" for number in range(18)], "arm3")
    looks = {(style["color"], style[mark]) for style in styles.values()}
    assert len(looks) == 18


def test_the_reference_is_ink():
    styles = arm_styles(["arm0", "arm3"], "arm3")
    assert styles["arm3"]["color"] == INK
    assert styles["arm0"]["color"] == CYCLE[0]


@pytest.mark.parametrize(
    "labels", [["add"], [f"concat-split-{i}" for i in range(18)], ["x" * 70, "y"]]
)
def test_a_legend_stays_inside_its_figure(labels):
    with paper_style():
        figure, (axes,) = panels(1, 4.0)
        for label in labels:
            axes.plot([0, 1], label=label)
        legend_below(figure)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(names) == len(labels)
    assert set(names) <= set(check_texts(figure))


@paper_style()
def example():
    figure, (axes,) = panels(1, 2.2)
    axes.set(title="Loss of one", xlabel="steps < 10", ylabel="loss")
    axes.plot([1, 2, 3], [1.0, 0.0001, 1.0], color=CYCLE[0], marker="o", markerfacecolor=PAPER)
    return figure


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files of the example, by their formats."""
    folder = tmp_path_factory.mktemp("figures") / "new"
    save_figure(example(), folder / "loss.first")
    contents = {}
    for path in folder.iterdir():
        contents[path.suffix[1:]] = path.read_bytes()
    return contents


def test_a_figure_is_saved_in_every_format(saved):
    assert set(saved) == set(NO_DATES)
    assert saved["svg"].startswith(b"<?xml")
    assert saved["pdf"].startswith(b"%PDF")
    assert saved["png"].startswith(b"\x89PNG")


@pytest.mark.parametrize("format", NO_DATES)
def test_a_figure_has_the_same_bytes_whatever_the_users_settings_are(saved, format):
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30}):
        assert figure_bytes(example(), format) == saved[format]


def test_the_files_of_a_figure_have_no_dates_and_no_fonts_that_printers_refuse(saved):
    assert b"Date" not in saved["svg"] + saved["pdf"]
    assert b"/Type3" not in saved["pdf"]


def test_a_picture_has_300_pixels_an_inch(saved):
    width = int.from_bytes(saved["png"][16:20], "big")
    expected = 300 * example().get_figwidth()
    assert width == expected


def element_styles(root) -> str:
    """Return the styles of all elements of an SVG in one text."""
    return "".join(element.get("style", "") for element in root.iter())


def test_an_svg_has_no_ground():
    root = ElementTree.fromstring(figure_bytes(example(), "svg"))
    fills = set()
    for element in root.iter():
        if element.get("id", "").startswith("patch"):
            for path in element:
                fills.add(re.search("fill: ([^;]+)", path.get("style", ""))[1])
    assert fills == {"none"}


def test_each_colour_of_an_svg_has_another_one_on_dark_pages():
    text = figure_bytes(example(), "svg").decode()
    styles = element_styles(ElementTree.fromstring(text))
    colours = set(re.findall(r"(?:fill|stroke): (#\w{6})", styles))
    assert {INK, PAPER, CYCLE[0]} <= colours <= set(ON_DARK) | {"#000000"}
    start = text.index("prefers-color-scheme:dark")
    rules = text[start : text.index("</style>")]
    for colour in colours & set(ON_DARK):
        assert f'[style*="fill: {colour}"]' in rules
        assert f'[style*="stroke: {colour}"]' in rules


@pytest.mark.exact
def test_the_pictures_beside_the_results_are_those_that_the_results_give():
    stored = {path.name: path.read_bytes() for path in STUDY.glob("*.svg")}
    assert result_figures(open_comparison(STUDY)) == stored


COLUMNS = ["average", "cola", "swap_1"]
MARKERS_OF_VERDICTS = "^vox"


@pytest.fixture(scope="module")
def study():
    return open_comparison(STUDY)


@pytest.fixture(scope="module")
def forest(study):
    return draw_forest(study, COLUMNS)


def points_of(axes, markers):
    """Return the points (row, value) that are drawn with one of the markers."""
    points = []
    for line in axes.lines:
        if str(line.get_marker()) in markers:
            points += zip(line.get_ydata(), line.get_xdata(), strict=True)
    return points


def segments_of(axes):
    """Return the intervals (low, row, high, row) that are drawn."""
    segments = set()
    for lines in axes.collections:
        for segment in lines.get_segments():
            segments.add(tuple(segment.ravel()))
    return segments


def rows_of_panel(study, column):
    """Return the rows of a panel that have a difference, each at its place.

    The rows of contrasts that were not planned come last, half a row further down.
    """
    is_planned = arm_forest_rows(study, "validation_loss")["planned"].astype(bool)
    places = np.arange(len(is_planned)) + np.where(is_planned, 0.0, 0.5)
    rows = arm_forest_rows(study, column).reindex(is_planned.index).assign(place=places)
    return rows.dropna(subset="difference")


def test_the_panels_of_a_forest_have_the_rows_of_the_primary_column(study, forest):
    labels = [label.get_text() for label in forest.axes[0].get_yticklabels()]
    planned = arm_forest_rows(study, "validation_loss")["planned"]
    expected = []
    for (arm, reference), is_planned in planned.items():
        star = "" if is_planned else "*"
        expected.append(f"{arm} - {reference}{star}")
    assert labels == expected
    assert "* not planned" in check_texts(forest)


@pytest.mark.parametrize("column", COLUMNS)
def test_the_differences_of_seeds_have_the_difference_as_their_mean(study, column):
    rows = rows_of_panel(study, column)
    assert rows["seeds"].map(len).tolist() == rows["n_arm"].tolist()
    means = rows["seeds"].map(np.mean).to_numpy()
    assert means == pytest.approx(rows["difference"].to_numpy(), abs=1e-9)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_panel_of_a_forest_draws_differences_intervals_and_a_dot_for_each_seed(
    study, forest, column
):
    axes = forest.axes[COLUMNS.index(column)]
    rows = rows_of_panel(study, column)
    differences = zip(rows["place"], rows["difference"], strict=True)
    assert set(points_of(axes, MARKERS_OF_VERDICTS)) == set(differences)
    assert len(points_of(axes, ".")) == rows["n_arm"].sum()
    intervals = zip(rows["low"], rows["place"], rows["high"], rows["place"], strict=True)
    assert set(intervals) <= segments_of(axes)
