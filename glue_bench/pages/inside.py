"""An analysis of encoders as one table, each number marked by the range that chance gives; its files and figures."""

import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glue_bench.analysis.chance import Analysis
from glue_bench.errors import UserError, first_line
from glue_bench.files import parse_json, read_file, results_written_to, write_atomically
from glue_bench.pages.figures import (
    CYCLE,
    INK,
    QUIET,
    arm_styles,
    fitted,
    legend_below,
    panels,
    paper_style,
)
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import BETTER, WORSE, Column, Drawing, Page, Part, Table, with_legend
from glue_bench.pages.render import csv_text, json_text, to_markdown

NUMBERS, PAGE, ROWS = "analysis.json", "analysis.md", "measures.csv"
TITLE = "Inside the encoders"
HEADLINES = {
    "terms.mixed": "Mixed terms in attention's logits (%)",
    "terms.mixed_to_words": "Mixed terms beside word to word (%)",
    "subspaces.overlap": "Overlap of words and positions",
    "subspaces.mean_abs_cosine": "|cos| of a word and a position",
    "decoding.sum.word_accuracy": "Words told from the sum (%)",
    "decoding.sum.position_accuracy": "Positions told from the sum (%)",
    "positions.absolute_mae": "Error of a position told from its row",
    "positions.scores.toeplitz": "Positions' scores that follow distance (%)",
    "dimensions.share_95": "Dimensions that positions move in (%)",
    "dimensions.spearman": "Correlation of spreads over dimensions",
    "order.swap.1": "Texts preferred to swapped neighbours (%)",
}
"""The measures that the table shows, and what they say."""
LEGEND = {
    "marks": "▼ below, ▲ above the range that chance gives; no mark: inside it.",
    "terms": "Mixed terms: word to position and position to word, in block 1. Chance: positions turned at random.",
    "subspaces": "Overlap of covariances: 1 of unrelated tables. Chance: positions turned at random.",
    "decoding": "Told from the sum: words by the nearest row, positions by a linear probe. Chance: random positions.",
    "positions": "Positions: their rows by a linear probe, their scores in block 1. Chance: random rows, random order.",
    "dimensions": "Dimensions: those with 95% of the variance. Chance: normal numbers, dimensions in random order.",
    "order": "Swapped neighbours: an encoder without positions has 50%. The mark is by the number's own interval.",
}
"""What explains the marks, and the headlines whose names begin so."""
SHOWN = ["text", "mark", "interval", "chance"]
"""What the table shows of a measure."""
BY_LAYER = ("layers", "decoding.layers", "positions.attention")
"""Beginnings of measures whose names in analysis.json have the layer before the last part."""
BASELINES = {
    "turned": ("positions turned", "v", CYCLE[5]),
    "permuted": ("positions permuted", "s", CYCLE[1]),
    "covariance": ("positions at random", "^", CYCLE[3]),
    "fresh": ("fresh weights", "D", CYCLE[2]),
}
"""What a figure draws beside a measured share of a term: its label, marker and colour."""


def inside_page(analysis: Analysis) -> Page:
    """The HEADLINES of an analysis, a column for each checkpoint; of a single one with its interval and chance.

    As CSV and JSON it is the whole table of measures.
    """
    labels, measures = list(analysis.subjects["checkpoint"]), analysis.measures
    # A checkpoint may be called `measure`: no other column can have the label of its column.
    names_of_columns = {label: f"checkpoint: {label}" for label in labels}
    rows = measures[measures["measure"].isin(HEADLINES)].drop_duplicates(["checkpoint", "measure"])
    cells = pd.DataFrame(list(map(_shown, rows.to_dict("records"))), rows.index, SHOWN).join(rows)
    names = [name for name in HEADLINES if name in set(rows["measure"])]
    cells = cells.assign(column=cells["checkpoint"].map(names_of_columns))
    text, mark, interval, chance = (
        cells.pivot(index="measure", columns="column", values=part).reindex(
            names, columns=[*names_of_columns.values()]
        )
        for part in SHOWN
    )
    columns = {"measure": Column("Measure")}
    columns |= {name: Column(label, show=str) for label, name in names_of_columns.items()}
    frame = text.fillna(MISSING).assign(measure=[HEADLINES[name] for name in names])
    if len(labels) == 1:
        columns |= {
            "interval": Column("95% interval", show=str),
            "chance": Column("Chance", show=str),
        }
        frame = frame.assign(interval=interval.iloc[:, 0], chance=chance.iloc[:, 0])
    caption = f"Text: {analysis.text}, {analysis.sequences} sequences asked for."
    # What is left out is said once for each reason and the checkpoints of which it is said.
    by_reason = analysis.left_out.groupby(["checkpoint", "reason"], sort=False)["measure"].agg(
        ", ".join
    )
    alike = (
        by_reason.reset_index()
        .groupby(["measure", "reason"], sort=False)["checkpoint"]
        .agg(", ".join)
    )
    titles = {
        "checkpoint": Column("Checkpoint"),
        "measure": Column("Left out"),
        "reason": Column("Reason"),
    }
    table = Table(frame=frame, columns=columns, caption=caption, marks=mark)
    tables = with_legend([table], LEGEND, ["marks", *(name.partition(".")[0] for name in names)])
    tables += (
        [Table(frame=alike.reset_index(), columns=titles, title="Left out")] if len(alike) else []
    )
    return Page(title=TITLE, tables=tuple(tables), data=measures, decimals=6)


def _shown(row: dict[Any, Any]) -> tuple[str, str, str, str]:
    """SHOWN: the mark says where the value lies beside the range of chance, or its interval beside an exact chance."""
    is_share = HEADLINES[row["measure"]].endswith("(%)")

    def text(value: float) -> str:  # 99.97% is not all
        return f"{100 * value:.{2 if 0.99 < value < 1 else 1}f}" if is_share else f"{value:.3g}"

    def both(*bounds: float) -> str:
        return "" if math.isnan(bounds[0]) else " to ".join(dict.fromkeys(map(text, bounds)))

    interval, chance = (row["low"], row["high"]), (row["chance_low"], row["chance_high"])
    low, high = (row["value"],) * 2 if chance[0] < chance[1] else interval
    mark = f" {WORSE}" if high < chance[0] else f" {BETTER}" if low > chance[1] else ""
    return text(row["value"]), mark, both(*interval), both(*chance)


def write_analysis(analysis: Analysis, folder: Path) -> None:
    """Write analysis.json, analysis.md, measures.csv (every row of the table) and a CSV file for each matrix.

    analysis.json has each value by its name, with interval and chance. The same numbers give the same bytes. Raises
    DiskError where the folder cannot be written.
    """
    contents = {NUMBERS: json_text(_document(analysis)), PAGE: to_markdown(inside_page(analysis))}
    contents[ROWS] = csv_text(analysis.measures, float_format="%.8g")
    for name, frame in analysis.matrices.items():
        contents[f"{name}.csv"] = csv_text(frame, float_format="%.4g")
    with results_written_to(folder, "the measures are not kept"):
        for name, text in contents.items():
            write_atomically(folder / name, text.encode())


def _document(analysis: Analysis) -> dict[str, Any]:
    """analysis.json: eight significant digits, which the same input gives again; null for what is not finite."""

    def rounded(value: float) -> float | None:
        return float(f"{value:.8g}") if math.isfinite(value) else None

    checkpoints = {}
    for facts in analysis.subjects.to_dict("records"):
        label, measures = facts.pop("checkpoint"), dict[str, Any]()
        rows = analysis.measures[analysis.measures["checkpoint"] == label]
        for row in rows.to_dict("records"):
            parent, _, last = row["measure"].rpartition(".")
            again = (
                parent in BY_LAYER or row["measure"] in measures
            )  # elsewhere the first block keeps the name
            ranges = {
                "interval": (row["low"], row["high"]),
                "chance": (row["chance_low"], row["chance_high"]),
            }
            known = {
                of: list(map(rounded, both))
                for of, both in ranges.items()
                if not math.isnan(both[0])
            }
            entry = {"value": rounded(row["value"]), **known} | (
                {"n": row["n"]} if row["n"] else {}
            )
            measures[f"{parent}.{row['layer']}.{last}" if again else row["measure"]] = entry
        left_out = analysis.left_out[analysis.left_out["checkpoint"] == label]
        reasons = dict(zip(left_out["measure"], left_out["reason"], strict=True))
        checkpoints[label] = {**facts, "measures": measures, "left_out": reasons}
    head = {
        "text": analysis.text,
        "text_sha256": analysis.text_digest,
        "sequences_asked": analysis.sequences,
    }
    return {
        "schema_version": 1,
        **head,
        "matrices": list(analysis.matrices),
        "checkpoints": checkpoints,
    }


def inside_part(folder: Path, weights: Collection[str], place: str) -> Part | None:
    """The page with its figures for a report, None where there is nothing to show; or why a damaged one is left out.

    `place` is the folder of the experiment as a command names it.
    """
    try:
        if (analysis := read_analysis(folder, weights)) is None:
            return None
        return Part(
            title=TITLE,
            tables=inside_page(analysis).tables,
            figures=tuple(inside_figures(analysis)),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        again = f"glue-bench analyse {place} -o {place}/{folder.name}"
        said = UserError(f"{folder.name}/ is damaged ({why}); delete it, or make it again: {again}")
        table = Table(
            frame=pd.DataFrame({"said": [str(said)]}), columns={"said": Column("Left out")}
        )
        return Part(title=TITLE, tables=(table,))


def read_analysis(folder: Path, weights: Collection[str]) -> Analysis | None:
    """What `write_analysis` has left of the encoders whose weights have these digests; None where there is nothing.

    A damaged file raises whatever reading it does.
    """
    if not weights or not (folder / NUMBERS).is_file():
        return None
    document = parse_json(read_file(folder / NUMBERS))
    facts = {
        label: each for label, each in document["checkpoints"].items() if each["weights"] in weights
    }
    reasons = [(label, *pair) for label in facts for pair in facts[label]["left_out"].items()]
    names = "measures", *document["matrices"]
    frames = {name: _read_rows(folder / f"{name}.csv") for name in names}
    kept = {name: frame[frame["checkpoint"].isin(facts)] for name, frame in frames.items()}
    analysis = Analysis(
        text=str(document["text"]),
        text_digest=str(document["text_sha256"]),
        sequences=int(document["sequences_asked"]),
        subjects=pd.DataFrame([{"checkpoint": label} | each for label, each in facts.items()]),
        measures=kept.pop("measures"),
        left_out=pd.DataFrame(reasons, columns=["checkpoint", "measure", "reason"]),
        matrices=kept,
    )
    return analysis if facts else None


def _read_rows(path: Path) -> pd.DataFrame:
    """The rows of a file of an analysis; a checkpoint's name is a text, also if it is NA or 1."""
    types = {"layer": "Int64", "checkpoint": "str"}
    return pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])


# Figures


def inside_figures(analysis: Analysis) -> Iterator[Drawing]:
    """Every figure that the analysis has numbers for."""
    measures = analysis.measures
    for name, (draw, pattern, caption) in FIGURES.items():
        drawn = (
            measures[measures["measure"].str.match(pattern)]
            if pattern
            else analysis.matrices.get(name)
        )
        if drawn is not None and len(drawn):
            yield Drawing(name=name, title=name, caption=caption, figure=draw(drawn))


def _of_checkpoints(
    frame: pd.DataFrame, height: float, **options: Any
) -> tuple[Figure, list[tuple[Axes, Any]]]:
    """A figure with a panel for each checkpoint, and each panel with the rows that are its own."""
    by_checkpoint = frame.groupby("checkpoint", sort=False)
    figure, grid = panels(len(by_checkpoint), height, **options)
    for axes, (checkpoint, _) in zip(grid, by_checkpoint, strict=True):
        axes.set_title(fitted(str(checkpoint), 24 if len(grid) != 2 else 14))
    return figure, [(axes, rows) for axes, (_, rows) in zip(grid, by_checkpoint, strict=True)]


@paper_style()
def subspace_curve(curves: pd.DataFrame) -> Figure:
    """The share of the positions' variance inside the leading directions of the words, beside random rotations."""
    figure, grid = _of_checkpoints(curves, 1.9)
    for axes, curve in grid:
        label = "random rotations, 95%"
        axes.fill_between(
            curve["m"],
            curve["low"],
            curve["high"],
            color=QUIET,
            alpha=0.35,
            linewidth=0,
            label=label,
        )
        axes.plot(curve["m"], curve["share"], color=CYCLE[0], label="positions")
        axes.set(xlabel="leading word directions", ylim=(-0.02, 1.02))
    grid[0][0].set_ylabel("share of positions' variance")
    return legend_below(figure)


@paper_style()
def term_shares(measures: pd.DataFrame) -> Figure:
    """Each term's share, with its interval, beside BASELINES. Terms of attention: Ke, He & Liu 2021, figure 2."""
    first = measures[
        measures["layer"] == measures.groupby("checkpoint")["layer"].transform("min")
    ].copy()
    first[["kind", "term"]] = (
        first["measure"].str.removeprefix("terms.").str.split(".", expand=True)
    )
    terms = list(first["term"].unique())
    figure, grid = _of_checkpoints(first, 0.55 + 0.14 * len(terms), sharey=True)
    places = np.arange(len(terms))
    for axes, rows in grid:
        by_kind = {
            kind: of_kind.set_index("term").reindex(terms) for kind, of_kind in rows.groupby("kind")
        }
        for name, (label, marker, colour) in BASELINES.items():
            if (baseline := by_kind.get(f"share_{name}")) is not None:
                axes.plot(
                    baseline["value"],
                    places,
                    marker,
                    color=colour,
                    markerfacecolor="none",
                    label=label,
                )
        share, low, high = (by_kind["share"][name] for name in ("value", "low", "high"))
        axes.errorbar(
            share, places, xerr=[share - low, high - share], fmt="o", color=INK, label="measured"
        )
        axes.axvline(0, color=INK, linewidth=0.6)
        axes.set_xlabel("share of variance")
    grid[0][0].set_yticks(places, [term.replace("_", " to ") for term in terms])
    grid[0][0].set_ylim(len(terms) - 0.4, -0.6)
    return legend_below(figure)


@paper_style()
def decoding(measures: pd.DataFrame) -> Figure:
    """How often a token's position, and its word, are told rightly: a panel for each, a line per checkpoint.

    Layers are the sum of the rows of a word and a position, and its norm; then of real text 0, what enters block 1, and
    the output of each block. The dashed line is the chance of a reader who knows nothing, a mean over the checkpoints.
    """
    frame = measures.copy()
    frame[["of", "what"]] = frame["measure"].str.extract(r"decoding\.(\w+)\.(\w+)_accuracy")
    layers = ["sum", "norm", *sorted(frame["layer"].dropna().unique())]
    names = frame["of"].replace({"random": "sum"})
    frame["place"] = list(map(layers.index, names.where(frame["layer"].isna(), frame["layer"])))
    styles = arm_styles(list(frame["checkpoint"].unique()))
    figure, grid = panels(2, 1.35, 1, sharex=True)
    for axes, what in zip(grid, ("position", "word"), strict=True):
        panel = frame[frame["what"] == what]
        guessed = panel[panel["of"] != "sum"].groupby("place")["chance_low"].mean()
        axes.plot(guessed, color=QUIET, linestyle="dashed", linewidth=0.8, label="chance")
        for (checkpoint, _), rows in panel.groupby(
            ["checkpoint", panel["of"] == "layers"], sort=False
        ):
            look, random = styles[str(checkpoint)], rows[rows["of"] == "random"]
            own = rows[rows["of"] != "random"]
            axes.plot(own["place"], own["value"], label=checkpoint, **look)
            axes.plot(
                random["place"],
                random["value"],
                "s",
                color=look["color"],
                markerfacecolor="none",
                markersize=5,
            )
        axes.set(title=f"Decoding of the {what}", ylabel="accuracy (0 to 1)", ylim=(-0.03, 1.03))
    grid[-1].set(xlabel="layer (sum, norm: of the tables; 0: what enters block 1)")
    grid[-1].set_xticks(range(len(layers)), [str(layer) for layer in layers])
    return legend_below(figure)


FIGURES = {
    "subspace_curve": (
        subspace_curve,
        "",
        "Share of the positions' variance inside the leading directions of the words. A line above the band of random "
        "rotations shares more directions than chance does.",
    ),
    "decoding": (
        decoding,
        r"decoding\.(?:sum|norm|random|layers)\.\w+_accuracy$",
        "How often a token's position, and its word, can be read off the tables (their sum, and its norm) and each "
        "layer. An open square: random positions of equal norms.",
    ),
    "terms_share": (
        term_shares,
        r"terms\.share(?:_\w+)?\.",
        "Share of the variance of attention's scores that each of their terms has, in the first block. Shares sum to "
        "1; one may be below 0.",
    ),
}
"""How each figure is drawn, the measures that it draws (none: a matrix of its name), and what it shows."""
