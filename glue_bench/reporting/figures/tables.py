"""What is in the tables of words and positions: do they share directions, and what have positions learnt?

The frames are those of `glue-bench analyse`. Each figure has a panel for each checkpoint.
"""

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from glue_bench.reporting.figures.heat import heat_panel, scale_bar
from glue_bench.reporting.figures.style import (
    CYCLE,
    INK,
    QUIET,
    legend_below,
    panel_grid,
    panel_name,
    paper_style,
)

HEIGHT = 1.9
LEAST_SHARE = 1e-6
"""Directions with a smaller share of the variance than this are not worth room on the axis."""


@paper_style()
def position_cosines(cosines: pd.DataFrame) -> Figure:
    """How alike the rows of a position table are: cosines of centred rows, from -1 to 1.

    `cosines` is the frame positions_cosine: checkpoint, i, j (positions), cosine.
    """
    figure, grid = panel_grid(cosines["checkpoint"].nunique(), 2.2)
    figure.set_figheight(figure.get_figheight() + (1.2 if len(grid) == 1 else 0.4))
    for axes, mine in _panels(grid, cosines):
        heat_panel(axes, mine, "cosine", Normalize(-1, 1))
        axes.set(xlabel="position", ylabel="position")
    scale_bar(figure, grid, "cosine of two positions")
    return figure


@paper_style()
def share_curves(curve: pd.DataFrame) -> Figure:
    """How much of the positions' variance lies in the m leading directions of the words, for each m.

    `curve` is the frame subspace_curve: checkpoint, m (1 to the width d), share (0 to 1), low and high: the 95% band of
    200 random rotations. A line in the band shares no more directions than chance does, one above it shares more.
    """
    figure, grid = panel_grid(curve["checkpoint"].nunique(), HEIGHT)
    for axes, mine in _panels(grid, curve):
        band = axes.fill_between(mine["m"], mine["low"], mine["high"], color=QUIET, alpha=0.35, linewidth=0)
        (line,) = axes.plot(mine["m"], mine["share"], color=CYCLE[0])
        axes.set(xlabel="leading word directions", ylim=(-0.02, 1.02), xlim=(0, None))
    grid[0].set_ylabel("share of positions' variance")
    legend_below(figure, [line, band], ["positions", "random rotations, 95%"])
    return figure


@paper_style()
def spectra(spectrum: pd.DataFrame) -> Figure:
    """The share of its table's variance that each principal direction holds, from the largest on, for both tables.

    `spectrum` is the frame of that name: checkpoint, table (words, positions), index (from 1), variance (a table's sum
    to 1). Shares under LEAST_SHARE are below the axis.
    """
    figure, grid = panel_grid(spectrum["checkpoint"].nunique(), HEIGHT)
    for axes, mine in _panels(grid, spectrum):
        both = [mine[mine["table"] == name] for name in ("words", "positions")]
        lines = _two_lines(axes, both, "index", ["variance", "variance"])
        axes.set(xlabel="principal direction", yscale="log", ylim=(LEAST_SHARE, 1), xlim=(0, None))
        axes.yaxis.set_major_formatter("{x:g}")
    grid[0].set_ylabel("share of the variance")
    legend_below(figure, lines, ["words", "positions"])
    return figure


@paper_style()
def dimension_deviations(dimensions: pd.DataFrame) -> Figure:
    """How much each dimension of the tables moves: the standard deviation over words, and over positions.

    `dimensions` is the frame of that name: checkpoint, dimension (from 0, in the table's order), sd_words and
    sd_positions, in the units of the embeddings.
    """
    figure, grid = panel_grid(dimensions["checkpoint"].nunique(), HEIGHT)
    for axes, mine in _panels(grid, dimensions):
        lines = _two_lines(axes, [mine, mine], "dimension", ["sd_words", "sd_positions"])
        axes.set(xlabel="dimension", ylim=(0, None), xlim=(0, None))
    grid[0].set_ylabel("standard deviation")
    legend_below(figure, lines, ["over words", "over positions"])
    return figure


def _panels(grid: list[Axes], frame: pd.DataFrame) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """The panel of each checkpoint with its rows; a title tells several of them apart."""
    for axes, (checkpoint, mine) in zip(grid, frame.groupby("checkpoint", sort=False), strict=True):
        axes.set_title(panel_name(checkpoint, len(grid)))
        yield axes, mine


def _two_lines(axes: Axes, frames: list[pd.DataFrame], x: str, names: list[str]) -> list[object]:
    """Words in colour and thin, positions in ink above them."""
    words, positions = frames
    return [
        *axes.plot(words[x], words[names[0]], color=CYCLE[3], linewidth=0.7),
        *axes.plot(positions[x], positions[names[1]], color=INK, linewidth=0.9),
    ]
