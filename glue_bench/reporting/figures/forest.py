"""Differences from the reference with their simultaneous intervals: one panel per column of the leaderboard."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from glue_bench.reporting.figures import style
from glue_bench.reporting.findings import title_of

ROW, AROUND = 0.15, 0.62
"""Inches: the height of an arm's row, and of what stands above and below the rows."""
END = 0.16
"""Inches that are left free at the right, for half of the last number on an axis."""
ABREAST = 4
PAIR = 34
"""So many letters of the names of two arms are shown."""


@dataclass(frozen=True)
class Kind:
    """How the arms of one verdict are drawn; `label` is what the legend says."""

    label: str
    marker: str
    color: str
    face: str


KINDS = {
    "better": Kind("better", "^", style.CYCLE[0], style.CYCLE[0]),
    "worse": Kind("worse", "v", style.CYCLE[1], style.CYCLE[1]),
    "": Kind("not told apart", "o", style.INK, style.PAPER),
    "none": Kind("no interval", "x", style.QUIET, style.QUIET),
}


@style.paper_style()
def forest(contrasts: pd.DataFrame, columns: Sequence[str] | None = None, longest: int = 24) -> Figure:
    """A panel for each of `columns` (all that the frame has) and in it a row for each arm, in one order for all panels.

    `contrasts` has rows of `stats.verdicts.verdicts` with one reference: column, arm, reference, difference, low, high
    (points, of a loss nats; NaN where there is none) and verdict. Arms are in the order of the first column's
    differences, the best one on top, their names cut to `longest` letters. A line is the interval;
    its marker says the verdict in shape and colour.

    Raises:
        ValueError: the frame has several references.
    """
    (reference,) = contrasts["reference"].unique()
    columns = list(contrasts["column"].unique()) if columns is None else columns
    arms = arms_in_order(contrasts)
    figure, grid = style.panel_grid(len(columns), ROW * len(arms) + AROUND, ABREAST, sharey=True)
    kinds: set[str] = set()
    for axes, column in zip(grid, columns, strict=True):
        kinds |= _panel(axes, contrasts[contrasts["column"] == column].set_index("arm").reindex(arms))
        axes.set_yticks(range(len(arms)), [style.fitted(arm, longest) for arm in arms])
        unit = "nats, lower is better" if "loss" in column else "points"
        axes.set(title=title_of(column), xlabel=f"difference from {style.fitted(reference, 16)} ({unit})")
        if len(grid) > 1:
            axes.set_xlabel(unit)
    if len(grid) > 1:
        figure.suptitle(f"Difference from {style.fitted(reference)}", x=0.01, ha="left", fontweight="bold")
    shown = [kind for name, kind in KINDS.items() if name in kinds]
    handles = [Line2D([], [], marker=k.marker, color=k.color, markerfacecolor=k.face) for k in shown]
    if "none" in kinds:
        handles[-1].set_linestyle("none")
    style.legend_below(figure, handles, [kind.label for kind in shown])
    return figure


@style.paper_style()
def forest_of_pairs(contrasts: pd.DataFrame, column: str) -> Figure:
    """`forest` of one column for differences of any two arms, which the frame's `arm` names: the first - the second."""
    figure = forest(contrasts.assign(reference="the second"), [column], longest=PAIR)
    unit = "nats, lower is better" if "loss" in column else "points"
    figure.axes[0].set(title=f"Contrasts: {title_of(column)}", xlabel=unit)
    return figure


def forests(contrasts: pd.DataFrame, columns: Sequence[str]) -> Iterator[Figure]:
    """`forest` of each of the columns by itself, laid out once for all of them, which is half of the time of each."""
    first: Figure | None = None
    for column in columns:
        figure = forest(contrasts, [column])
        if first is None or first.get_figheight() != figure.get_figheight():
            first = style.laid_out(figure)
        place, width = first.axes[0].get_position(), figure.get_figwidth()
        figure.axes[0].set_position((place.x0, place.y0, min(place.x1, 1 - END / width) - place.x0, place.height))
        figure.set_layout_engine("none")
        yield figure


def arms_in_order(contrasts: pd.DataFrame) -> list[str]:
    """The arms of a frame of contrasts, the best of its first column first; those without a difference come last."""
    column = contrasts["column"].iloc[0]
    first = contrasts[contrasts["column"] == column].sort_values(
        "difference", ascending="loss" in column, kind="stable"
    )
    return list(dict.fromkeys([*first["arm"], *contrasts["arm"]]))


def _panel(axes: Axes, rows: pd.DataFrame) -> set[str]:
    """Draw one column; the kinds that were drawn."""
    kinds = rows["verdict"].where(rows["low"].notna(), "none").where(rows["difference"].notna()).to_numpy()
    numbers, places = rows[["difference", "low", "high"]].to_numpy(float).T, np.arange(len(rows))
    axes.axvline(0, color=style.INK, linewidth=0.8)
    for name, kind in KINDS.items():
        mine = kinds == name
        middle, low, high = numbers[:, mine]
        reach = None if name == "none" else np.array([middle - low, high - middle])
        if mine.any():
            axes.errorbar(
                middle, places[mine], xerr=reach, fmt=kind.marker, color=kind.color, markerfacecolor=kind.face
            )
    for place in places[np.isnan(numbers[0])]:
        axes.annotate(
            "not run", (0, place), (3, 0), textcoords="offset points", va="center", color=style.QUIET, size=style.SMALL
        )
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.08)
    return set(kinds) & KINDS.keys()
