"""Which arms can be told apart: every pair on every column and on the average, corrected for their number."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, groupby
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS
from glue_bench.stats.differences import estimate
from glue_bench.stats.measures import AVERAGE, NOT_AVERAGED, Assessed, average_measure, column_measure
from glue_bench.stats.outcomes import Outcomes
from glue_bench.stats.resampling import RESAMPLES, Pair, Swapped, bootstrap_covariance, swapped
from glue_bench.values import BlockKey

ALPHA = 0.05
SWAPS_PER_TEST = 40
"""A permutation test of B swaps cannot go below 1 / (1 + B); after correction the least p is then ALPHA / 2."""
P_VALUES = ["p_bootstrap", "p_pooled", "p_permutation"]
NUMBERS = ["difference", "low", "high", *P_VALUES, "p_holm"]
COLUMNS_OF_STATISTICS = [
    "origin", "column", "arm_a", "arm_b", "difference", "low", "high", "seeds_a", "seeds_b", *P_VALUES, "p_holm",
    "verdict", "why", "shape",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AssessedBlock:
    """One block's arms: their columns, then the average; and the pairs after random swaps, by column."""

    key: BlockKey
    assessed: tuple[Assessed, ...]
    swaps: Mapping[str, Mapping[Pair, Swapped]]


def assess(outcomes: Iterable[Outcomes], resamples: int = RESAMPLES) -> list[AssessedBlock]:
    """Resample each column once; outcomes come block by block. One column's predictions are held at a time."""
    return [_block(key, mine, resamples) for key, mine in groupby(outcomes, key=lambda o: o.block)]


def compare(blocks: Sequence[AssessedBlock]) -> pd.DataFrame:
    """Every pair of arms of one block, on every column and on `average`: COLUMNS_OF_STATISTICS.

    `difference` is that of the means over seeds of the main metric, arm_a less arm_b, in points; `low` and `high`
    its 95% interval over seeds and examples. `p_holm` is the largest of the three p-values, corrected by Holm's method
    for all pairs and columns of the block. `verdict` is "a" or "b" for the arm told better (p_holm < 0.05),
    "tied", or "" where `why` says what is missing, and then interval and p-values are NaN.
    """
    frames = [_corrected(pd.DataFrame(_rows(block), columns=COLUMNS_OF_STATISTICS)) for block in blocks]
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=COLUMNS_OF_STATISTICS)


def holm(p_values: np.ndarray) -> np.ndarray:
    """p-values after Holm's step-down correction (Holm 1979); NaN, a test that was not made, does not count."""
    adjusted = np.full(len(p_values), np.nan)
    made = np.flatnonzero(~np.isnan(p_values))
    order = made[np.argsort(p_values[made], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def _block(key: BlockKey, columns: Iterable[Outcomes], resamples: int) -> AssessedBlock:
    seen: list[Outcomes] = []
    assessed: list[Assessed] = []
    swaps: dict[str, Mapping[Pair, Swapped]] = {}
    for outcomes in columns:
        tests = len(list(combinations(outcomes.arms, 2))) * (len(COLUMNS) + 1)
        known = outcomes.rows > 0
        assessed.append(column_measure(outcomes, bootstrap_covariance(outcomes, resamples) if known else None))
        swaps[outcomes.column] = swapped(outcomes, max(resamples, SWAPS_PER_TEST * tests)) if known else {}
        seen.append(outcomes.without_examples())
    average = average_measure(seen, assessed)
    swaps[AVERAGE] = _mean_swaps([swaps[outcomes.column] for outcomes in seen if outcomes.column != NOT_AVERAGED])
    return AssessedBlock(key=key, assessed=(*assessed, average), swaps=swaps)


def _mean_swaps(columns: Sequence[Mapping[Pair, Swapped]]) -> dict[Pair, Swapped]:
    """The average's: swapping in all columns at once, for the pairs that all of them have."""
    everywhere = set.intersection(*(set(column) for column in columns)) if columns else set()
    return {
        pair: Swapped(
            float(np.mean([column[pair].observed for column in columns])),
            sum((column[pair].differences for column in columns), start=np.zeros(1)) / len(columns),
        )
        for pair in everywhere
    }


def _rows(block: AssessedBlock) -> list[dict[str, Any]]:
    origin, shape = block.key
    return [
        {"origin": origin, "shape": shape, **_row(assessed, block.swaps[assessed.column], pair)}
        for assessed in block.assessed
        for pair in combinations(assessed.arms, 2)
    ]


def _row(assessed: Assessed, swaps: Mapping[Pair, Swapped], pair: Pair) -> dict[str, Any]:
    a, b = pair
    missing = float("nan")
    row: dict[str, Any] = dict.fromkeys(NUMBERS, missing) | {
        "column": assessed.column,
        "arm_a": a,
        "arm_b": b,
        "difference": assessed.means.get(a, missing) - assessed.means.get(b, missing),
        "seeds_a": assessed.seeds[a],
        "seeds_b": assessed.seeds[b],
        "why": _why(assessed, pair),
    }
    if not row["why"] and assessed.measure is not None:
        row |= asdict(estimate(assessed.measure, a, b)) | {"p_permutation": swaps[pair].p}
    return row


def _why(assessed: Assessed, pair: Pair) -> str:
    arms = [arm for arm in pair if arm in assessed.why]
    reasons = dict.fromkeys(assessed.why[arm] for arm in arms)
    return "; ".join(
        f"{reason} ({', '.join(arm for arm in arms if assessed.why[arm] == reason)})" for reason in reasons
    )


def _corrected(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.astype(dict.fromkeys(NUMBERS, float))
    adjusted = holm(frame[P_VALUES].max(axis=1, skipna=False).to_numpy())
    told = np.where(frame["difference"] > 0, "a", "b")
    verdict = np.where(np.isnan(adjusted), "", np.where(adjusted < ALPHA, told, "tied"))
    return frame.assign(p_holm=adjusted, verdict=verdict)
