"""What `analyse` leaves in its folder: analysis.json, analysis.md, and a CSV file for each tidy frame."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.files import results_written_to, write_atomically
from glue_bench.reporting.analysis_page import analysis_page
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.numbers import csv_text, json_text


def write_analysis(document: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write the files; the paths written. The same numbers give the same bytes.

    analysis.json names the frames, so that a file which an earlier analysis has left there is not taken for one.

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
