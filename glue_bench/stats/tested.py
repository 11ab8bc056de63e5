"""Which arms of a column have an interval, and why the others have none."""

from collections.abc import Mapping, Sequence

import numpy as np

from glue_bench.stats.runs import ColumnRuns


def find_rows(column_runs: ColumnRuns, arms: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the indices of each arm's runs, by pretraining seed and then by fine-tuning seed."""
    scores = column_runs.runs
    order = np.lexsort((scores.seeds, scores.pretraining_seeds))
    owners = scores.arms[order]
    rows_by_arm: dict[str, np.ndarray] = {}
    for arm in arms:
        is_owner = owners == column_runs.arms.index(arm)
        rows_by_arm[arm] = order[is_owner]
    return rows_by_arm


def has_blocks(pretrainings: Mapping[str, set[int]]) -> bool:
    """Return whether there are several pretraining seeds among all arms."""
    seeds: set[int] = set()
    for seeds_of_arm in pretrainings.values():
        seeds |= seeds_of_arm
    return len(seeds) > 1


def common_seeds(pretrainings: Mapping[str, set[int]], arms: Sequence[str]) -> set[int]:
    """Return the pretraining seeds that all of these arms have."""
    common: set[int] = set(pretrainings[arms[0]]) if arms else set()
    for arm in arms:
        common &= pretrainings[arm]
    return common


def untested_arms(
    column_runs: ColumnRuns,
    rows_by_arm: Mapping[str, np.ndarray],
    pretrainings: Mapping[str, set[int]],
    reference: str,
) -> dict[str, str]:
    """Return by arm why it has no interval, for the arms that have none.

    Args:
        column_runs: The runs of the column.
        rows_by_arm: The indices of each arm's runs.
        pretrainings: The pretraining seeds of each arm.
        reference: The arm that the others are compared with.
    """
    blocked = has_blocks(pretrainings)
    expected = pretrainings.get(reference, set()) if blocked else set()
    untested: dict[str, str] = {}

    for arm, rows in rows_by_arm.items():
        seeds = len(pretrainings[arm]) if blocked else len(rows)
        missing = len(expected - pretrainings[arm])
        if not len(rows):
            untested[arm] = "no finished run"
        elif arm in column_runs.problems:
            # It comes first because a damaged or missing file has to be mended in any case.
            untested[arm] = column_runs.problems[arm]
        elif seeds == 1 and not column_runs.single_runs:
            kind = "pretraining seed" if blocked else "seed"
            untested[arm] = f"one {kind} does not show how much scores vary"
        elif np.isnan(column_runs.runs.values[rows]).any():
            untested[arm] = "a run has no score"
        elif column_runs.independent_examples == 1:
            unit = "example" if column_runs.clusters is None else "cluster of examples"
            untested[arm] = f"one {unit} does not show how much scores vary"
        elif missing:
            untested[arm] = f"{missing} of {len(expected)} pretraining seeds are missing"

    tested = [arm for arm in rows_by_arm if arm not in untested]
    if blocked and len(common_seeds(pretrainings, tested)) < 2:
        reason = "the arms have fewer than two pretraining seeds in common"
        untested |= dict.fromkeys(tested, reason)
    return untested
