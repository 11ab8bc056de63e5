"""Groups of arms that cannot be told apart. Being alike is not transitive, so an arm may be in two groups."""

from collections.abc import Collection, Iterable, Sequence
from string import ascii_lowercase

import pandas as pd

from glue_bench.stats.verdicts import Assessed

LETTER_COLUMNS = ["origin", "shape", "column", "arm", "mean", "letters"]


def letters_of(arms: Sequence[str], apart: Collection[frozenset[str]]) -> dict[str, str]:
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
    # a to z, then a1 to z1 and so on.
    letters = [letter + turn for turn in ("", *map(str, range(1, len(groups)))) for letter in ascii_lowercase]
    return {arm: "".join(letters[i] for i, group in enumerate(groups) if arm in group) for arm in arms}


def letters_frame(assessed: Iterable[Assessed], pairs: pd.DataFrame) -> pd.DataFrame:
    """Letters of each arm that has an interval, the best first: LETTER_COLUMNS; `pairs` are of `all_pairs`."""
    told = pairs[pairs["verdict"] != ""]
    keys = ["origin", "shape", "column"]
    apart = {
        key: {frozenset(pair) for pair in zip(mine["arm"], mine["reference"], strict=True)}
        for key, mine in told.groupby(keys)
    }
    rows = []
    for one in assessed:
        for estimate in one.estimates:
            key = (one.group.origin, one.group.shape, estimate.column)
            order = sorted(estimate.arms, key=estimate.means.__getitem__, reverse=not estimate.lowest_is_best)
            letters = letters_of(order, apart.get(key, set()))
            rows += [(*key, arm, estimate.means[arm], letters[arm]) for arm in order]
    return pd.DataFrame(rows, columns=LETTER_COLUMNS)
