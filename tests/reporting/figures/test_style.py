"""The colours: contrast with the page, apart in grey and for colour-blind readers; and sizes of text."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from glue_bench.reporting.figures.style import (
    CYCLE,
    DARK,
    LIGHT,
    SETTINGS,
    SMALL,
    arm_styles,
    fitted,
    legend_below,
    new_figure,
    page_css,
    paper_style,
)

SERIES = ("ink", "1", "2", "3", "4", "5", "6")
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)
BLIND = {  # Machado, Oliveira & Fernandes 2009, severity 1, on linear light
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    "none": np.eye(3),
}  # fmt: skip


def linear(colour):
    value = np.array(to_rgb(colour))
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return float(TO_XYZ[1] @ linear(colour))


def contrast(one, other):
    """WCAG 2.1, contrast ratio."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def lab(colour, kind="none"):
    """CIELAB of a colour as a reader of this kind of colour blindness sees it."""
    seen = np.clip(np.array(BLIND[kind]) @ linear(colour), 0, 1)
    xyz = (TO_XYZ @ seen) / (TO_XYZ @ np.ones(3))
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_contrast_is_that_of_the_standard():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
class TestColours:
    def test_lines_and_text_stand_out_from_the_page(self, colours):
        assert min(contrast(colours[name], colours["paper"]) for name in SERIES) >= 3.0
        assert min(contrast(colours[name], colours["paper"]) for name in ("ink", "quiet")) >= 4.5

    def test_series_differ_in_grey(self, colours):
        lightness = sorted(lab(colours[name])[0] for name in SERIES)
        assert np.diff(lightness).min() >= 5

    @pytest.mark.parametrize("kind", BLIND)
    def test_series_differ_for_every_reader(self, colours, kind):
        distances = [np.linalg.norm(lab(colours[a], kind) - lab(colours[b], kind)) for a, b in combinations(SERIES, 2)]
        assert min(distances) >= 18


def test_dark_colours_have_the_order_of_the_light_ones():
    numbers = SERIES[1:]
    light, dark = (sorted(numbers, key=lambda name: luminance(colours[name])) for colours in (LIGHT, DARK))
    assert light[-1] == dark[-1]
    assert LIGHT.keys() == DARK.keys()


def test_pictures_become_lighter_evenly_for_every_reader():
    steps = colormaps[SETTINGS["image.cmap"]](np.linspace(0, 1, 33))[:, :3]
    for kind in BLIND:
        lightness = np.diff([lab(tuple(colour), kind)[0] for colour in steps])
        assert lightness.min() > 0.5


def test_no_text_is_smaller_than_small():
    sizes = [value for name, value in SETTINGS.items() if name.endswith("size") and ("label" in name or "font" in name)]
    assert min(sizes) >= SMALL >= 6


def test_eighteen_arms_look_different_and_the_reference_is_ink():
    styles = arm_styles([f"arm{i}" for i in range(18)], "arm3")
    assert len({(style["color"], style["linestyle"]) for style in styles.values()}) == 18
    assert len({(style["color"], style["marker"]) for style in styles.values()}) == 18
    assert styles["arm3"]["color"] == LIGHT["ink"]
    assert CYCLE[0] == styles["arm0"]["color"]


def test_a_long_name_keeps_both_ends():
    assert fitted("concat-projection") == "concat-projection"
    assert fitted("concat-projection-with-rotary-2", 12) == "concat…ary-2"


def test_an_arm_looks_the_same_whatever_the_order_of_the_reference():
    assert arm_styles(["a", "b", "c"], "b") == arm_styles(["b", "a", "c"], "b")


def test_the_page_sets_every_colour_twice_and_paper_is_light():
    css = page_css()
    assert all(css.count(f"--fig-{name}:") == 2 for name in LIGHT)
    assert css.index("@media screen") > css.index(LIGHT["1"])


@pytest.mark.parametrize("labels", [["add"], [f"concat-split-{i}" for i in range(18)], ["x" * 70, "y"]])
def test_a_legend_stays_inside_its_figure(labels):
    with paper_style():
        figure = new_figure(height=4)
        lines = figure.add_subplot().plot(np.eye(len(labels)))
        legend_below(figure, lines, labels)
        figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
    assert box.x0 >= -1
    assert box.x1 <= figure.bbox.x1 + 1
