"""Scores against what was spent on them: steps of pretraining, parameters, FLOPs, seconds."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from glue_bench.reporting.figures import style
from glue_bench.reporting.findings import title_of
from glue_bench.tables.averages import AVERAGE

COSTS: Mapping[str, str] = {
    "parameters": "parameters of the encoder",
    "flops": "FLOPs of pretraining",
    "seconds": "seconds of pretraining",
}
FEW = 8
"""With more arms their bands hide each other and are left out."""
WIDE_RANGE = 8
"""From this ratio of the largest to the smallest cost on its axis is logarithmic."""


@style.paper_style()
def score_by_steps(
    steps: pd.DataFrame, column: str = AVERAGE, arms: Sequence[str] = (), reference: str | None = None
) -> Figure:
    """The score of each arm in one column against the steps of pretraining after which it was fine-tuned.

    `steps` is `tables.board.steps_frame`: arm, steps, `<column>` (0 to 100) and `<column>_std`. A line is the mean
    over seeds, its band one sample standard deviation, where it is known; there are bands for FEW arms at most. The
    legend begins with the highest last score.
    """
    figure = style.new_figure(height=2.0)
    axes = figure.add_subplot(title=title_of(column), xlabel="steps of pretraining", ylabel="score (0 to 100)")
    known = steps.dropna(subset=column)
    if known.empty:
        style.empty(axes, "no checkpoint has a score here")
        return figure
    styles, ends = style.arm_styles(arms or list(steps["arm"].unique()), reference), {}
    for arm, mine in known.sort_values("steps").groupby("arm", sort=False):
        score, spread = mine[column], mine[f"{column}_std"]
        (line,) = axes.plot(mine["steps"], score, **styles[str(arm)])
        if known["arm"].nunique() <= FEW and spread.notna().any():
            axes.fill_between(
                mine["steps"], score - spread, score + spread, color=line.get_color(), alpha=style.BAND, linewidth=0
            )
        ends[str(arm)] = (score.iloc[-1], line)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(style.count_text)
    ordered = sorted(ends, key=lambda arm: -ends[arm][0])
    style.legend_below(figure, [ends[arm][1] for arm in ordered], ordered)
    return figure


def costs_frame(table: pd.DataFrame, budgets: pd.DataFrame) -> pd.DataFrame:
    """The leaderboard's frame with the mean `flops` and `seconds` of an arm's pretrainings, NaN where it had none.

    `budgets` is `tables.budget.budget_frame`; the search for a rate is not counted.
    """
    spent = pd.DataFrame(
        {
            "arm": budgets["arm"],
            "flops": budgets["flops_per_token"].astype(float) * budgets["tokens"].astype(float),
            "seconds": budgets["tokens"].astype(float) / budgets["tokens_per_second"].astype(float),
        }
    )
    return table.merge(spent.groupby("arm", as_index=False).mean(), on="arm", how="left")


@style.paper_style()
def cost_against_score(
    costs: pd.DataFrame, cost: str, column: str = AVERAGE, arms: Sequence[str] = (), reference: str | None = None
) -> Figure:
    """One point per arm: what it cost and what it scored; the grey stairs join arms that no cheaper one reaches.

    `costs` is `costs_frame`: arm, `cost` (one of COSTS), `<column>` (0 to 100, of a loss nats, of which the lowest is
    the best) and `<column>_std`, whose bar is one sample standard deviation over seeds, where it is known. Arms whose
    cost or score is unknown are left out.
    """
    figure = style.new_figure(height=2.0)
    name, lowest = title_of(column), "loss" in column
    axes = figure.add_subplot(
        title=f"{name} against {cost.replace('flops', 'FLOPs')}",
        xlabel=COSTS[cost],
        ylabel=f"{name.lower()} ({'nats, lower is better' if lowest else '0 to 100'})",
    )
    known = costs.dropna(subset=[cost, column]).sort_values([cost, column], ascending=[True, lowest])
    if known.empty:
        style.empty(axes, "no arm has both a score and this cost")
        return figure
    styles = style.arm_styles(arms or list(costs["arm"]), reference)
    goodness = -known[column] if lowest else known[column]
    best = known[goodness > goodness.cummax().shift(fill_value=-np.inf)]
    axes.plot(best[cost], best[column], color=style.QUIET, linewidth=0.6, drawstyle="steps-post", zorder=1)
    points = {
        row["arm"]: axes.errorbar(
            row[cost], row[column], yerr=row[f"{column}_std"], **styles[row["arm"]] | {"linestyle": "none"}
        )
        for row in known.to_dict("records")
    }
    if known[cost].max() > WIDE_RANGE * known[cost].min() > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(style.count_text)
    axes.margins(x=0.08)
    ordered = known.sort_values(column, ascending=lowest, kind="stable")["arm"]
    style.legend_below(figure, [points[arm] for arm in ordered], list(ordered))
    return figure
