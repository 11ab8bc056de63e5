"""Numbers and tables as text."""

import math
from collections.abc import Sequence

MISSING = "–"  # noqa: RUF001 (an en dash is what a table shows for nothing)


def number(value: float, decimals: int = 2) -> str:
    """Fixed decimals, no negative zero; empty for a missing value."""
    return "" if math.isnan(value) else f"{value:z.{decimals}f}"


def aligned(lines: Sequence[Sequence[str]], text_columns: int) -> str:
    """A Markdown table with aligned columns: the first line is the header, `text_columns` are set to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * w if i < text_columns else "-" * (w - 1) + ":" for i, w in enumerate(widths)]

    def pad(line: Sequence[str]) -> list[str]:
        cells = enumerate(zip(line, widths, strict=True))
        return [cell.ljust(w) if i < text_columns else cell.rjust(w) for i, (cell, w) in cells]

    rows = [pad(lines[0]), rule, *map(pad, lines[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
