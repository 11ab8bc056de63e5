"""Ranks and letters: properties that hold for any verdicts, and cases worked by hand."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.stats.ties import groups_of, ranks_of

ARMS = [f"arm{i}" for i in range(7)]
PAIRS = list(combinations(ARMS, 2))
verdicts = st.sets(st.sampled_from(PAIRS)).map(lambda pairs: {frozenset(pair) for pair in pairs})


@given(verdicts)
def test_arms_share_a_letter_exactly_if_they_are_not_told_apart(apart):
    groups = groups_of(ARMS, apart)
    for a, b in PAIRS:
        assert bool(set(groups[a]) & set(groups[b])) == (frozenset({a, b}) not in apart)
    assert all(groups.values())


@given(verdicts)
def test_no_letter_is_needless(apart):
    groups = groups_of(ARMS, apart)
    members = [{arm for arm in ARMS if letter in groups[arm]} for letter in set("".join(groups.values()))]
    assert not any(a < b for a in members for b in members)
    assert len({frozenset(group) for group in members}) == len(members)


@given(verdicts)
def test_the_best_is_first_and_ranks_count_those_told_better(apart):
    ranks = ranks_of(ARMS, apart)
    assert ranks[ARMS[0]] == 1
    for place, arm in enumerate(ARMS):
        assert 1 <= ranks[arm] <= place + 1


@pytest.mark.parametrize(
    ("apart", "letters", "ranks"),
    [
        ([], "a a a", [1, 1, 1]),
        ([(0, 2)], "a ab b", [1, 1, 2]),  # tied is not transitive
        ([(0, 1), (0, 2)], "a b b", [1, 2, 2]),
        ([(0, 1), (0, 2), (1, 2)], "a b c", [1, 2, 3]),
    ],
)
def test_by_hand(apart, letters, ranks):
    arms = ["x", "y", "z"]
    pairs = {frozenset({arms[i], arms[j]}) for i, j in apart}
    assert list(groups_of(arms, pairs).values()) == letters.split()
    assert list(ranks_of(arms, pairs).values()) == ranks


def test_no_arm_has_no_letter():
    assert groups_of([], set()) == {}
