"""What pretraining has learnt by when: loss curves, and the tokens that an arm needs to reach the reference."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from glue_bench.reporting.figures import style

START = 0.05
"""Share of the tokens before which the loss does not decide how high the axis is."""
AT_RIGHT = ("axes fraction", "data")


@style.paper_style()
def loss_curves(losses: pd.DataFrame, arms: Sequence[str] = (), reference: str | None = None) -> Figure:
    """The validation loss of each arm against the tokens it has seen; the training loss where none was measured.

    `losses` are those of `Results`: arm, step, tokens, train_loss, validation_loss (nats per masked token),
    and pretraining_seed where there are several. A line is the mean over seeds, its band goes from the lowest to the
    highest seed. The legend begins with the lowest last loss. `arms` are all arms of the page, which decide colours.
    """
    known = "validation" if losses["validation_loss"].notna().any() else "train"
    measured = losses.dropna(subset=f"{known}_loss")
    figure = style.new_figure(height=2.0)
    axes = figure.add_subplot(title="Loss of pretraining", xlabel="tokens seen", ylabel=f"{known} loss (nats)")
    if measured.empty:
        style.empty(axes, "no loss was recorded")
        return figure
    styles, ends = style.arm_styles(arms or list(losses["arm"].unique()), reference), {}
    for arm, mine in measured.groupby("arm", sort=False):
        steps = mine.groupby("step")
        tokens, loss = steps["tokens"].mean(), steps[f"{known}_loss"].agg(["mean", "min", "max"])
        (line,) = axes.plot(tokens, loss["mean"], **styles[str(arm)] | {"marker": "o" if len(tokens) == 1 else ""})
        axes.fill_between(tokens, loss["min"], loss["max"], color=line.get_color(), alpha=style.BAND, linewidth=0)
        ends[str(arm)] = (loss["mean"].iloc[-1], line)
    late = measured.loc[measured["tokens"] >= START * measured["tokens"].max(), f"{known}_loss"]
    room = 0.05 * (late.max() - late.min()) or 0.1
    axes.set(xlim=(0, None), ylim=(late.min() - room, late.max() + room))
    axes.xaxis.set_major_formatter(style.count_text)
    ordered = sorted(ends, key=lambda arm: ends[arm][0])
    style.legend_below(figure, [ends[arm][1] for arm in ordered], ordered)
    return figure


@style.paper_style()
def tokens_to_loss(budgets: pd.DataFrame, reference: str) -> Figure:
    """After how many tokens each arm had the last validation loss of `reference`, which is also the vertical line.

    `budgets` is `tables.budget.budget_frame`: arm, tokens (all that the arm has seen) and tokens_to_reference (NA
    where it never came so far), a row for each seed of pretraining. A small dot is a seed, a large one the mean; an arm
    of which a seed never came so far has no mean, and how many did not stands at the right.
    """
    rows = budgets.dropna(subset="tokens").assign(reached=lambda frame: frame["tokens_to_reference"].astype(float))
    means = rows.groupby("arm", sort=False)["reached"].agg(["mean", "count", "size"])
    means = means.assign(missing=means["size"] - means["count"]).sort_values(["missing", "mean"])
    figure = style.new_figure(height=0.62 + 0.15 * max(len(means), 2))
    axes = figure.add_subplot(
        title=f"Tokens to match {style.fitted(reference)}", xlabel="tokens until its last validation loss"
    )
    if means.empty:
        style.empty(axes, "no arm was pretrained here")
        return figure
    end = float(rows["tokens"].max())
    axes.axvline(float(rows.loc[rows["arm"] == reference, "tokens"].mean()), color=style.INK, linewidth=0.8)
    for place, (arm, mean, missing) in enumerate(zip(means.index, means["mean"], means["missing"], strict=True)):
        reached = rows.loc[rows["arm"] == arm, "reached"]
        axes.plot(reached, np.full(len(reached), place), "o", color=style.QUIET, markersize=2, alpha=0.7)
        if missing:
            text = "not reached" if missing == len(reached) else f"not by {missing} of {len(reached)}"
            axes.annotate(text, (1.01, place), xycoords=AT_RIGHT, va="center", color=style.QUIET, size=style.SMALL)
        else:
            axes.plot(mean, place, "o", color=style.INK)
    axes.set_yticks(range(len(means)), [style.fitted(str(arm)) for arm in means.index])
    axes.set(xlim=(0, 1.06 * end), ylim=(len(means) - 0.4, -0.6))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(style.count_text)
    return figure
