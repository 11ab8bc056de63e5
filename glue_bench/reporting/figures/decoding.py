"""What can be read off the sum of embeddings, and off each layer after it: the word, and the position."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from glue_bench.reporting.figures.style import COLUMN, QUIET, arm_styles, legend_below, new_figure, paper_style

OF_TABLES = ("sum", "norm")
"""Layers that are made of the tables' rows, not of a text."""


@paper_style()
def decoding_by_layer(decoding: pd.DataFrame, arms: Sequence[str] = (), reference: str | None = None) -> Figure:
    """How often a token's position, and its word, are decoded rightly: a panel for each, a line per checkpoint.

    `decoding` is the frame of that name: checkpoint, layer (sum of the rows of a word and a position, and its norm;
    then of real text 0, what enters block 1, and the output of each block), what (position, word), accuracy and chance
    (0 to 1), and random: the accuracy where positions are random rows of equal norms (NaN but for the sum), an open
    square of the checkpoint's colour. The dashed line is the chance of a reader who knows nothing, as a mean over the
    checkpoints. `arms` are all arms of the page, which decide the colours.
    """
    checkpoints = list(decoding["checkpoint"].unique())
    depths = {name: place for place, name in enumerate(OF_TABLES, -len(OF_TABLES))}
    layers = sorted(
        decoding["layer"].astype(str).unique(), key=lambda name: depths[name] if name in depths else int(name)
    )
    kinds = list(decoding["what"].unique())
    styles, lines = arm_styles(arms or checkpoints, reference), {}
    figure = new_figure(COLUMN, 0.2 + 1.35 * len(kinds))
    grid = figure.subplots(len(kinds), 1, sharex=True, squeeze=False).ravel()
    for axes, what in zip(grid, kinds, strict=True):
        mine = decoding[decoding["what"] == what]
        mine = mine.assign(place=mine["layer"].astype(str).map(layers.index))
        chance = mine.groupby("place")["chance"].mean()
        (lines["chance"],) = axes.plot(chance, color=QUIET, linestyle="dashed", linewidth=0.8)
        for (checkpoint, _), rows in mine.groupby(["checkpoint", mine["layer"].isin(OF_TABLES)], sort=False):
            look = styles[str(checkpoint)]
            (lines[str(checkpoint)],) = axes.plot(rows["place"], rows["accuracy"], **look)
            axes.plot(rows["place"], rows["random"], "s", color=look["color"], markerfacecolor="none", markersize=5)
        axes.set(title=f"Decoding of the {what}", ylabel="accuracy (0 to 1)", ylim=(-0.03, 1.03))
    grid[-1].set(xlabel="layer (sum, norm: of the tables; 0: what enters block 1)")
    grid[-1].set_xticks(range(len(layers)), layers)
    legend_below(figure, list(lines.values()), list(lines))
    return figure
