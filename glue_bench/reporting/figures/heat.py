"""Pictures of numbers over pairs of positions, on one scale of colours for all panels of a figure."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def even_scale(values: pd.Series, signed: bool) -> Normalize:
    """From 0 to the largest value; of signed ones as far below 0 as above, so that the middle of the colours is 0."""
    largest = float(np.nanmax(values.abs(), initial=0.0)) or 1.0
    return Normalize(-largest if signed else 0.0, largest)


def heat_panel(axes: Axes, cells: pd.DataFrame, value: str, scale: Normalize) -> None:
    """Draw `value` of `cells` over rows i, which go down, and columns j: the positions of each cell's first token."""
    matrix = cells.pivot(index="i", columns="j", values=value)
    bottom, right = map(_end, (matrix.index, matrix.columns))
    extent = (0, right, bottom, 0)
    axes.imshow(matrix.to_numpy(float), norm=scale, extent=extent, aspect="auto")
    axes.set_box_aspect(1)
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def heat_stack(axes: Axes, cells: pd.DataFrame, value: str, scale: Normalize) -> None:
    """As `heat_panel` for each `head` of the cells, one below the other in one picture.

    Axes for each of them, fifty or more, would take seconds to draw.
    """
    squares = {head: mine.pivot(index="i", columns="j", values=value) for head, mine in cells.groupby("head")}
    first = next(iter(squares.values()))
    rows, right = len(first) + 1, _end(first.columns)
    stacked = np.vstack([np.pad(one, ((0, 1), (0, 0)), constant_values=np.nan) for one in squares.values()])[:-1]
    token = right / first.shape[1]
    axes.imshow(stacked, norm=scale, extent=(0, right, len(stacked) * token, 0))
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.set_yticks([(rows * place + len(first) / 2) * token for place in range(len(squares))], list(map(str, squares)))


def scale_bar(figure: Figure, panels: Sequence[Axes], label: str) -> None:
    """The scale of the panels, which they share, below them."""
    width, height = figure.get_size_inches()
    bar = figure.colorbar(
        panels[0].images[0], ax=list(panels), label=label, location="bottom", aspect=9 * width, pad=0.1 / height,
        format=lambda x, _: f"{x:g}".replace("-", "\N{MINUS SIGN}"),
    )  # fmt: skip
    bar.outline.set_linewidth(0.4)
    if bar.solids is not None:
        bar.solids.set_rasterized(True)  # 256 little paths otherwise


def _end(first: pd.Index) -> float:
    """Where the last of evenly wide cells ends."""
    return float(2 * first[-1] - first[-2]) if len(first) > 1 else 1.0
