"""The inside of encoders as one page: each question, the number, its baseline, and what follows; and as files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.files import results_written_to, write_atomically
from glue_bench.reporting.analysis_questions import QUESTIONS, Question, Side, at, side
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.grid import Grid, Page, PageSection
from glue_bench.tables.numbers import MISSING, csv_text, json_text

NOTES = (
    "A number says something by its distance to the baseline beside it, which is what chance alone gives.",
    "`analysis.json` has every number, with its interval where it has one, and the CSV files what the figures draw.",
)


def write_analysis(document: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write analysis.json, analysis.md and a CSV file for each frame; the paths written.

    The same numbers give the same bytes. analysis.json names the frames, so that a file which an earlier analysis has
    left in the folder is not taken for one.

    Raises:
        DiskError: the folder cannot be written.
    """
    contents = {
        "analysis.json": json_text({**document, "frames": sorted(frames)}),
        "analysis.md": render_page(analysis_page(document)),
    }
    for name, frame in frames.items():
        contents[f"{name}.csv"] = csv_text(frame, float_format="%.4g")
    with results_written_to(folder, "the measures are not kept"):
        for name, text in contents.items():
            write_atomically(folder / name, text.encode())
    return [folder / name for name in contents]


def analysis_page(document: Mapping[str, Any]) -> Page:
    """The page of an analysis.json."""
    checkpoints = document["checkpoints"]
    sections = [section for question in QUESTIONS if (section := _section(question, checkpoints))]
    lead = f"Text: {document['text']}, {document['sequences_asked']} sequences asked for."
    return Page(
        title="The inside of " + ", ".join(checkpoints),
        lead=lead,
        sections=tuple(sections),
        notes=(*_left_out(checkpoints), *NOTES),
    )


def _section(question: Question, checkpoints: Mapping[str, Any]) -> PageSection | None:
    """A question with one row per checkpoint; None where no checkpoint answers it."""
    rows = []
    sides: dict[Side, list[str]] = {}
    for label, numbers in checkpoints.items():
        value, baseline = at(numbers, question.number), at(numbers, question.baseline)
        if value is None or baseline is None:
            continue
        interval = at(numbers, question.interval)
        if interval and None in interval:  # an older analysis wrote what one sequence alone does not tell
            interval = None
        sides.setdefault(side(value, baseline, interval), []).append(label)
        shown = _shown(value, question) + (f" [{_shown(interval, question)}]" if interval else "")
        rows.append((label, shown, _shown(baseline, question)))
    if not rows:
        return None
    header = ("Checkpoint", question.what, f"Baseline: {question.against}")
    several = len(rows) > 1
    said = [(f"{', '.join(labels)}: " if several else "") + getattr(question, which) for which, labels in sides.items()]
    return PageSection(
        title=question.title,
        text=" ".join([*said, question.but]),
        grid=Grid.of(header, rows),
    )


def _shown(value: float | list[float], question: Question) -> str:
    if isinstance(value, list):
        return " to ".join(_shown(each, question) for each in value)
    decimals = 2 if 0.99 < value < 1 else 1  # 99.97% is not all
    return f"{100 * value:.{decimals}f}%" if question.percent else f"{value:.3g}"


def _left_out(checkpoints: Mapping[str, Any]) -> list[str]:
    """One line for each reason for which measures do not apply to the same checkpoints."""
    found: dict[tuple[str, str], list[str]] = {}
    for label, numbers in checkpoints.items():
        for place, reason in reasons(numbers):
            found.setdefault((place, reason), []).append(label)
    alike: dict[tuple[str, str], list[str]] = {}
    for (place, reason), labels in found.items():
        alike.setdefault((", ".join(labels), reason), []).append(place)
    return [f"Left out of {labels}: {', '.join(places)} ({reason})." for (labels, reason), places in alike.items()]


def reasons(numbers: Mapping[str, Any], place: str = "") -> list[tuple[str, str]]:
    """(measure, reason) of all that is left out of a checkpoint's numbers."""
    found = [(place or MISSING, str(numbers["left_out"]))] if "left_out" in numbers else []
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            found += reasons(value, f"{place}.{name}" if place else name)
    return found
