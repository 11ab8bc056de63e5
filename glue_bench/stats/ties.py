"""Ranks and groups of arms that cannot be told apart. Being tied is not transitive, so an arm may be in two groups."""

from collections.abc import Collection, Iterable, Sequence
from string import ascii_lowercase

import pandas as pd

from glue_bench.stats.pairs import AssessedBlock
from glue_bench.values import BLOCK, BlockKey

RANK_COLUMNS = ["origin", "column", "arm", "mean", "n", "rank", "group", "shape"]
Pairs = Collection[frozenset[str]]


def groups_of(arms: Sequence[str], apart: Pairs) -> dict[str, str]:
    """Compact letters for arms in order, the best first: two arms share a letter exactly if they are not in `apart`.

    Insert and absorb (Piepho 2004, "An algorithm for a letter-based representation of all-pairwise comparisons").
    """
    groups = [frozenset(arms)] if arms else []
    for pair in sorted(apart, key=sorted):
        split: list[frozenset[str]] = []
        for group in groups:
            split += [group - {arm} for arm in sorted(pair)] if pair <= group else [group]
        # What another group holds is absorbed; of equal groups the first stays.
        groups = [
            group
            for i, group in enumerate(split)
            if not any(group < other or (group == other and j < i) for j, other in enumerate(split))
        ]
    groups.sort(key=lambda group: sorted(map(arms.index, group)))
    return {arm: "".join(_letter(i) for i, group in enumerate(groups) if arm in group) for arm in arms}


def ranks_of(arms: Sequence[str], apart: Pairs) -> dict[str, int]:
    """1 + the number of arms that are better and told apart, for arms in order, the best first."""
    return {arm: 1 + sum(frozenset({arm, better}) in apart for better in arms[:i]) for i, arm in enumerate(arms)}


def ranks_frame(blocks: Iterable[AssessedBlock], statistics: pd.DataFrame) -> pd.DataFrame:
    """One row per block, column and arm: RANK_COLUMNS, arms by their mean.

    `mean` in points over `n` seeds. Arms without an interval have no rank (NaN) and no group (""). Ranks and groups
    come from the verdicts of `statistics`, what `compare` makes of the blocks.
    """
    rows = [row for block in blocks for row in _block_rows(block, statistics)]
    return pd.DataFrame(rows, columns=RANK_COLUMNS).astype({"mean": float, "rank": float})


def of_block(frame: pd.DataFrame, block: BlockKey) -> pd.DataFrame:
    """The rows of a block."""
    return frame[(frame[BLOCK] == list(block)).all(axis=1)]


def tied_best(ranks: pd.DataFrame, statistics: pd.DataFrame, block: BlockKey, column: str) -> frozenset[str]:
    """The arm with the highest mean of a block's column and those not told apart from it: what a table sets in bold.

    Arms without an interval are never among them, unless none has one: then the highest mean alone is best. An arm
    without a rival is best of nothing.
    """
    mine = of_block(ranks[ranks["column"] == column], block).dropna(subset="mean")
    tested = mine.dropna(subset="rank")
    if len(mine) < 2:
        return frozenset()
    if tested.empty:
        return frozenset(mine.loc[mine["mean"] == mine["mean"].max(), "arm"])
    best = tested.sort_values("mean", ascending=False, kind="stable")["arm"].iloc[0]
    apart = told_apart(statistics, block, column)
    return frozenset(arm for arm in tested["arm"] if frozenset({arm, best}) not in apart)


def told_apart(statistics: pd.DataFrame, block: BlockKey, column: str) -> Pairs:
    """The pairs of a block's column with a verdict for one arm."""
    mine = of_block(statistics[statistics["column"] == column], block)
    told = mine[mine["verdict"].isin(["a", "b"])]
    return {frozenset(pair) for pair in zip(told["arm_a"], told["arm_b"], strict=True)}


def _block_rows(block: AssessedBlock, statistics: pd.DataFrame) -> Iterable[dict[str, object]]:
    for assessed in block.assessed:
        apart = told_apart(statistics, block.key, assessed.column)
        order = sorted(assessed.means, key=lambda arm: -assessed.means[arm])
        tested = [arm for arm in order if arm not in assessed.why]
        letters, ranks = groups_of(tested, apart), ranks_of(tested, apart)
        for arm in [*order, *(arm for arm in assessed.arms if arm not in assessed.means)]:
            yield {
                **dict(zip(BLOCK, block.key, strict=True)),
                "column": assessed.column,
                "arm": arm,
                "mean": assessed.means.get(arm),
                "n": assessed.seeds[arm],
                "rank": ranks.get(arm),
                "group": letters.get(arm, ""),
            }


def _letter(number: int) -> str:
    """a to z, then a1 to z1 and so on."""
    turn, place = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[place] + (str(turn) if turn else "")
