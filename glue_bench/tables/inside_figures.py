"""The figures of an analysis: the terms of attention, what words and positions share, and what can be told of them.

Heat maps are numbers over pairs of positions, i going down and j across, on one scale for all panels of a figure.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from glue_bench.analysis.chance import Analysis
from glue_bench.errors import unknown
from glue_bench.tables.figures import (
    COLUMN,
    CYCLE,
    FORMATS,
    INK,
    PAPER,
    QUIET,
    SMALL,
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
    "terms_share": "Share of the variance of attention's scores that each of their terms has, in the first block.",
    "terms_rms": "How large each term is for each pair of places: the root mean square over sequences.",
    "terms_mean": "The same terms as means over sequences: what depends on places alone.",
    "terms_heads_rms": "The terms of each head, as shares of the head's largest: the root mean square over sequences.",
    "terms_heads_mean": "The terms of each head, as shares of the head's largest: means over sequences.",
    "subspace_curve": "Share of the positions' variance inside the leading directions of the words.",
    "spectrum": "Share of its table's variance that each principal direction holds.",
    "dimensions": "Standard deviation of each dimension, over words and over positions.",
    "positions_cosine": "How alike the rows of the position table are.",
    "decoding": "How often a token's position, and its word, can be read off each layer.",
}
"""What each figure shows."""


def figure_formats(given: str) -> list[str]:
    """The formats of figures that a text such as `svg,png` names; none of `none`.

    Raises:
        UserError: a format that there is not.
    """
    formats = [] if given == "none" else given.split(",")
    for format in formats:
        if format not in FORMATS:
            raise unknown("format of figures", format, [*FORMATS, "none"])
    return formats


def write_figures(analysis: Analysis, folder: Path, formats: Sequence[str]) -> None:
    """Write every figure that the analysis has numbers for, in each of the formats."""
    for name, _, draw in inside_figures(analysis):
        save(draw(), folder / name, formats)


def inside_figures(analysis: Analysis) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    """Of each figure that the analysis has numbers for: its file's name, its kind in DESCRIPTIONS, and how it is drawn.

    Panels of terms are apart for each checkpoint.
    """
    for name, draw in OF_ALL.items():
        if name in analysis.matrices:
            yield name, name, partial(draw, analysis.matrices[name])
    for name, start, figure in (("decoding", "decoding", decoding), ("terms_share", "terms.share.", term_shares)):
        rows = analysis.measures[analysis.measures["measure"].str.startswith(start) & analysis.measures["head"].isna()]
        if len(rows):
            yield name, name, partial(figure, analysis.measures[analysis.measures["head"].isna()])
    for name, panel in (("terms", term_panels), ("terms_heads", term_panels_by_head)):
        by_label = dict(list(analysis.matrices[name].groupby("checkpoint"))) if name in analysis.matrices else {}
        for label, cells in by_label.items():
            plain = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in str(label))
            ending = f"_{plain}" if len(by_label) > 1 else ""
            for value in OVER_SEQUENCES:
                yield f"{name}_{value}{ending}", f"{name}_{value}", partial(panel, cells, value)


# The terms of attention (Ke, He & Liu 2021, figure 2)


@paper_style()
def term_panels(terms: pd.DataFrame, value: str = "rms") -> Figure:
    """The terms of the logits in the first block of one checkpoint, heads together: a panel for each term.

    `value` is "rms" or "mean" over sequences, in logits that are centred over the keys. Both are worth a look: words
    differ between sequences, so that their terms fade from the mean, which shows what depends on places alone; the RMS
    shows how large each term is.
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
def term_panels_by_head(terms: pd.DataFrame, value: str = "rms") -> Figure:
    """As `term_panels`, with a row of squares for each head; in each the queries go down, the keys across.

    Each head has a scale of its own, which its squares share, because one head may hold logits that are many times
    those of the others: colours are shares of the head's largest logit, which stands beside its number.
    """
    largest = terms[value].abs().groupby(terms["head"]).max()
    cells = terms.assign(share=terms[value] / terms["head"].map(largest.where(largest > 0, 1.0)))
    each = list(cells.groupby(["query", "key"], sort=False))
    figure = Figure(figsize=(COLUMN, 1.05 + 0.615 * len(largest)), layout="constrained")
    grid = figure.subplots(1, len(each), sharey=True, squeeze=False).ravel()
    for axes, ((query, key), mine) in zip(grid, each, strict=True):
        _heat_stack(axes, mine, "share", Normalize(-1 if value == "mean" else 0, 1))
        axes.set_title(_term_name(query, key).replace(" to", "\nto"), fontsize=SMALL)
        axes.set_xlabel("key (token)", fontsize=SMALL)
    grid[0].set_yticks(grid[0].get_yticks(), [f"{head} ({most:.2g})" for head, most in largest.items()])
    grid[0].set_ylabel("head (largest), query")
    _scale_bar(figure, list(grid), f"share of the head's largest, {OVER_SEQUENCES[value]}")
    return figure


@paper_style()
def term_shares(measures: pd.DataFrame) -> Figure:
    """Each term's share of the variance of the first block's logits, with its interval: a panel for each checkpoint.

    A share may be below 0; all of them sum to 1. Beside it stands what a term holds where positions mean nothing.
    """
    first = measures[measures["measure"].str.startswith("terms.share")].copy()
    first = first[first["layer"] == first.groupby("checkpoint")["layer"].transform("min")]
    first[["kind", "term"]] = first["measure"].str.removeprefix("terms.").str.split(".", expand=True)
    terms = list(first["term"].unique())
    figure, grid = panels(first["checkpoint"].nunique(), 0.55 + 0.14 * len(terms), sharey=True)
    drawn, places = dict[str, Any](), np.arange(len(terms))
    for axes, (checkpoint, rows) in zip(grid, first.groupby("checkpoint", sort=False), strict=True):
        by_kind = {kind: mine.set_index("term").reindex(terms) for kind, mine in rows.groupby("kind")}
        for name, (label, marker, colour) in BASELINES.items():
            if (found := by_kind.get(f"share_{name}")) is not None:
                (drawn[label],) = axes.plot(found["value"], places, marker, color=colour, markerfacecolor=PAPER)
        share, low, high = (by_kind["share"][name] for name in ("value", "low", "high"))
        drawn["measured"] = axes.errorbar(share, places, xerr=[share - low, high - share], fmt="o", color=INK)
        axes.axvline(0, color=INK, linewidth=0.6)
        axes.set(title=_panel_name(checkpoint, grid), xlabel="share of variance")
    grid[0].set_yticks(places, [_term_name(*term.split("_")) for term in terms])
    grid[0].set_ylim(len(terms) - 0.4, -0.6)
    legend_below(figure, list(drawn.values()), list(drawn))
    return figure


def _term_name(query: object, key: object = "") -> str:
    return f"{query} to {key}" if query != "bias" else "bias"


# Tables of words and positions


@paper_style()
def share_curves(curve: pd.DataFrame) -> Figure:
    """How much of the positions' variance lies in the m leading directions of the words, for each m.

    A line in the band of random rotations shares no more directions than chance does, one above it shares more.
    """
    figure, grid = panels(curve["checkpoint"].nunique(), 1.9)
    for axes, mine in _by_checkpoint(grid, curve):
        band = axes.fill_between(mine["m"], mine["low"], mine["high"], color=QUIET, alpha=0.35, linewidth=0)
        (line,) = axes.plot(mine["m"], mine["share"], color=CYCLE[0])
        axes.set(xlabel="leading word directions", ylim=(-0.02, 1.02), xlim=(0, None))
    grid[0].set_ylabel("share of positions' variance")
    legend_below(figure, [line, band], ["positions", "random rotations, 95%"])
    return figure


@paper_style()
def spectra(spectrum: pd.DataFrame) -> Figure:
    """The share of its table's variance that each principal direction holds, from the largest on, for both tables."""
    figure, grid = panels(spectrum["checkpoint"].nunique(), 1.9)
    for axes, mine in _by_checkpoint(grid, spectrum):
        wide = mine.pivot(index="index", columns="table", values="variance")
        lines = _two_lines(axes, wide.index, wide["words"], wide["positions"])
        axes.set(xlabel="principal direction", yscale="log", ylim=(LEAST_SHARE, 1), xlim=(0, None))
        axes.yaxis.set_major_formatter("{x:g}")
    grid[0].set_ylabel("share of the variance")
    legend_below(figure, lines, ["words", "positions"])
    return figure


@paper_style()
def deviations(dimensions: pd.DataFrame) -> Figure:
    """How much each dimension of the tables moves, over words and over positions, in the units of the embeddings."""
    figure, grid = panels(dimensions["checkpoint"].nunique(), 1.9)
    for axes, mine in _by_checkpoint(grid, dimensions):
        lines = _two_lines(axes, mine["dimension"], mine["sd_words"], mine["sd_positions"])
        axes.set(xlabel="dimension", ylim=(0, None), xlim=(0, None))
    grid[0].set_ylabel("standard deviation")
    legend_below(figure, lines, ["over words", "over positions"])
    return figure


@paper_style()
def position_cosines(cosines: pd.DataFrame) -> Figure:
    """How alike the rows of a position table are: cosines of centred rows, from -1 to 1."""
    figure, grid = panels(cosines["checkpoint"].nunique(), 2.2)
    figure.set_figheight(figure.get_figheight() + (1.2 if len(grid) == 1 else 0.4))
    for axes, mine in _by_checkpoint(grid, cosines):
        _heat(axes, mine, "cosine", Normalize(-1, 1))
        axes.set(xlabel="position", ylabel="position")
    _scale_bar(figure, grid, "cosine of two positions")
    return figure


OF_ALL: dict[str, Callable[[pd.DataFrame], Figure]] = {
    **{"positions_cosine": position_cosines, "subspace_curve": share_curves},
    **{"spectrum": spectra, "dimensions": deviations},
}
"""The figures that have a panel for each checkpoint, by the matrix that they draw."""


@paper_style()
def decoding(measures: pd.DataFrame) -> Figure:
    """How often a token's position, and its word, are told rightly: a panel for each, a line per checkpoint.

    Layers are the sum of the rows of a word and a position, and its norm; then of real text 0, what enters block 1, and
    the output of each block. An open square is the mean of random positions of equal norms; the dashed line is the
    chance of a reader who knows nothing, as a mean over the checkpoints.
    """
    told = measures[measures["measure"].str.fullmatch(r"decoding\.(?:sum|norm|random|layers)\.\w+_accuracy")].copy()
    told[["of", "what"]] = told["measure"].str.extract(r"decoding\.(\w+)\.(\w+)_accuracy")
    layers = [*OF_TABLES, *sorted(told["layer"].dropna().unique())]
    names = told["of"].replace({"random": "sum"})
    told["place"] = list(map(layers.index, names.where(told["layer"].isna(), told["layer"])))
    styles, lines = arm_styles(list(told["checkpoint"].unique())), dict[str, Any]()
    figure, grid = panels(2, 1.35, 1, sharex=True)
    for axes, what in zip(grid, ("position", "word"), strict=True):
        mine = told[told["what"] == what]
        guessed = mine[mine["of"] != "sum"].groupby("place")["chance_low"].mean()
        (lines["chance"],) = axes.plot(guessed, color=QUIET, linestyle="dashed", linewidth=0.8)
        for (checkpoint, _), rows in mine.groupby(["checkpoint", mine["of"] == "layers"], sort=False):
            look, random = styles[str(checkpoint)], rows[rows["of"] == "random"]
            own = rows[rows["of"] != "random"]
            (lines[str(checkpoint)],) = axes.plot(own["place"], own["value"], **look)
            axes.plot(random["place"], random["value"], "s", color=look["color"], markerfacecolor="none", markersize=5)
        axes.set(title=f"Decoding of the {what}", ylabel="accuracy (0 to 1)", ylim=(-0.03, 1.03))
    grid[-1].set(xlabel="layer (sum, norm: of the tables; 0: what enters block 1)")
    grid[-1].set_xticks(range(len(layers)), [str(layer) for layer in layers])
    legend_below(figure, list(lines.values()), list(lines))
    return figure


# Panels


def _by_checkpoint(grid: Sequence[Axes], frame: pd.DataFrame) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """The panel of each checkpoint with its rows; a title tells several of them apart."""
    for axes, (checkpoint, mine) in zip(grid, frame.groupby("checkpoint", sort=False), strict=True):
        axes.set_title(_panel_name(checkpoint, grid))
        yield axes, mine


def _panel_name(name: object, grid: Sequence[Axes]) -> str:
    return fitted(str(name), 14 if len(grid) == 2 else 24)


def _two_lines(axes: Axes, x: Any, words: pd.Series, positions: pd.Series) -> list[Any]:
    """Words in colour and thin, positions in ink above them."""
    return [
        *axes.plot(x, words, color=CYCLE[3], linewidth=0.7),
        *axes.plot(x, positions, color=INK, linewidth=0.9),
    ]


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


def _heat_stack(axes: Axes, cells: pd.DataFrame, value: str, scale: Normalize) -> None:
    """As `_heat` for each `head`, one below the other in one picture: axes for each of fifty would take seconds."""
    squares = {head: mine.pivot(index="i", columns="j", values=value) for head, mine in cells.groupby("head")}
    first = next(iter(squares.values()))
    rows, right = len(first) + 1, _end(first.columns)
    stacked = np.vstack([np.pad(one, ((0, 1), (0, 0)), constant_values=np.nan) for one in squares.values()])[:-1]
    token = right / first.shape[1]
    axes.imshow(stacked, norm=scale, extent=(0, right, len(stacked) * token, 0))
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.set_yticks([(rows * place + len(first) / 2) * token for place in range(len(squares))], list(map(str, squares)))


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
