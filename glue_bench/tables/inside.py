"""An analysis of encoders as one table, each number marked by the range that chance gives; and as files."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.analysis.chance import Analysis
from glue_bench.errors import UserError
from glue_bench.files import parse_json, read_file, results_written_to, write_atomically
from glue_bench.tables.table import BETTER, MISSING, WORSE, Column, Page, Table, csv_text, json_text

NUMBERS, PAGE, ROWS = "analysis.json", "analysis.md", "measures.csv"
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
MARKS = "▼ below, ▲ above the range that chance gives; no mark: inside it."
LEGEND = {
    "terms": "Mixed terms: word to position and position to word, in block 1. Chance: positions turned at random.",
    "subspaces": "Overlap of covariances: 1 of unrelated tables. Chance: positions turned at random.",
    "decoding": "Told from the sum: words by the nearest row, positions by a linear probe. Chance: random positions.",
    "positions": "Positions: their rows by a linear probe, their scores in block 1. Chance: random rows, random order.",
    "dimensions": "Dimensions: those with 95% of the variance. Chance: normal numbers, dimensions in random order.",
    "order": "Swapped neighbours: an encoder without positions has 50%. The mark is by the number's own interval.",
}
"""What explains the headlines whose names begin so."""
BY_LAYER = ("layers", "decoding.layers", "positions.attention")
"""Beginnings of measures whose names in analysis.json have the layer before the last part."""


def inside_page(analysis: Analysis) -> Page:
    """The HEADLINES of an analysis, a column for each checkpoint; of a single one with its interval and chance.

    As CSV and JSON it is the whole table of measures.
    """
    labels, rows, marks = list(analysis.subjects["checkpoint"]), list[dict[str, str]](), list[dict[str, str]]()
    whole = analysis.measures[analysis.measures["head"].isna()].drop_duplicates(["checkpoint", "measure"])
    by_name = {name: mine.set_index("checkpoint").to_dict("index") for name, mine in whole.groupby("measure")}
    shown = {name: title for name, title in HEADLINES.items() if name in by_name}
    for name, title in shown.items():
        found: dict[Any, Any] = by_name[name]
        texts = {label: _text(found[label]["value"], title) if label in found else MISSING for label in labels}
        first = found.get(labels[0], dict.fromkeys(("low", "high", "chance_low", "chance_high"), math.nan))
        for kind, of in (("interval", ""), ("chance", "chance_")):
            bounds = dict.fromkeys(_text(first[f"{of}{end}"], title) for end in ("low", "high"))
            texts[kind] = "" if math.isnan(first[f"{of}low"]) else " to ".join(bounds)
        rows.append({"measure": title} | texts)
        marks.append({label: _mark(row) for label, row in found.items()})
    columns = {"measure": Column("Measure"), **{label: Column(label, show=str) for label in labels}}
    if len(labels) == 1:
        columns |= {"interval": Column("95% interval", show=str), "chance": Column("Chance", show=str)}
    table = Table(
        frame=pd.DataFrame(rows, columns=list(columns)),
        columns=columns,
        caption=f"Text: {analysis.text}, {analysis.sequences} sequences asked for.",
        legend=(MARKS, *(line for kind, line in LEGEND.items() if any(name.startswith(kind) for name in shown))),
        marks=pd.DataFrame(marks),
    )
    # What is left out is said once for each reason and the checkpoints of which it is said.
    by_reason = analysis.left_out.groupby(["checkpoint", "reason"], sort=False)["measure"].agg(", ".join)
    alike = by_reason.reset_index().groupby(["measure", "reason"], sort=False)["checkpoint"].agg(", ".join)
    names = {"checkpoint": Column("Checkpoint"), "measure": Column("Left out"), "reason": Column("Reason")}
    left_out = [Table(frame=alike.reset_index(), columns=names, title="Left out")] if len(alike) else []
    return Page(title="Inside the encoders", tables=(table, *left_out), data=analysis.measures, decimals=6)


def _text(value: float, title: str) -> str:
    """A value as the table has it; a share near 1 with two decimals, as 99.97% is not all."""
    return f"{100 * value:.{2 if 0.99 < value < 1 else 1}f}" if title.endswith("(%)") else f"{value:.3g}"


def _mark(row: Mapping[str, float]) -> str:
    """Where a number lies beside the range of chance; beside an exact chance, where its own interval lies."""
    low, high = (row["value"], row["value"]) if row["chance_low"] < row["chance_high"] else (row["low"], row["high"])
    return f" {WORSE}" if high < row["chance_low"] else f" {BETTER}" if low > row["chance_high"] else ""


def write_analysis(analysis: Analysis, folder: Path) -> None:
    """Write analysis.json, analysis.md, measures.csv (every row of the table) and a CSV file for each matrix.

    analysis.json has each value by its name, with interval and chance; values of single heads are in measures.csv. The
    same numbers give the same bytes.

    Raises:
        DiskError: the folder cannot be written.
    """
    contents = {NUMBERS: json_text(_document(analysis)), PAGE: inside_page(analysis).to_markdown()}
    contents[ROWS] = csv_text(analysis.measures, float_format="%.8g")
    for name, frame in analysis.matrices.items():
        contents[f"{name}.csv"] = csv_text(frame, float_format="%.4g")
    with results_written_to(folder, "the measures are not kept"):
        for name, text in contents.items():
            write_atomically(folder / name, text.encode())


def _document(analysis: Analysis) -> dict[str, Any]:
    checkpoints = {}
    for facts in analysis.subjects.to_dict("records"):
        label, measures = facts.pop("checkpoint"), dict[str, Any]()
        rows = analysis.measures[(analysis.measures["checkpoint"] == label) & analysis.measures["head"].isna()]
        for row in rows.to_dict("records"):
            parent, _, last = row["measure"].rpartition(".")
            again = parent in BY_LAYER or row["measure"] in measures  # elsewhere the first block keeps the name
            told: dict[str, Any] = {"value": _rounded(row["value"])}
            for name, bounds in (("interval", ("low", "high")), ("chance", ("chance_low", "chance_high"))):
                if not pd.isna(row[bounds[0]]):
                    told[name] = [_rounded(row[bound]) for bound in bounds]
            told |= {"n": row["n"]} if row["n"] else {}
            measures[f"{parent}.{row['layer']}.{last}" if again else row["measure"]] = told
        left_out = analysis.left_out[analysis.left_out["checkpoint"] == label]
        reasons = dict(zip(left_out["measure"], left_out["reason"], strict=True))
        checkpoints[label] = {**facts, "measures": measures, "left_out": reasons}
    head = {"text": analysis.text, "text_sha256": analysis.text_digest, "sequences_asked": analysis.sequences}
    return {"schema_version": 1, **head, "matrices": list(analysis.matrices), "checkpoints": checkpoints}


def _rounded(value: float) -> float | None:
    """Eight significant digits, which the same input gives again on the same machine; None for what is not finite."""
    return float(f"{value:.8g}") if math.isfinite(value) else None


def read_analysis(folder: Path, weights: Collection[str]) -> Analysis | None:
    """What `write_analysis` has left of the encoders whose weights have these digests; None where there is nothing.

    Raises:
        UserError: a file of it cannot be read.
    """
    if not (folder / NUMBERS).is_file():
        return None
    try:
        document = parse_json(read_file(folder / NUMBERS))
        facts = {label: each for label, each in document["checkpoints"].items() if each["weights"] in weights}
        reasons = [(label, *pair) for label in facts for pair in facts[label]["left_out"].items()]
        frames = {name: pd.read_csv(folder / f"{name}.csv") for name in ("measures", *document["matrices"])}
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
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"'{folder}' is damaged ({error}); run `glue-bench analyse -o {folder}` again") from error
    return analysis if facts else None
