"""The files of an analysis of encoders: how they are written, and read for a report."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
from pandas import DataFrame

from glue_bench.analysis.chance import Analysis
from glue_bench.files import parse_json, read_file, results_written_to, write_atomically
from glue_bench.pages.inside import inside_page
from glue_bench.pages.render import csv_text, json_text, to_markdown

NUMBERS_FILE = "analysis.json"
PAGE_FILE = "analysis.md"
ROWS_FILE = "measures.csv"
BY_LAYER = ("layers", "decoding.layers", "positions.attention")
"""The beginnings of measures whose names in analysis.json have the layer before the last part."""


def write_analysis(analysis: Analysis, folder: Path) -> None:
    """Write an analysis to a folder; the same numbers give the same bytes.

    The files are analysis.json, which has each value by its name, with interval and chance;
    analysis.md; measures.csv, which has every row; and a CSV file for each matrix. Raises DiskError
    if the folder cannot be written.
    """
    contents = {
        NUMBERS_FILE: json_text(analysis_document(analysis)),
        PAGE_FILE: to_markdown(inside_page(analysis)),
        ROWS_FILE: csv_text(analysis.measures, float_format="%.8g"),
    }
    for name, frame in analysis.matrices.items():
        contents[f"{name}.csv"] = csv_text(frame, float_format="%.4g")
    with results_written_to(folder, "the measures are not kept"):
        for name, text in contents.items():
            write_atomically(folder / name, text.encode())


def analysis_document(analysis: Analysis) -> dict[str, Any]:
    """Return the content of analysis.json."""
    checkpoints = {}
    for facts in analysis.subjects.to_dict("records"):
        label = facts.pop("checkpoint")
        measures = analysis.measures[analysis.measures["checkpoint"] == label]
        left_out = analysis.left_out[analysis.left_out["checkpoint"] == label]
        checkpoints[label] = {
            **facts,
            "measures": measure_entries(measures),
            "left_out": dict(zip(left_out["measure"], left_out["reason"], strict=True)),
        }
    return {
        "schema_version": 1,
        "text": analysis.text,
        "text_sha256": analysis.text_digest,
        "sequences_asked": analysis.sequences,
        "matrices": list(analysis.matrices),
        "checkpoints": checkpoints,
    }


def measure_entries(measures: DataFrame) -> dict[str, Any]:
    """Give the measures of one checkpoint by their names: value, interval, chance and n, if known.

    If a measure has a row for each block, the entry of the first block has the measure's own name.
    """
    entries: dict[str, Any] = {}
    for row in measures.to_dict("records"):
        name = row["measure"]
        parent, _, last = name.rpartition(".")
        if parent in BY_LAYER or name in entries:
            name = f"{parent}.{row['layer']}.{last}"
        entry: dict[str, Any] = {"value": eight_digits(row["value"])}
        if not math.isnan(row["low"]):
            entry["interval"] = [eight_digits(row["low"]), eight_digits(row["high"])]
        if not math.isnan(row["chance_low"]):
            entry["chance"] = [eight_digits(row["chance_low"]), eight_digits(row["chance_high"])]
        if row["n"]:
            entry["n"] = row["n"]
        entries[name] = entry
    return entries


def eight_digits(value: float) -> float | None:
    """Round to eight significant digits, which every run reproduces; None if not finite."""
    return float(f"{value:.8g}") if math.isfinite(value) else None


def read_analysis(folder: Path, weights: Collection[str]) -> Analysis | None:
    """Read the files that `write_analysis` has written.

    Args:
        folder: The folder of the analysis.
        weights: The digests of the encoders to read.

    Returns:
        The analysis of these encoders; None if there is none.

    Raises:
        OSError, ValueError, LookupError, TypeError, AttributeError: a file is damaged.
    """
    if not weights or not (folder / NUMBERS_FILE).is_file():
        return None
    document = parse_json(read_file(folder / NUMBERS_FILE))

    subjects = []
    reasons = []
    for label, facts in document["checkpoints"].items():
        if facts["weights"] in weights:
            subjects.append({"checkpoint": label, **facts})
            for measure, reason in facts["left_out"].items():
                reasons.append((label, measure, reason))

    labels = [subject["checkpoint"] for subject in subjects]
    frames = {}
    for name in ("measures", *document["matrices"]):
        frame = read_rows(folder / f"{name}.csv")
        frames[name] = frame[frame["checkpoint"].isin(labels)]

    analysis = Analysis(
        text=str(document["text"]),
        text_digest=str(document["text_sha256"]),
        sequences=int(document["sequences_asked"]),
        subjects=DataFrame(subjects),
        measures=frames.pop("measures"),
        left_out=DataFrame(reasons, columns=["checkpoint", "measure", "reason"]),
        matrices=frames,
    )
    return analysis if subjects else None


def read_rows(path: Path) -> DataFrame:
    """Read a CSV file of an analysis; a checkpoint's name is a text, also if it is NA or 1."""
    types = {"layer": "Int64", "checkpoint": "str"}
    return pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])
