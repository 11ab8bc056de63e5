"""Numbers and tables as text."""

import math
from collections.abc import Sequence

MISSING = "–"  # noqa: RUF001 (an en dash is what a table shows for nothing)


def number(value: float, decimals: int = 2) -> str:
    """Fixed decimals, no negative zero; empty for a missing value."""
    return "" if math.isnan(value) else f"{value:z.{decimals}f}"


def aligned(lines: Sequence[Sequence[str]], text_columns: int, text_last: bool = False) -> str:
    """A Markdown table with aligned columns: the first line is the header; text is set to the left.

    Text are the first `text_columns` and, with `text_last`, the last one.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = {*range(text_columns), *([len(widths) - 1] if text_last else [])}
    rule = ["-" * w if i in texts else "-" * (w - 1) + ":" for i, w in enumerate(widths)]

    def pad(line: Sequence[str]) -> list[str]:
        cells = enumerate(zip(line, widths, strict=True))
        return [cell.ljust(w) if i in texts else cell.rjust(w) for i, (cell, w) in cells]

    rows = [pad(lines[0]), rule, *map(pad, lines[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
