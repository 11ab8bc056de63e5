"""The figures of an experiment: its contrasts and its losses.

A figure is a function that takes a `Comparison` (or frames) and returns a matplotlib `Figure`. It
is made under `paper_style`, with `panels` and `legend_below`. `pages.report_parts` puts it in a
report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame, Series

from glue_bench.board.compare import Comparison
from glue_bench.board.lag import lag_curves
from glue_bench.data.measures import MEASURES
from glue_bench.pages.figure_files import figure_bytes
from glue_bench.pages.figure_style import (
    CYCLE,
    INK,
    LEGEND_SIZE,
    MUTED_COLOUR,
    PAGE_WIDTH,
    PAPER,
    arm_styles,
    legend_below,
    panels,
    paper_style,
    truncate_name,
)
from glue_bench.pages.numbers import abbreviate_number, format_difference

BAND_OPACITY = 0.18
MANY_LINES = 8
"""More lines than this have no bands, and more points no markers."""
UNPLANNED_MARK = "*"
SMALL_LOSS = 0.05
"""A difference in nats that is too small to matter."""
VERDICT_STYLES: dict[str, dict[str, Any]] = {
    "better": {"label": "better", "marker": "^", "color": CYCLE[0]},
    "worse": {"label": "worse", "marker": "v", "color": CYCLE[1]},
    "": {"label": "not told apart", "marker": "o", "color": INK, "markerfacecolor": PAPER},
    "none": {"label": "no interval", "marker": "x", "color": MUTED_COLOUR},
}
"""How the contrasts of a verdict are drawn, and its name in the legend."""


def arm_forest_rows(comparison: Comparison, column: str) -> DataFrame:
    """Give the contrasts of a column in the order of a forest plot.

    Returns:
        A frame by arm and reference: planned, difference, low, high, verdict, and `seeds`, the
        difference in each seed. The planned contrasts come first, as the protocol has them, then
        the others, the best one on top. A planned pair is not repeated the other way round.
    """
    contrasts = comparison.contrasts[comparison.contrasts["column"] == column]
    contrasts = contrasts.assign(planned=contrasts["kind"] == "declared")
    planned = contrasts[contrasts["planned"]]
    lowest_first = MEASURES[column].lowest_is_best
    unplanned = contrasts[~contrasts["planned"]]
    unplanned = unplanned.sort_values("difference", ascending=lowest_first, kind="stable")
    rows = pd.concat([planned, unplanned])
    pairs = map(frozenset, zip(rows["arm"], rows["reference"], strict=True))
    rows = rows[~pd.Series(pairs, index=rows.index, dtype=object).duplicated()]
    seeds: list[Any] = []
    for arm, reference in zip(rows["arm"], rows["reference"], strict=True):
        seeds.append(seed_differences(comparison, column, arm, reference))
    return rows.assign(seeds=seeds).set_index(["arm", "reference"])


def seed_differences(comparison: Comparison, column: str, arm: str, reference: str) -> np.ndarray:
    """Give the difference of two arms in each seed; none if no group has intervals for both."""
    for estimate in comparison.estimates.get(column, []):
        if arm in estimate.arms and reference in estimate.arms:
            return estimate.differences(arm, reference)
    return np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class ForestPanel:
    """The contrasts of one column, as a forest shows them.

    Attributes:
        title: The title of the column.
        unit: What the differences are in.
        lowest_is_best: Whether a difference below 0 is the better one.
        decimals: How many decimals a difference has.
        rows: The contrasts by arm and reference, as `arm_forest_rows` gives them.
    """

    title: str
    unit: str
    lowest_is_best: bool
    decimals: int
    rows: DataFrame


def draw_forest(comparison: Comparison, columns: Sequence[str]) -> Figure:
    """Draw the contrasts of an experiment, a panel for each column.

    Args:
        comparison: The contrasts.
        columns: The columns to draw.

    Returns:
        The figure. Rows are in the order of the primary column, or of the first column while the
        primary one has no contrasts; those that were not planned stand apart.
    """
    first_rows = DataFrame()
    for column in (comparison.primary, *columns):
        if first_rows.empty:
            first_rows = arm_forest_rows(comparison, column)
    forest: list[ForestPanel] = []
    for column in columns:
        measure = MEASURES[column]
        forest.append(
            ForestPanel(
                title=comparison.board.titles[column],
                unit=measure.unit,
                lowest_is_best=measure.lowest_is_best,
                decimals=measure.decimals,
                rows=arm_forest_rows(comparison, column),
            )
        )
    return draw_panels(forest, first_rows)


@paper_style()
def draw_panels(forest: Sequence[ForestPanel], first_rows: DataFrame) -> Figure:
    """Draw contrasts with their intervals, in panels side by side.

    A line is an interval, its marker says the verdict, and below it stands a dot for each seed.
    A single panel has the differences as numbers, too.

    Args:
        forest: The panels.
        first_rows: Contrasts whose order all panels have.
    """
    is_planned = first_rows["planned"].to_numpy(bool)
    is_marked = ~is_planned & is_planned.any()
    places = np.arange(len(first_rows)) + 0.5 * is_marked

    has_one_panel = len(forest) == 1
    height = 0.64 + 0.105 * len(first_rows)
    if has_one_panel:
        height = 0.62 + 0.14 * max(len(first_rows), 2)
    figure, grid = panels(len(forest), height, 4, sharey=True)

    verdicts = set()
    has_seeds = False
    for axes, panel in zip(grid, forest, strict=True):
        rows = panel.rows.reindex(first_rows.index)
        has_interval = rows["low"].notna()
        rows = rows.assign(place=places, verdict=rows["verdict"].where(has_interval, "none"))
        verdicts |= draw_intervals(axes, rows)
        has_seeds |= bool(panel.rows["seeds"].map(len).any())
        axes.set_yticks(places, row_names(first_rows, is_marked))
        axes.set_ylim(places.max() + 0.7, -0.6)
        if has_one_panel:
            axes.set(title=f"Contrasts: {panel.title}", xlabel=unit_text(panel))
            write_differences(axes, rows, panel.decimals)
        else:
            axes.set(title=panel.title, xlabel=panel.unit)

    has_unplanned = bool(is_marked.any())
    handles = forest_handles(verdicts, has_unplanned=has_unplanned, has_seeds=has_seeds)
    return legend_below(figure, handles)


def row_names(rows: DataFrame, is_marked: np.ndarray) -> list[str]:
    """Name the rows of a forest; a star marks those that were not planned, beside planned ones."""
    names = []
    for (arm, reference), has_star in zip(rows.index, is_marked, strict=True):
        name = f"{truncate_name(arm, 18)} - {truncate_name(reference, 14)}"
        names.append(name + UNPLANNED_MARK if has_star else name)
    return names


def unit_text(panel: ForestPanel) -> str:
    """Name the unit of differences, and the better side where it is not the usual one."""
    if panel.lowest_is_best:
        return f"{panel.unit}; left of 0 the first is better"
    return panel.unit


def draw_intervals(axes: Axes, rows: DataFrame) -> set[str]:
    """Draw the rows of a forest that have a difference, and return their verdicts."""
    axes.axvline(0, color=INK, linewidth=0.6, linestyle=(0, (1, 2)))
    verdicts = set()
    for verdict, contrasts in rows.dropna(subset="difference").groupby("verdict"):
        verdicts.add(str(verdict))
        look = VERDICT_STYLES[str(verdict)]
        places = contrasts["place"]
        axes.hlines(places, contrasts["low"], contrasts["high"], color=look["color"])
        seeds = np.concatenate(contrasts["seeds"].to_list())
        seed_places = np.repeat(places + 0.33, contrasts["seeds"].map(len))
        axes.plot(seeds, seed_places, ".", color=look["color"], markersize=2)
        axes.plot(contrasts["difference"], places, linestyle="none", markersize=3, **look)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return verdicts


def write_differences(axes: Axes, rows: DataFrame, decimals: int) -> None:
    """Write the difference of each row of a forest to the right of its panel."""
    for place, difference in zip(rows["place"], rows["difference"], strict=True):
        axes.annotate(
            format_difference(difference, decimals) or "not run",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            size=LEGEND_SIZE,
        )


def forest_handles(
    verdicts: set[str], *, has_unplanned: bool, has_seeds: bool = True
) -> list[Line2D]:
    """Make the entries of a forest's legend: the verdicts that it has, intervals, seeds, stars."""
    looks: list[dict[str, Any]] = []
    for verdict, look in VERDICT_STYLES.items():
        if verdict in verdicts:
            looks.append({"linestyle": "none", **look})
    looks.append({"label": "95% interval", "color": INK})
    if has_seeds:
        seed_look = {
            "label": "a seed",
            "color": INK,
            "marker": ".",
            "markersize": 2,
            "linestyle": "none",
        }
        looks.append(seed_look)
    if has_unplanned:
        looks.append({"label": f"{UNPLANNED_MARK} not planned", "linestyle": "none"})
    return [Line2D([], [], **look) for look in looks]


@paper_style()
def draw_losses(comparison: Comparison) -> Figure:
    """Draw the validation loss by tokens seen, and by how many tokens the reference is later.

    The training loss stands in where no validation loss was measured. A line is the mean over
    seeds, its band goes from the lowest to the highest seed. The legend begins with the lowest last
    loss.
    """
    losses = comparison.board.results.losses
    name = "validation_loss" if losses["validation_loss"].notna().any() else "train_loss"
    curves = losses.pivot_table(name, "step", ["arm", "pretraining_seed"])
    tokens = losses.groupby("step")["tokens"].mean()

    last_losses = curves.ffill().iloc[-1].groupby(level="arm").mean().sort_values()
    arms = [str(arm) for arm in last_losses.index]
    reference = comparison.reference
    styles = arm_styles(comparison.board.arms, reference)

    lags_by_arm = lag_curves(losses, reference, name, comparison.decay_share)

    figure, grid = panels(2 if lags_by_arm else 1, 2.0)
    figure.set_figwidth(PAGE_WIDTH)
    draw_curves(grid[0], {arm: curves[arm] for arm in arms}, tokens, styles)
    grid[0].set(title=MEASURES[name].title, ylabel="nats")

    if lags_by_arm:
        grid[1].axhline(0, color=INK, linewidth=0.6, linestyle=(0, (1, 2)))
        places = np.unique(np.concatenate([lags.index for lags in lags_by_arm.values()]))
        drawn = {arm: lags_by_arm[arm] for arm in arms if arm in lags_by_arm}
        draw_curves(grid[1], drawn, Series(places, index=places), styles)
        title = f"{truncate_name(reference)} reaches the same loss later by"
        grid[1].set(title=title, ylabel="tokens")
        grid[1].yaxis.set_major_formatter(lambda value, _: abbreviate_number(value, 6))
    return legend_below(figure)


def draw_curves(
    axes: Axes,
    curves: Mapping[str, DataFrame | Series],
    tokens: Series,
    styles: Mapping[str, dict[str, Any]],
) -> None:
    """Draw a line for each arm against the tokens seen, and a band if there are few lines.

    Args:
        axes: Where to draw.
        curves: By arm a value for each step (rows) and seed (columns), in the order of the legend.
        tokens: The tokens seen, by step.
        styles: How each arm is drawn.
    """
    for arm, values in curves.items():
        by_seed = DataFrame(values).dropna(how="all")
        tokens_seen = tokens[by_seed.index]
        look = dict(styles[arm])
        if len(by_seed) > MANY_LINES:
            look["marker"] = ""
        axes.plot(tokens_seen, by_seed.mean(axis=1), label=arm, **look)
        if len(curves) <= MANY_LINES:
            low = by_seed.min(axis=1)
            high = by_seed.max(axis=1)
            colour = look["color"]
            axes.fill_between(tokens_seen, low, high, color=colour, alpha=BAND_OPACITY, linewidth=0)
    axes.set(xlabel="tokens seen", xlim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    # Six digits tell ticks apart: 22.75M, 131B.
    axes.xaxis.set_major_formatter(lambda value, _: abbreviate_number(value, 6))


def result_figures(comparison: Comparison) -> dict[str, bytes]:
    """Draw the pictures that stand beside committed tables, by the names of their files."""
    forest = draw_forest(comparison, [comparison.primary])
    forest.axes[0].axvspan(-SMALL_LOSS, SMALL_LOSS, color=INK, alpha=0.1, linewidth=0)
    pictures = {"contrasts.svg": figure_bytes(forest, "svg")}
    if len(comparison.board.results.losses):
        pictures["loss.svg"] = figure_bytes(draw_losses(comparison), "svg")
    return pictures
