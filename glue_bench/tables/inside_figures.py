"""The figures of an analysis: the terms of attention, what words and positions share, and what can be told of them.

Heat maps are numbers over pairs of positions, i going down and j across, on one scale for all panels of a figure.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

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
    save,
)

OVER_SEQUENCES = {"rms": "RMS over sequences", "mean": "mean over sequences"}
BASELINES = {
    "turned": ("positions turned", "v", CYCLE[5]),
    "permuted": ("positions permuted", "s", CYCLE[1]),
    "covariance": ("positions at random", "^", CYCLE[3]),
    "fresh": ("fresh weights", "D", CYCLE[2]),
}
LEAST_SHARE = 1e-6
"""Directions with a smaller share of the variance than this are not worth room on the axis."""
OF_TABLES = ("sum", "norm")
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
    "terms_rms": "How large each term is for each pair of places: the root mean square over sequences.",
    "terms_mean": "The same terms as means over sequences: what depends on places alone.",
}
"""What each figure shows."""


def write_figures(analysis: Analysis, folder: Path) -> None:
    """Write every figure that the analysis has numbers for."""
    for drawing in inside_figures(analysis):
        save(drawing.figure, folder / drawing.name)


def inside_figures(analysis: Analysis) -> Iterator[Drawing]:
    """Every figure that the analysis has numbers for; panels of terms are apart for each checkpoint."""
    matrices, measures = analysis.matrices, analysis.measures[analysis.measures["head"].isna()]
    made = {name: of_matrix(name, matrices[name]) for name in OF_MATRICES if name in matrices}
    for name, (draw, start) in OF_MEASURES.items():
        if measures["measure"].str.startswith(start).any():
            made[name] = draw(measures)
    for name, figure in made.items():
        yield Drawing(name=name, title=name, caption=DESCRIPTIONS[name], figure=figure)
    by_label = dict(list(matrices["terms"].groupby("checkpoint"))) if "terms" in matrices else {}
    for label, value in product(by_label, OVER_SEQUENCES):
        plain = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in str(label))
        kind, ending = f"terms_{value}", f"_{plain}" if len(by_label) > 1 else ""
        figure = term_panels(by_label[label], value)
        yield Drawing(name=kind + ending, title=kind + ending, caption=DESCRIPTIONS[kind], figure=figure)


# Tables of words and positions: a panel for each checkpoint


def _share_curve(axes: Axes, curve: pd.DataFrame) -> None:
    label = "random rotations, 95%"
    axes.fill_between(curve["m"], curve["low"], curve["high"], color=QUIET, alpha=0.35, linewidth=0, label=label)
    axes.plot(curve["m"], curve["share"], color=CYCLE[0], label="positions")
    axes.set(xlabel="leading word directions", ylim=(-0.02, 1.02), xlim=(0, None))


def _spectrum(axes: Axes, spectrum: pd.DataFrame) -> None:
    _two_lines(axes, spectrum.pivot(index="index", columns="table", values="variance"))
    axes.set(xlabel="principal direction", yscale="log", ylim=(LEAST_SHARE, 1), xlim=(0, None))
    axes.yaxis.set_major_formatter("{x:g}")


def _deviations(axes: Axes, dimensions: pd.DataFrame) -> None:
    _two_lines(
        axes, dimensions.set_index("dimension")[["sd_words", "sd_positions"]].set_axis(["words", "positions"], axis=1)
    )
    axes.set(xlabel="dimension", ylim=(0, None), xlim=(0, None))


def _two_lines(axes: Axes, both: pd.DataFrame) -> None:
    """Words in colour and thin, positions in ink above them."""
    axes.plot(both["words"], color=CYCLE[3], linewidth=0.7, label="words")
    axes.plot(both["positions"], color=INK, linewidth=0.9, label="positions")


def _cosines(axes: Axes, cosines: pd.DataFrame) -> None:
    _heat(axes, cosines, "cosine", Normalize(-1, 1))
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
    figure, grid = panels(matrix["checkpoint"].nunique(), 1.9)
    for axes, (checkpoint, mine) in zip(grid, matrix.groupby("checkpoint", sort=False), strict=True):
        axes.set_title(_panel_name(checkpoint, grid))
        draw(axes, mine)
    if grid[0].images:
        figure.set_figheight(figure.get_figheight() + (1.5 if len(grid) == 1 else 0.7))
        _scale_bar(figure, grid, values)
    else:
        grid[0].set_ylabel(values)
        legend_below(figure)
    return figure


# The terms of attention (Ke, He & Liu 2021, figure 2)


@paper_style()
def term_panels(terms: pd.DataFrame, value: str = "rms") -> Figure:
    """The terms of the logits in the first block of one checkpoint, heads together: a panel for each term.

    `value` is "rms" or "mean" over sequences, in logits that are centred over the keys: words differ between sequences,
    so that their terms fade from the mean.
    """
    each = list(terms.groupby(["query", "key"], sort=False))
    figure, grid = panels(len(each), 1.65, 2)
    largest = float(np.nanmax(terms[value].abs(), initial=0.0)) or 1.0
    for place, (axes, ((query, key), cells)) in enumerate(zip(grid, each, strict=True)):
        _heat(axes, cells, value, Normalize(-largest if value == "mean" else 0.0, largest))
        axes.set(title=_term_name(query, key), xlabel="key (token)" if place + 2 >= len(grid) else "")
        axes.set_ylabel("query (token)" if place % 2 == 0 else "")
    _scale_bar(figure, grid, f"logits, {OVER_SEQUENCES[value]}")
    return figure


@paper_style()
def term_shares(measures: pd.DataFrame) -> Figure:
    """Each term's share, with its interval and beside it what a term holds where positions mean nothing."""
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
        axes.set(title=_panel_name(checkpoint, grid), xlabel="share of variance")
    grid[0].set_yticks(places, [_term_name(*term.split("_")) for term in terms])
    grid[0].set_ylim(len(terms) - 0.4, -0.6)
    legend_below(figure)
    return figure


def _term_name(query: object, key: object = "") -> str:
    return f"{query} to {key}" if query != "bias" else "bias"


@paper_style()
def decoding(measures: pd.DataFrame) -> Figure:
    """How often a token's position, and its word, are told rightly: a panel for each, a line per checkpoint.

    Layers are the sum of the rows of a word and a position, and its norm; then of real text 0, what enters block 1, and
    the output of each block. The dashed line is the chance of a reader who knows nothing, a mean over the checkpoints.
    """
    told = measures[measures["measure"].str.fullmatch(r"decoding\.(?:sum|norm|random|layers)\.\w+_accuracy")].copy()
    told[["of", "what"]] = told["measure"].str.extract(r"decoding\.(\w+)\.(\w+)_accuracy")
    layers = [*OF_TABLES, *sorted(told["layer"].dropna().unique())]
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


OF_MEASURES: dict[str, tuple[Callable[[pd.DataFrame], Figure], str]] = {
    "decoding": (decoding, "decoding"),
    "terms_share": (term_shares, "terms.share."),
}
"""The figures of measures, and how the names of these begin."""


# Panels


def _panel_name(name: object, grid: Sequence[Axes]) -> str:
    return fitted(str(name), 14 if len(grid) == 2 else 24)


def _heat(axes: Axes, cells: pd.DataFrame, value: str, scale: Normalize) -> None:
    """Draw `value` over rows i and columns j, the positions of each cell's first token."""
    matrix = cells.pivot(index="i", columns="j", values=value)
    axes.imshow(
        matrix.to_numpy(float), norm=scale, extent=(0, _end(matrix.columns), _end(matrix.index), 0), aspect="auto"
    )
    axes.set_box_aspect(1)
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def _scale_bar(figure: Figure, grid: Sequence[Axes], label: str) -> None:
    """The scale of the panels, which they share, below them."""
    width, height = figure.get_size_inches()
    bar = figure.colorbar(
        grid[0].images[0], ax=list(grid), label=label, location="bottom", aspect=9 * width, pad=0.1 / height,
        format=lambda x, _: f"{x:g}".replace("-", "\N{MINUS SIGN}"),
    )  # fmt: skip
    bar.outline.set_linewidth(0.4)
    if bar.solids is not None:
        bar.solids.set_rasterized(True)  # 256 little paths otherwise


def _end(first: pd.Index) -> float:
    """Where the last of evenly wide cells ends."""
    return float(2 * first[-1] - first[-2]) if len(first) > 1 else 1.0
