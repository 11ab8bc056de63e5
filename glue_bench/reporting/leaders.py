"""Which arms lead a column."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import pandas as pd

from glue_bench.reporting.markdown import number
from glue_bench.results.encoders import blocks_of

Leaders = Mapping[str, AbstractSet[str]]
HIGHEST = "Bold is the best of a column within its block"


def highest(table: pd.DataFrame, columns: Iterable[str]) -> dict[str, frozenset[str]]:
    """Column -> the arms with the best mean of their block as shown, so that a tie to two decimals is a tie.

    `table` has BLOCK, `arm` and the columns, a row an arm. An arm without a rival in its block leads nothing.
    """
    blocks = [block.set_index("arm") for _, block in blocks_of(table)]
    return {name: frozenset(arm for block in blocks for arm in _best(block[name])) for name in columns}


def _best(means: pd.Series) -> list[str]:
    known = means.dropna()
    if len(known) < 2:
        return []
    return list(known.index[known.map(number) == number(known.max())])
