"""How all figures look: sizes, colours, panels, the styles of arms, legends.

Figures are a paper's column wide and are read in grey, on light and dark pages. Colours differ in
lightness, so that they stay apart in grey, and their hues were chosen by a search so that they stay
apart with each kind of colour blindness (Machado et al. 2009); the tests compute both.
"""

from collections.abc import Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib import rc_params_from_file, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN_WIDTH = 3.25  # inches: a column of a paper
PAGE_WIDTH = 6.75  # inches: two columns with the space between them
STYLE_FILE = Path(__file__).with_name("figures.mplstyle")
STYLE: Any = rc_params_from_file(STYLE_FILE, use_default_template=False)
INK = STYLE["text.color"]
MUTED_COLOUR = STYLE["axes.edgecolor"]
GRID_COLOUR = STYLE["grid.color"]
PAPER = "#ffffff"
LEGEND_SIZE = STYLE["legend.fontsize"]
CYCLE = ("#4c4ed6", "#bb730f", "#94105f", "#299bdf", "#5b2d05", "#dd1d4b")
"""Colours of series after INK, the colour of the reference. The first few differ the most."""
ON_DARK = {
    INK: "#f2f2f2",
    MUTED_COLOUR: "#a8a8a8",
    GRID_COLOUR: "#4a4a4a",
    PAPER: "#161616",
    CYCLE[0]: "#3d9df2",
    CYCLE[1]: "#edba2e",
    CYCLE[2]: "#e73f9b",
    CYCLE[3]: "#bcdafa",
    CYCLE[4]: "#cf2a37",
    CYCLE[5]: "#f78d92",
}
"""The colour that replaces each colour on a dark page."""
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAX_LABEL = 24
MAX_LEGEND_NAME = 40

paper_style = partial(style.context, ["default", STYLE])
"""The settings under which figures are made and drawn, whatever the user's own are.

A context or a decorator.
"""


def panels(
    count: int, height: float, abreast: int = 3, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Make a figure with several panels.

    Args:
        count: The number of panels.
        height: The height of a panel in inches.
        abreast: The most panels in a row; with more than two, a row is as wide as a page.
        options: Passed to `Figure.subplots`.

    Returns:
        The figure and its axes, row by row.
    """
    columns = min(count, abreast)
    rows = ceil(count / columns)
    width = COLUMN_WIDTH if columns < 3 else PAGE_WIDTH
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count])


def arm_styles(arms: Sequence[str], reference: str = "") -> dict[str, dict[str, Any]]:
    """Give each arm a colour, dashes and a marker, by their order; the reference is in ink.

    Of forty arms no two look the same. Dashes change with each arm, so that a line shows through
    another one that lies on it.
    """
    styles: dict[str, dict[str, Any]] = {}
    styles[reference] = {"color": INK, "linestyle": "solid", "marker": MARKERS[0]}
    further_arms = [arm for arm in dict.fromkeys(arms) if arm != reference]
    for place, arm in enumerate(further_arms):
        turn, colour = divmod(place, len(CYCLE))
        styles[arm] = {
            "color": CYCLE[colour],
            "linestyle": DASHES[(turn + place) % len(DASHES)],
            "marker": MARKERS[(place + 1) % len(MARKERS)],
        }
    return styles


def legend_below(figure: Figure, handles: Sequence[Any] = ()) -> Figure:
    """Put a legend below the axes, and make the figure taller by it.

    Args:
        figure: The figure, which is changed.
        handles: What the legend explains; everything with a label in the axes if it is empty.

    Returns:
        The same figure. Each label is explained once.
    """
    explained = list(handles)
    if not explained:
        for axes in figure.axes:
            explained += axes.get_legend_handles_labels()[0]
    handle_by_label = {str(handle.get_label()): handle for handle in explained}
    labels = [truncate_name(label, MAX_LEGEND_NAME) for label in handle_by_label]
    longest = max(map(len, labels), default=0)
    inches = 0.36 + longest * LEGEND_SIZE * 0.56 / 72
    fitting = int((figure.get_figwidth() - 0.1) / inches)
    columns = max(1, min(len(labels), fitting))
    figure.set_figheight(figure.get_figheight() + 0.115 * ceil(len(labels) / columns))
    figure.legend(handle_by_label.values(), labels, loc="outside lower center", ncols=columns)
    return figure


def truncate_name(name: str, length: int = MAX_LABEL) -> str:
    """Shorten a name to both of its ends, because names of arms often differ at the end."""
    if len(name) <= length:
        return name
    start = name[: length // 2]
    end = name[length // 2 + 1 - length :]
    return f"{start}…{end}"
