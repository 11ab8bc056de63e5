"""The verbs `statistics` and `power` as text: a page, or the numbers behind it as CSV or JSON."""

from pathlib import Path

import pandas as pd

from glue_bench.records.store import open_store
from glue_bench.reporting.assessment import assess_experiment
from glue_bench.reporting.document import Page
from glue_bench.reporting.formats import chosen_format, render_page
from glue_bench.reporting.plain import frame_csv, json_text, plain_rows
from glue_bench.reporting.statistics_page import page_of, power_page
from glue_bench.stats.power import power_frame

P_DECIMALS = 6


def render_statistics(path: str | Path, format: str = "markdown") -> str:
    """Pairs and ranks of the experiment in the folder `path`; CSV has the pairs alone.

    Raises:
        UserError: the format is unknown, there is no experiment in `path`.
    """
    chosen_format(format)
    statistics = assess_experiment(open_store(path))
    if format == "csv":
        return frame_csv(statistics.pairs, P_DECIMALS)
    page = page_of(statistics)
    if format == "json":
        return _json(page, pairs=statistics.pairs, ranks=statistics.ranks)
    return render_page(page, format)


def render_power(path: str | Path, difference: float, power: float, format: str = "markdown") -> str:
    """Seeds needed to see a difference; raises as `render_statistics` and `power_frame`."""
    chosen_format(format)
    statistics = assess_experiment(open_store(path))
    page = power_page(statistics, difference, power)
    if format not in ("csv", "json"):
        return render_page(page, format)
    frame = power_frame(statistics.blocks, difference, power)
    return frame_csv(frame, P_DECIMALS) if format == "csv" else _json(page, rows=frame)


def _json(page: Page, **frames: pd.DataFrame) -> str:
    rows = {name: plain_rows(frame, P_DECIMALS) for name, frame in frames.items()}
    return json_text({"title": page.title, "notes": list(page.notes), **rows})
