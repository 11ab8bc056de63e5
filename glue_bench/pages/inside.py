"""The page of an analysis of encoders: each number is marked by the range that chance gives."""

import math
from typing import Any

from pandas import DataFrame

from glue_bench.analysis.chance import Analysis
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import BETTER, WORSE, Column, Page, Table, with_legend

INSIDE_TITLE = "Inside the encoders"
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
"""The measures that the table shows, and their names there; (%) are shares times 100."""
INSIDE_LEGEND = {
    "marks": "▼ below, ▲ above the range that chance gives; no mark: inside it.",
    "terms": "Mixed terms: word to position and position to word, in block 1. "
    "Chance: positions turned at random.",
    "subspaces": "Overlap of covariances: 1 of unrelated tables. "
    "Chance: positions turned at random.",
    "decoding": "Told from the sum: words by the nearest row, positions by a linear probe. "
    "Chance: random positions.",
    "positions": "Positions: their rows by a linear probe, their scores in block 1. "
    "Chance: random rows, random order.",
    "dimensions": "Dimensions: those with 95% of the variance. "
    "Chance: normal numbers, dimensions in random order.",
    "order": "Swapped neighbours: an encoder without positions has 50%. "
    "The mark is by the number's own interval.",
}
"""The lines that explain the marks, and the headlines by the first part of their names."""
CELL_PARTS = ["text", "mark", "interval", "chance"]
"""The texts that `cell_parts` returns for a measure."""
LEFT_OUT_COLUMNS = {
    "checkpoint": Column("Checkpoint"),
    "measure": Column("Left out"),
    "reason": Column("Reason"),
}


def inside_page(analysis: Analysis) -> Page:
    """Make the page of an analysis: its HEADLINES, and what was left out.

    As CSV and JSON it has the whole table of measures.
    """
    tables = [headlines_table(analysis)]
    if len(analysis.left_out):
        tables.append(left_out_table(analysis))
    return Page(title=INSIDE_TITLE, tables=tuple(tables), data=analysis.measures, decimals=6)


def headlines_table(analysis: Analysis) -> Table:
    """Make the table of headlines: a row for each measure, a column for each checkpoint.

    If there is a single checkpoint, two more columns have its interval and the range of chance.
    """
    measures = analysis.measures
    is_shown = measures["measure"].isin(HEADLINES)
    rows = measures[is_shown].drop_duplicates(["checkpoint", "measure"])
    names = [name for name in HEADLINES if name in set(rows["measure"])]
    # A checkpoint may be called `measure`: no other column can have the label of its column.
    labels = {
        checkpoint: f"checkpoint: {checkpoint}" for checkpoint in analysis.subjects["checkpoint"]
    }
    parts = DataFrame([cell_parts(row) for row in rows.to_dict("records")], columns=CELL_PARTS)
    parts["measure"] = rows["measure"].tolist()
    parts["column"] = rows["checkpoint"].map(labels).tolist()

    def spread(part: str) -> DataFrame:
        wide = parts.pivot(index="measure", columns="column", values=part)
        return wide.reindex(names, columns=list(labels.values()))

    frame = spread("text").fillna(MISSING)
    frame["measure"] = [HEADLINES[name] for name in names]
    columns = {"measure": Column("Measure")}
    for checkpoint, label in labels.items():
        columns[label] = Column(checkpoint, show=str)
    if len(labels) == 1:
        frame["interval"] = spread("interval").iloc[:, 0]
        frame["chance"] = spread("chance").iloc[:, 0]
        columns["interval"] = Column("95% interval", show=str)
        columns["chance"] = Column("Chance", show=str)
    table = Table(
        frame=frame,
        columns=columns,
        caption=f"Text: {analysis.text}, {analysis.sequences} sequences asked for.",
        marks=spread("mark"),
    )
    kinds = [name.partition(".")[0] for name in names]
    return with_legend([table], INSIDE_LEGEND, ["marks", *kinds])[0]


def left_out_table(analysis: Analysis) -> Table:
    """Make the table of what was left out: a row for each reason, with its checkpoints."""
    by_reason = analysis.left_out.groupby(["checkpoint", "reason"], sort=False)["measure"]
    measures = by_reason.agg(", ".join).reset_index()
    by_measures = measures.groupby(["measure", "reason"], sort=False)["checkpoint"]
    frame = by_measures.agg(", ".join).reset_index()
    return Table(frame=frame, columns=LEFT_OUT_COLUMNS, title="Left out")


def cell_parts(row: dict[Any, Any]) -> tuple[str, str, str, str]:
    """Write the value, mark, interval and chance of a measure (CELL_PARTS).

    The mark says whether the value is below or above the range of chance. If chance is a single
    number, the mark says whether the interval of the value lies below or above it.
    """
    is_share = HEADLINES[row["measure"]].endswith("(%)")
    low = high = row["value"]
    if not row["chance_low"] < row["chance_high"]:
        low = row["low"]
        high = row["high"]
    mark = ""
    if high < row["chance_low"]:
        mark = f" {WORSE}"
    elif low > row["chance_high"]:
        mark = f" {BETTER}"
    return (
        value_text(row["value"], is_share=is_share),
        mark,
        chance_range_text(row["low"], row["high"], is_share=is_share),
        chance_range_text(row["chance_low"], row["chance_high"], is_share=is_share),
    )


def value_text(value: float, *, is_share: bool) -> str:
    """Write a value, a share times 100; 99.97% is not all, and has two decimals."""
    if not is_share:
        return f"{value:.3g}"
    decimals = 2 if 0.99 < value < 1 else 1
    return f"{100 * value:.{decimals}f}"


def chance_range_text(low: float, high: float, *, is_share: bool) -> str:
    """Write the ends of a range, once if they look the same; empty if there is no range."""
    if math.isnan(low):
        return ""
    low_text = value_text(low, is_share=is_share)
    high_text = value_text(high, is_share=is_share)
    return low_text if low_text == high_text else f"{low_text} to {high_text}"
