"""DataFrames as CSV and JSON: fixed decimals, and nothing for what is missing."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from glue_bench.reporting.markdown import number


def frame_csv(frame: pd.DataFrame, decimals: int = 2) -> str:
    """A table as CSV."""
    shown = {str(name): frame[name].map(lambda value: number(value, decimals)) for name in frame.select_dtypes("float")}
    return frame.assign(**shown).to_csv(index=False, lineterminator="\n")


def plain_rows(frame: pd.DataFrame, decimals: int = 2) -> list[dict[str, Any]]:
    """A table's rows for JSON."""
    return [{str(name): _plain(value, decimals) for name, value in row.items()} for row in frame.to_dict("records")]


def json_text(document: Mapping[str, Any]) -> str:
    """A document as JSON."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any, decimals: int) -> Any:
    if not isinstance(value, float):
        return None if value is pd.NA else value
    return None if math.isnan(value) else float(number(value, decimals))
