"""Letters: properties that hold for any verdicts, and cases worked by hand."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.stats.verdicts import letters_of

ARMS = [f"arm{i}" for i in range(7)]
PAIRS = list(combinations(ARMS, 2))
apart_pairs = st.sets(st.sampled_from(PAIRS)).map(lambda pairs: {frozenset(pair) for pair in pairs})


@given(apart_pairs)
def test_arms_share_a_letter_exactly_if_they_are_not_told_apart_and_no_letter_is_needless(apart):
    letters = letters_of(ARMS, apart)
    for a, b in PAIRS:
        assert bool(set(letters[a]) & set(letters[b])) == (frozenset({a, b}) not in apart)
    assert all(letters.values())
    members = [{arm for arm in ARMS if letter in letters[arm]} for letter in set("".join(letters.values()))]
    assert not any(a < b for a in members for b in members)
    assert len({frozenset(group) for group in members}) == len(members)


@pytest.mark.parametrize(
    ("apart", "letters"),
    [
        ([], "a a a"),
        ([(0, 2)], "a ab b"),  # alike is not transitive
        ([(0, 1), (0, 2)], "a b b"),
        ([(0, 1), (0, 2), (1, 2)], "a b c"),
    ],
)
def test_by_hand(apart, letters):
    arms = ["x", "y", "z"]
    pairs = {frozenset({arms[i], arms[j]}) for i, j in apart}
    assert list(letters_of(arms, pairs).values()) == letters.split()
    assert letters_of([], set()) == {}
