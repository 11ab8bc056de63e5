"""The figures of an analysis: the terms of attention, what words and positions share, and what can be told of them."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from glue_bench.analysis.chance import Analysis
from glue_bench.tables.drawing import (
    CYCLE,
    INK,
    PAPER,
    QUIET,
    Drawing,
    arm_styles,
    fitted,
    legend_below,
    panels,
    paper_style,
)

BASELINES = {
    "turned": ("positions turned", "v", CYCLE[5]),
    "permuted": ("positions permuted", "s", CYCLE[1]),
    "covariance": ("positions at random", "^", CYCLE[3]),
    "fresh": ("fresh weights", "D", CYCLE[2]),
}
LEAST_SHARE = 1e-6
"""Directions with a smaller share of the variance than this are not worth room on the axis."""
DESCRIPTIONS = {
    "positions_cosine": "How alike the rows of the position table are: cosines of centred rows.",
    "subspace_curve": "Share of the positions' variance inside the leading directions of the words. A line above the "
    "band of random rotations shares more directions than chance does.",
    "spectrum": "Share of its table's variance that each principal direction holds, from the largest on.",
    "dimensions": "Standard deviation of each dimension, over words and over positions.",
    "decoding": "How often a token's position, and its word, can be read off the tables (their sum, and its norm) and "
    "each layer. An open square: random positions of equal norms.",
    "terms_share": "Share of the variance of attention's scores that each of their terms has, in the first block. "
    "Shares sum to 1; one may be below 0.",
}
"""What each figure shows."""


def inside_figures(analysis: Analysis) -> Iterator[Drawing]:
    """Every figure that the analysis has numbers for."""
    measures = analysis.measures[analysis.measures["head"].isna()]
    made = {name: of_matrix(name, analysis.matrices[name]) for name in OF_MATRICES if name in analysis.matrices}
    for name, draw, start in (("decoding", decoding, "decoding"), ("terms_share", term_shares, "terms.share.")):
        if measures["measure"].str.startswith(start).any():
            made[name] = draw(measures)
    for name, figure in made.items():
        yield Drawing(name=name, title=name, caption=DESCRIPTIONS[name], figure=figure)


# Tables of words and positions: a panel for each checkpoint


def _share_curve(axes: Axes, curve: pd.DataFrame) -> None:
    label = "random rotations, 95%"
    axes.fill_between(curve["m"], curve["low"], curve["high"], color=QUIET, alpha=0.35, linewidth=0, label=label)
    axes.plot(curve["m"], curve["share"], color=CYCLE[0], label="positions")
    axes.set(xlabel="leading word directions", ylim=(-0.02, 1.02))


def _spectrum(axes: Axes, spectrum: pd.DataFrame) -> None:
    both = spectrum.pivot(index="index", columns="table", values="variance")
    _two_lines(axes, both["words"], both["positions"], "principal direction")
    axes.set(yscale="log", ylim=(LEAST_SHARE, 1))
    axes.yaxis.set_major_formatter("{x:g}")


def _deviations(axes: Axes, dimensions: pd.DataFrame) -> None:
    by_dimension = dimensions.set_index("dimension")
    _two_lines(axes, by_dimension["sd_words"], by_dimension["sd_positions"], "dimension")
    axes.set(ylim=(0, None))


def _two_lines(axes: Axes, words: pd.Series, positions: pd.Series, across: str) -> None:
    """Words in colour and thin, positions in ink above them."""
    axes.plot(words, color=CYCLE[3], linewidth=0.7, label="words")
    axes.plot(positions, color=INK, linewidth=0.9, label="positions")
    axes.set(xlabel=across)


def _cosines(axes: Axes, cosines: pd.DataFrame) -> None:
    """Positions i down and j across; the last of evenly wide cells ends as far from its first token as the others."""
    matrix = cosines.pivot(index="i", columns="j", values="cosine")
    places = matrix.index.to_numpy(float)
    end = 2 * places[-1] - places[-2] if len(places) > 1 else 1.0
    axes.imshow(matrix.to_numpy(float), norm=Normalize(-1, 1), extent=(0, end, end, 0))
    axes.grid(visible=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(3, integer=True))
    axes.set(xlabel="position", ylabel="position")


OF_MATRICES: dict[str, tuple[Callable[[Axes, pd.DataFrame], None], str]] = {
    "positions_cosine": (_cosines, "cosine of two positions"),
    "subspace_curve": (_share_curve, "share of positions' variance"),
    "spectrum": (_spectrum, "share of the variance"),
    "dimensions": (_deviations, "standard deviation"),
}
"""How a panel of a matrix is drawn, and what its values are."""


@paper_style()
def of_matrix(name: str, matrix: pd.DataFrame) -> Figure:
    """A panel of OF_MATRICES for each checkpoint."""
    draw, values = OF_MATRICES[name]
    figure, grid = panels(matrix["checkpoint"].nunique(), 1.9 if draw is not _cosines else 2.6)
    for axes, (checkpoint, mine) in zip(grid, matrix.groupby("checkpoint", sort=False), strict=True):
        axes.set_title(fitted(str(checkpoint), 24 if len(grid) != 2 else 14))
        draw(axes, mine)
    if not grid[0].images:
        grid[0].set_ylabel(values)
        legend_below(figure)
        return figure
    bar = figure.colorbar(grid[0].images[0], ax=grid, label=values, location="bottom", aspect=40)
    if bar.solids is not None:
        bar.solids.set_rasterized(True)  # 256 little paths otherwise
    return figure


# Measures


@paper_style()
def term_shares(measures: pd.DataFrame) -> Figure:
    """Each term's share, with its interval and beside it what a term holds where positions mean nothing.

    Terms of attention: Ke, He & Liu 2021, figure 2.
    """
    first = measures[measures["measure"].str.startswith("terms.share")].copy()
    first = first[first["layer"] == first.groupby("checkpoint")["layer"].transform("min")]
    first[["kind", "term"]] = first["measure"].str.removeprefix("terms.").str.split(".", expand=True)
    terms = list(first["term"].unique())
    figure, grid = panels(first["checkpoint"].nunique(), 0.55 + 0.14 * len(terms), sharey=True)
    places = np.arange(len(terms))
    for axes, (checkpoint, rows) in zip(grid, first.groupby("checkpoint", sort=False), strict=True):
        by_kind = {kind: mine.set_index("term").reindex(terms) for kind, mine in rows.groupby("kind")}
        for name, (label, marker, colour) in BASELINES.items():
            if (found := by_kind.get(f"share_{name}")) is not None:
                axes.plot(found["value"], places, marker, color=colour, markerfacecolor=PAPER, label=label)
        share, low, high = (by_kind["share"][name] for name in ("value", "low", "high"))
        axes.errorbar(share, places, xerr=[share - low, high - share], fmt="o", color=INK, label="measured")
        axes.axvline(0, color=INK, linewidth=0.6)
        axes.set(title=fitted(str(checkpoint), 24 if len(grid) != 2 else 14), xlabel="share of variance")
    grid[0].set_yticks(places, [term.replace("_", " to ") for term in terms])
    grid[0].set_ylim(len(terms) - 0.4, -0.6)
    legend_below(figure)
    return figure


@paper_style()
def decoding(measures: pd.DataFrame) -> Figure:
    """How often a token's position, and its word, are told rightly: a panel for each, a line per checkpoint.

    Layers are the sum of the rows of a word and a position, and its norm; then of real text 0, what enters block 1, and
    the output of each block. The dashed line is the chance of a reader who knows nothing, a mean over the checkpoints.
    """
    told = measures[measures["measure"].str.fullmatch(r"decoding\.(?:sum|norm|random|layers)\.\w+_accuracy")].copy()
    told[["of", "what"]] = told["measure"].str.extract(r"decoding\.(\w+)\.(\w+)_accuracy")
    layers = ["sum", "norm", *sorted(told["layer"].dropna().unique())]
    names = told["of"].replace({"random": "sum"})
    told["place"] = list(map(layers.index, names.where(told["layer"].isna(), told["layer"])))
    styles = arm_styles(list(told["checkpoint"].unique()))
    figure, grid = panels(2, 1.35, 1, sharex=True)
    for axes, what in zip(grid, ("position", "word"), strict=True):
        mine = told[told["what"] == what]
        guessed = mine[mine["of"] != "sum"].groupby("place")["chance_low"].mean()
        axes.plot(guessed, color=QUIET, linestyle="dashed", linewidth=0.8, label="chance")
        for (checkpoint, _), rows in mine.groupby(["checkpoint", mine["of"] == "layers"], sort=False):
            look, random = styles[str(checkpoint)], rows[rows["of"] == "random"]
            own = rows[rows["of"] != "random"]
            axes.plot(own["place"], own["value"], label=checkpoint, **look)
            axes.plot(random["place"], random["value"], "s", color=look["color"], markerfacecolor="none", markersize=5)
        axes.set(title=f"Decoding of the {what}", ylabel="accuracy (0 to 1)", ylim=(-0.03, 1.03))
    grid[-1].set(xlabel="layer (sum, norm: of the tables; 0: what enters block 1)")
    grid[-1].set_xticks(range(len(layers)), [str(layer) for layer in layers])
    legend_below(figure)
    return figure
