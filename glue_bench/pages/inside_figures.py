"""The figures of an analysis of encoders.

To add a figure, write a function that takes rows with a `checkpoint` and returns a figure, and an
entry in FIGURES.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from glue_bench.analysis.chance import Analysis
from glue_bench.pages.figure_style import (
    CYCLE,
    INK,
    MUTED_COLOUR,
    arm_styles,
    legend_below,
    panels,
    paper_style,
    truncate_name,
)
from glue_bench.pages.page import Drawing

BASELINES: dict[str, dict[str, Any]] = {
    "turned": {"label": "positions turned", "marker": "v", "color": CYCLE[5]},
    "permuted": {"label": "positions permuted", "marker": "s", "color": CYCLE[1]},
    "covariance": {"label": "positions at random", "marker": "^", "color": CYCLE[3]},
    "fresh": {"label": "fresh weights", "marker": "D", "color": CYCLE[2]},
}
"""How a figure draws the shares of each term that the measured share is compared with."""


def checkpoint_panels(
    rows: DataFrame, height: float, **options: Any
) -> tuple[Figure, list[tuple[Axes, DataFrame]]]:
    """Make a figure with a panel for each checkpoint.

    Args:
        rows: The rows of all checkpoints.
        height: The height of a panel in inches.
        options: Passed to `panels`.

    Returns:
        The figure, and the axes of each checkpoint with its rows.
    """
    by_checkpoint = rows.groupby("checkpoint", sort=False)
    figure, grid = panels(len(by_checkpoint), height, **options)
    # Two panels stand in one column of a paper, where a title has less room.
    longest = 14 if len(grid) == 2 else 24
    axes_and_rows = []
    for axes, (checkpoint, of_checkpoint) in zip(grid, by_checkpoint, strict=True):
        axes.set_title(truncate_name(str(checkpoint), longest))
        axes_and_rows.append((axes, of_checkpoint))
    return figure, axes_and_rows


@paper_style()
def draw_subspace_curve(curves: DataFrame) -> Figure:
    """Draw the share of the positions' variance inside the leading directions of the words.

    A band shows random rotations.
    """
    figure, axes_and_rows = checkpoint_panels(curves, 1.9)
    for axes, curve in axes_and_rows:
        axes.fill_between(
            curve["m"],
            curve["low"],
            curve["high"],
            color=MUTED_COLOUR,
            alpha=0.35,
            linewidth=0,
            label="random rotations, 95%",
        )
        axes.plot(curve["m"], curve["share"], color=CYCLE[0], label="positions")
        axes.set(xlabel="leading word directions", ylim=(-0.02, 1.02))
    first_axes, _ = axes_and_rows[0]
    first_axes.set_ylabel("share of positions' variance")
    return legend_below(figure)


@paper_style()
def draw_term_shares(measures: DataFrame) -> Figure:
    """Draw the share of each term of attention, with its interval, beside BASELINES.

    Figure 2 of Ke, He & Liu 2021 has these terms.
    """
    first_layers = measures.groupby("checkpoint")["layer"].transform("min")
    shares = measures[measures["layer"] == first_layers].copy()
    names = shares["measure"].str.removeprefix("terms.")
    shares[["kind", "term"]] = names.str.split(".", expand=True)

    terms = list(shares["term"].unique())
    places = np.arange(len(terms))
    figure, axes_and_rows = checkpoint_panels(shares, 0.55 + 0.14 * len(terms), sharey=True)

    for axes, rows in axes_and_rows:
        for name, look in BASELINES.items():
            baseline = rows[rows["kind"] == f"share_{name}"]
            if len(baseline):
                values = baseline.set_index("term").reindex(terms)["value"]
                axes.plot(values, places, linestyle="none", markerfacecolor="none", **look)

        measured = rows[rows["kind"] == "share"].set_index("term").reindex(terms)
        draw_measured(axes, measured, places)
        axes.axvline(0, color=INK, linewidth=0.6)
        axes.set_xlabel("share of variance")

    first_axes, _ = axes_and_rows[0]
    first_axes.set_yticks(places, [term.replace("_", " to ") for term in terms])
    first_axes.set_ylim(len(terms) - 0.4, -0.6)
    return legend_below(figure)


def draw_measured(axes: Axes, measured: DataFrame, places: np.ndarray) -> None:
    """Draw measured values with their intervals."""
    value = measured["value"]
    below = value - measured["low"]
    above = measured["high"] - value
    axes.errorbar(value, places, xerr=[below, above], fmt="o", color=INK, label="measured")


@paper_style()
def draw_decoding(measures: DataFrame) -> Figure:
    """Draw how often the position and the word of a token are predicted correctly.

    There is a panel for positions and one for words, with a line for each checkpoint. The first two
    layers are the sum of a word's row and a position's row, and this sum after LayerNorm. The next
    layers are read from real text: 0 (the input of block 1) and the output of each block. The
    dashed line is the accuracy of a random guess, the mean over the checkpoints.
    """
    frame = measures.copy()
    frame[["source", "target"]] = frame["measure"].str.extract(r"decoding\.(\w+)\.(\w+)_accuracy")
    layers = ["sum", "norm", *sorted(frame["layer"].dropna().unique())]
    frame["place"] = [layers.index(layer) for layer in decoded_layers(frame)]
    styles = arm_styles(list(frame["checkpoint"].unique()))
    figure, grid = panels(2, 1.35, 1, sharex=True)
    for axes, target in zip(grid, ("position", "word"), strict=True):
        draw_accuracies(axes, frame[frame["target"] == target], styles)
        title = f"Decoding of the {target}"
        axes.set(title=title, ylabel="accuracy (0 to 1)", ylim=(-0.03, 1.03))
    grid[-1].set_xlabel("layer (sum, norm: of the tables; 0: what enters block 1)")
    grid[-1].set_xticks(range(len(layers)), [str(layer) for layer in layers])
    return legend_below(figure)


def decoded_layers(frame: DataFrame) -> Series:
    """Give the layer that each row was read from: "sum", "norm" or a number.

    Rows of random positions get the layer "sum".
    """
    names = frame["source"].replace({"random": "sum"})
    return names.where(frame["layer"].isna(), frame["layer"])


def draw_accuracies(axes: Axes, rows: DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """Draw the accuracies of all checkpoints in a panel, and chance."""
    guessed = rows[rows["source"] != "sum"].groupby("place")["chance_low"].mean()
    axes.plot(guessed, color=MUTED_COLOUR, linestyle="dashed", linewidth=0.8, label="chance")
    # Tables and layers are lines of their own: nothing lies between the norm and layer 0.
    is_layer = rows["source"] == "layers"
    for (checkpoint, _), line in rows.groupby(["checkpoint", is_layer], sort=False):
        look = styles[str(checkpoint)]
        is_random = line["source"] == "random"
        measured = line[~is_random]
        random = line[is_random]
        axes.plot(measured["place"], measured["value"], label=checkpoint, **look)
        axes.plot(
            random["place"],
            random["value"],
            "s",
            color=look["color"],
            markerfacecolor="none",
            markersize=5,
        )


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure.

    Attributes:
        draw: Draws the rows.
        caption: What the figure shows.
        pattern: The measures that it draws, a regular expression; if empty, it draws the matrix of
            its name.
    """

    draw: Callable[[DataFrame], Figure]
    caption: str
    pattern: str = ""


FIGURES = {
    "subspace_curve": FigureKind(
        draw_subspace_curve,
        "Share of the positions' variance inside the leading directions of the words. "
        "A line above the band of random rotations shares more directions than chance does.",
    ),
    "decoding": FigureKind(
        draw_decoding,
        "How often a token's position, and its word, can be read off the tables (their sum, and "
        "its norm) and each layer. An open square: random positions of equal norms.",
        r"decoding\.(?:sum|norm|random|layers)\.\w+_accuracy$",
    ),
    "terms_share": FigureKind(
        draw_term_shares,
        "Share of the variance of attention's scores that each of their terms has, in the first "
        "block. Shares sum to 1; one may be below 0.",
        r"terms\.share(?:_\w+)?\.",
    ),
}
"""The figures by the names of their files."""


def inside_figures(analysis: Analysis) -> Iterator[Drawing]:
    """Draw every figure that the analysis has numbers for."""
    measures = analysis.measures
    for name, kind in FIGURES.items():
        rows = analysis.matrices.get(name)
        if kind.pattern:
            rows = measures[measures["measure"].str.match(kind.pattern)]
        if rows is not None and len(rows):
            yield Drawing(name=name, title=name, caption=kind.caption, figure=kind.draw(rows))
