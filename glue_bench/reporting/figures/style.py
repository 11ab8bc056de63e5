"""How figures look: at the width of a paper's column, in print, in grey, and on light and dark pages.

Every figure is drawn in the light colours. On a page each colour of LIGHT is a CSS variable (`variable`), for which
`page_css` sets the light and the dark value. The colours differ in lightness, so that they stay apart in grey, and
their hues were chosen by a search so that they stay apart with each kind of colour blindness (Machado et al. 2009); the
tests compute both.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glue_bench.tables.numbers import short

COLUMN, WIDE = 3.25, 6.75
"""Inches: the width of one column of a paper, and of two with the space between them."""
DPI = 300
INK, QUIET, LINE, PAPER = "#1b1b1b", "#595959", "#d0d0d0", "#ffffff"
CYCLE = ("#4c4ed6", "#bb730f", "#94105f", "#299bdf", "#5b2d05", "#dd1d4b")
"""Colours of series after INK, which is that of the reference. In this order the first few differ the most."""
LIGHT = {
    **{"ink": INK, "quiet": QUIET, "line": LINE, "paper": PAPER},
    **{f"{number}": colour for number, colour in enumerate(CYCLE, start=1)},
}
DARK = {
    **{"ink": "#f2f2f2", "quiet": "#a8a8a8", "line": "#4a4a4a", "paper": "#161616"},
    **{"1": "#3d9df2", "2": "#edba2e", "3": "#e73f9b", "4": "#bcdafa", "5": "#cf2a37", "6": "#f78d92"},
}
"""The same names on a dark page. Colours that are darker than others in LIGHT are so here, too."""
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
BAND = 0.18
"""Opacity of the band around a line."""
TEXT, SMALL = 7.0, 6.0
"""Sizes of text in points: of titles and labels, and of ticks and legends. Nothing is smaller."""
LEGEND_ROW = 0.115
"""Inches that a row of a legend takes."""
SETTINGS: dict[str, Any] = {
    **{"font.family": "DejaVu Sans", "font.size": TEXT, "text.color": INK, "savefig.dpi": DPI, "figure.dpi": DPI},
    **{
        "axes.titlesize": TEXT,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 4,
        "axes.titley": 1.0,
    },
    **{"axes.labelsize": TEXT, "axes.labelcolor": INK, "axes.edgecolor": QUIET, "axes.linewidth": 0.6},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.labelpad": 3},
    **{"axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.4, "axes.formatter.useoffset": False},
    **{"xtick.labelsize": SMALL, "ytick.labelsize": SMALL, "xtick.color": QUIET, "ytick.color": QUIET},
    **{"xtick.labelcolor": INK, "ytick.labelcolor": INK, "xtick.major.size": 2.5, "ytick.major.size": 2.5},
    **{"xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.size": 1.5, "ytick.minor.size": 1.5},
    **{"xtick.minor.width": 0.4, "ytick.minor.width": 0.4, "legend.fontsize": SMALL, "legend.frameon": False},
    **{"legend.handlelength": 2.2, "legend.labelspacing": 0.3, "legend.columnspacing": 1.2, "legend.borderpad": 0.1},
    **{"lines.linewidth": 1.1, "lines.markersize": 3.5, "figure.facecolor": PAPER},
    **{"svg.hashsalt": "glue-bench", "svg.fonttype": "none", "pdf.fonttype": 42, "text.parse_math": False},
    **{"axes.facecolor": "none", "image.interpolation": "none"},
    # Dark blue, grey, yellow: its lightness rises evenly, so that grey print keeps the order. Signed numbers have the
    # grey of its middle at 0: a map that is dark at both ends loses the sign in grey. Source: Nunez, Anderton & Renslow
    # 2018, "Optimizing colormaps with consideration for color vision deficiency".
    "image.cmap": "cividis",
}


@contextmanager
def paper_style() -> Iterator[None]:
    """The settings under which figures are made and drawn, whatever the user's own are; also a decorator."""
    with style.context(["default", SETTINGS]):
        yield


def new_figure(width: float = COLUMN, height: float = 2.2) -> Figure:
    """An empty figure of so many inches whose parts keep clear of each other."""
    return Figure(figsize=(width, height), layout="constrained")


@paper_style()
def laid_out(figure: Figure) -> Figure:
    """The figure with its parts at their places, which they keep: or every format of it would be laid out again."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    return figure


def panel_grid(count: int, height: float, abreast: int = 3, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of `height` inches, at most `abreast` side by side; `options` are of `subplots`.

    Up to two side by side fit a paper's column, more take its whole width.
    """
    columns = min(count, abreast)
    figure = new_figure(COLUMN if columns < 3 else WIDE, ceil(count / columns) * height)
    grid = figure.subplots(ceil(count / columns), columns, squeeze=False, **options).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count])


def panel_name(name: object, panels: int) -> str:
    """A panel's title, cut to the width that it has where there are so many of `panel_grid`."""
    return fitted(str(name), 14 if panels == 2 else 24)


def arm_styles(arms: Sequence[str], reference: str | None = None) -> dict[str, dict[str, Any]]:
    """Colour, dashes and marker of each arm, by their order: the same for the same `arms` in every figure.

    The reference is drawn in ink. Of forty arms no two are alike.
    """
    others = [arm for arm in dict.fromkeys(arms) if arm != reference]
    styles = {
        arm: {
            "color": CYCLE[place % len(CYCLE)],
            "linestyle": DASHES[place // len(CYCLE) % len(DASHES)],
            "marker": MARKERS[(place + 1) % len(MARKERS)],
        }
        for place, arm in enumerate(others)
    }
    if reference is not None:
        styles[reference] = {"color": INK, "linestyle": "solid", "marker": MARKERS[0]}
    return styles


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend under the axes, in as many columns as the longest label leaves room for; read column by column.

    The figure grows by the height of the legend.
    """
    if not labels:
        return
    labels = [fitted(label, 40) for label in labels]
    inches = 0.36 + max(map(len, labels)) * SMALL * 0.56 / 72
    columns = max(1, min(len(labels), int((figure.get_figwidth() - 0.1) / inches)))
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def fitted(name: str, length: int = 24) -> str:
    """A name of at most so many characters: of a longer one both ends, as names of arms often differ in the last."""
    return name if len(name) <= length else f"{name[: length // 2]}…{name[length // 2 + 1 - length :]}"


def empty(axes: Axes, why: str) -> None:
    """Axes that have nothing to show say why."""
    axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color=QUIET, wrap=True)


def count_text(value: float, _: object = None) -> str:
    """A large number on an axis, whose ticks lie close to each other: 22.75M, 131B."""
    return short(value, 6)


def variable(name: str) -> str:
    """A colour of LIGHT on a page, with itself where the page sets no `page_css`."""
    return f"var(--fig-{name},{LIGHT[name]})"


def page_css() -> str:
    """The rules that a page with inline figures needs once: their colours, light and dark; paper is always light."""
    light, dark = ("".join(f"--fig-{name}:{value};" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
