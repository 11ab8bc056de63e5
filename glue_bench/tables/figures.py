"""Figures of an experiment: its contrasts, losses, and scores by steps of pretraining."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from glue_bench.tables.board import steps_frame, title_of
from glue_bench.tables.compare import Comparison
from glue_bench.tables.drawing import (
    CYCLE,
    INK,
    PAPER,
    QUIET,
    SMALL,
    WIDE,
    arm_styles,
    counted,
    drawn,
    fitted,
    legend_below,
    panels,
    paper_style,
)
from glue_bench.tables.table import decimals_of

BAND, FEW = 0.18, 8  # the opacity of the band around a line; with more arms bands hide each other and are left out
UNPLANNED = "*"
VERDICTS = {
    "better": ("better", "^", CYCLE[0], CYCLE[0]),
    "worse": ("worse", "v", CYCLE[1], CYCLE[1]),
    "": ("not told apart", "o", INK, PAPER),
    "none": ("no interval", "x", QUIET, QUIET),
}
"""How the contrasts of a verdict are drawn: its name in the legend, marker, colour and the marker's face."""


def forest_rows(comparison: Comparison, column: str) -> pd.DataFrame:
    """The contrasts of a column: planned, difference, low, high, verdict, and `seeds`, the difference in each seed.

    The planned ones come first, as the protocol has them, then the others, the best one on top.
    """
    frame = comparison.contrasts[comparison.contrasts["column"] == column]
    frame = frame.assign(planned=frame["kind"] == "declared")
    rest = frame[~frame["planned"]].sort_values("difference", ascending="loss" in column, kind="stable")
    rows = pd.concat([frame[frame["planned"]], rest]).drop_duplicates(["arm", "reference"])
    estimates = [one for each in comparison.assessed for one in each.estimates if one.column == column]
    seeds = list[Any]()
    for pair in zip(rows["arm"], rows["reference"], strict=True):
        seeds.append(next((one.differences(*pair) for one in estimates if {*pair} <= {*one.arms}), []))
    return rows.assign(seeds=seeds).set_index(["arm", "reference"])


@paper_style()
def forest(comparison: Comparison, columns: Sequence[str]) -> Figure:
    """Contrasts with their intervals and a dot for each seed, a panel for each column; of one the differences, too.

    Rows are in the order of the primary column, or of the first one while that has none, with UNPLANNED behind names,
    and a little room above those that were not planned. A line is the interval; its marker says the verdict.
    """
    found = (forest_rows(comparison, column) for column in (comparison.primary, *columns))
    first, alone = next(rows for rows in found if len(rows)), len(columns) == 1
    unplanned = ~first["planned"].to_numpy(bool) & bool(first["planned"].any())
    places = np.arange(len(first)) + 0.5 * unplanned
    pairs = [f"{fitted(arm, 18)} - {fitted(reference, 14)}" for arm, reference in first.index]
    names = [name + UNPLANNED * star for name, star in zip(pairs, unplanned.tolist(), strict=True)]
    height = 0.62 + 0.14 * max(len(first), 2) if alone else 0.64 + 0.105 * len(first)
    figure, grid = panels(len(columns), height, 4, sharey=True)
    kinds = set[str]()
    for axes, column in zip(grid, columns, strict=True):
        rows = forest_rows(comparison, column).reindex(first.index).assign(place=places)
        rows["verdict"] = rows["verdict"].where(rows["low"].notna(), "none")
        axes.axvline(0, color=INK, linewidth=0.6, linestyle=(0, (1, 2)))
        for verdict, mine in rows.dropna(subset="difference").groupby("verdict"):
            _, marker, colour, face = VERDICTS[str(verdict)]
            seeds = np.repeat(mine["place"] + 0.33, mine["seeds"].map(len))
            axes.hlines(mine["place"], mine["low"], mine["high"], color=colour)
            axes.plot(np.concatenate(mine["seeds"].to_list()), seeds, ".", color=colour, markersize=2)
            axes.plot(mine["difference"], mine["place"], marker, color=colour, markerfacecolor=face, markersize=3)
            kinds.add(str(verdict))
        axes.set_yticks(places, names)
        axes.set_ylim(places.max() + 0.7, -0.6)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set(title=comparison.board.title_of(column), xlabel="nats" if "loss" in column else "points")
        for place, difference in zip(places, rows["difference"], strict=True) if alone else ():
            text = "not run" if np.isnan(difference) else f"{difference:+z.{decimals_of(column)}f}"
            axes.annotate(text, (1.02, place), xycoords=("axes fraction", "data"), va="center", size=SMALL)
    if alone:
        unit = "nats; left of 0 the first is better" if "loss" in columns[0] else "points"
        grid[0].set(title=f"Contrasts: {comparison.board.title_of(columns[0])}", xlabel=unit)
    _forest_legend(figure, kinds, f"{UNPLANNED} not planned" if unplanned.any() else "")
    return figure


def _forest_legend(figure: Figure, kinds: set[str], unplanned: str) -> None:
    handles = [
        Line2D([], [], marker=marker, color=colour, markerfacecolor=face, linestyle="none", label=label)
        for verdict, (label, marker, colour, face) in VERDICTS.items()
        if verdict in kinds
    ]
    handles.append(Line2D([], [], color=INK, label="95% interval"))
    handles.append(Line2D([], [], color=INK, marker=".", markersize=2, linestyle="none", label="a seed"))
    legend_below(figure, [*handles, Line2D([], [], linestyle="none", label=unplanned)][: None if unplanned else -1])


@paper_style()
def losses(comparison: Comparison) -> Figure:
    """The validation loss against the tokens seen, and beside it the gap to the reference in the same seed.

    The training loss stands in where none was measured. A line is the mean over seeds, its band goes from the lowest to
    the highest seed. The legend begins with the lowest last loss.
    """
    frame, reference = comparison.board.results.losses, reference_of(comparison)
    name = "validation_loss" if frame["validation_loss"].notna().any() else "train_loss"
    wide = frame.pivot_table(name, "step", ["arm", "pretraining_seed"], sort=False)
    tokens, styles = frame.groupby("step")["tokens"].mean(), arm_styles(comparison.board.arms, reference)
    arms = [str(arm) for arm in wide.ffill().iloc[-1].groupby(level="arm").mean().sort_values().index]
    figure, grid = panels(2 if reference in wide else 1, 2.0)
    figure.set_figwidth(WIDE)
    for axes, less in zip(grid, ("", reference), strict=False):
        for arm in arms:
            curves = pd.DataFrame(wide[arm] - wide[less] if less else wide[arm]).dropna(how="all")
            x, look = tokens[curves.index], styles[arm] | ({"marker": ""} if len(curves) > FEW else {})
            axes.plot(x, curves.mean(axis=1), label=arm, **look)
            if len(arms) <= FEW:
                low, high = curves.min(axis=1), curves.max(axis=1)
                axes.fill_between(x, low, high, color=look["color"], alpha=BAND, linewidth=0)
        axes.set(xlabel="tokens seen", xlim=(0, None), ylabel="nats; below 0 is better" if less else "nats")
        axes.set_title(f"Gap to {fitted(less)}" if less else title_of(name))
        counted(axes)
    legend_below(figure)
    return figure


@paper_style()
def loss_by_parameters(comparison: Comparison) -> Figure:
    """The last validation loss of each arm against the parameters of its encoder; a dot is a seed."""
    results, styles = comparison.board.results, arm_styles(comparison.board.arms, reference_of(comparison))
    runs = results.pretrainings[~results.pretrainings["is_search"]].dropna(subset="validation_loss")
    by_arm, sizes = runs.groupby("arm")["validation_loss"], results.arms["parameters"].to_dict()
    figure, (axes,) = panels(1, 2.0)
    axes.set(title="Val. loss by parameters", xlabel="parameters of the encoder", ylabel="nats, lower is better")
    for arm, mean in by_arm.mean().sort_values().items():
        mine, look = by_arm.get_group(arm), styles[str(arm)]
        axes.plot([sizes[arm]] * len(mine), mine, ".", color=look["color"], markersize=2)
        axes.plot(sizes[arm], mean, label=arm, **look | {"linestyle": "none"})
    counted(axes)
    legend_below(figure)
    return figure


@paper_style()
def scores_by_steps(comparison: Comparison, columns: Sequence[str]) -> Figure:
    """Means over seeds of each arm against the steps of pretraining before fine-tuning, a panel for each column."""
    frame, styles = steps_frame(comparison.board), arm_styles(comparison.board.arms, reference_of(comparison))
    figure, grid = panels(len(columns), 1.5)
    for axes, column in zip(grid, columns, strict=True):
        for arm, mine in frame.groupby("arm", sort=False):
            axes.plot(mine["steps"], mine[column], label=arm, **styles[str(arm)])
        axes.set(title=comparison.board.title_of(column), xlabel="steps of pretraining", ylabel="score (0 to 100)")
        counted(axes)
    legend_below(figure)
    return figure


def reference_of(comparison: Comparison) -> str:
    """The arm that the others are compared with; of several the first, "" where nothing is compared."""
    return next((one.reference for one in comparison.assessed), "")


def result_figures(comparison: Comparison) -> dict[str, bytes]:
    """The pictures that stand beside the tables of committed results, by the names of their files."""
    figures = {"contrasts.svg": forest(comparison, [comparison.primary])}
    if len(comparison.board.results.losses):
        figures["loss.svg"] = losses(comparison)
    return {name: drawn(figure, "svg") for name, figure in figures.items()}
