"""What the report is made from."""

from collections.abc import Sequence
from pathlib import Path

from glue_bench.reporting.findings import Findings
from glue_bench.tables.export import find as compared

Paths = str | Path | Sequence[str | Path]


def find(path: Paths) -> Findings:
    """A leaderboard and its verdicts, which several experiments together have none of. Raises as `open_board`."""
    return Findings(comparison=compared(path))
