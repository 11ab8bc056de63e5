"""Names of blocks, and names as sentences have them."""

from collections.abc import Iterable

BlockKey = tuple[str, str]
BLOCK = ["origin", "shape"]
"""The columns of every table whose values, a BlockKey, name a block: arms are ranked only within one."""


def series(names: Iterable[str]) -> str:
    """Names as a sentence has them: "a", "a and b", "a, b and c"; nothing for none."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last
