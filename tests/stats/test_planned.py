"""Contrasts named beforehand: arms that they do not name change nothing, and few are found where none is true."""

import numpy as np
import pytest
from simulated import REGIMES, simulate

from glue_bench.stats.estimates import combined, of_blocks
from glue_bench.stats.verdicts import ALPHA, NUMBERS, Group, assess, declared, holm, two_sided, verdicts

PLANNED = [("b", "a"), ("c", "a"), ("d", "c")]
CASES = [{"seeds": 3}, {"seeds": 1, "pretrainings": 4, "pretraining": 0.03, "block": 0.2}]


def assessed(names, case):
    """Some of eight arms of one experiment, of which the last four vary more."""
    rates, wild = dict.fromkeys("abcdefgh", 0.8), dict.fromkeys("efgh", 9.0)
    drawn = simulate(np.random.default_rng(1), columns=["rte", "cola"], rates=rates, unstable=wild,
                     regime=REGIMES["all three"], **case)  # fmt: skip
    kept = [np.isin(one.owners, [one.arms.index(name) for name in names]) for one in drawn]
    outcomes = [one.of(np.flatnonzero(chosen)) for one, chosen in zip(drawn, kept, strict=True)]
    return assess(outcomes, [Group(origin="o", shape="s", arms=tuple(names), reference="a")])


@pytest.mark.parametrize("case", CASES, ids=["fine-tuning", "pretraining"])
def test_arms_that_no_contrast_names_change_no_planned_row(case):
    whole, named = (assessed(names, case) for names in ("abcdefgh", "abcd"))
    frames = [declared(one, PLANNED) for one in (whole, named)]
    assert frames[0]["column"].unique().tolist() == ["average", "rte", "cola"]
    np.testing.assert_allclose(frames[0][NUMBERS].to_numpy(float), frames[1][NUMBERS].to_numpy(float), rtol=1e-13)
    # Other families look at all arms.
    assert (verdicts(whole)["error"][:3] > verdicts(named)["error"][:3]).all()


def test_all_arms_named_is_what_pairs_are_pooled_over():
    (one,) = assessed("abcd", CASES[1])
    pairs = verdicts([one], every=True)
    every = declared([one], list(zip(pairs["arm"], pairs["reference"], strict=True))[:6])
    np.testing.assert_allclose(every["error"], pairs["error"])


NAMED, OTHERS = 10, 3
CONTRASTS = [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 7), (4, 7), (8, 5), (2, 9)]
"""Those of the study: the first arm is the reference of five."""
DEVIATION = 0.034
"""Nats over pretraining seeds, as in the study."""


def found(blocks, pooled, *, effect=0.0, factors=None, draws=4000):
    """Of drawn experiments without examples: the share with any finding, and that of the first contrast's."""
    generator = np.random.default_rng([blocks, 7])
    spread = DEVIATION * np.sqrt(factors if factors is not None else np.ones(NAMED + OTHERS))
    means = generator.normal(size=(draws, NAMED + OTHERS, blocks)) * spread[:, None]
    means[:, 1] += effect
    spreads, means = [of_blocks(means[:, :pooled])], means.mean(axis=-1)
    p = np.empty((draws, len(CONTRASTS)))
    for i, (arm, reference) in enumerate(CONTRASTS):
        variance, freedom = combined(spreads, [arm, reference], 0.0, 0.0)
        p[:, i] = two_sided(means[:, arm] - means[:, reference], np.sqrt(variance), freedom)
    seen = np.array([holm(each, len(CONTRASTS)) * each < ALPHA for each in p])
    return seen.any(axis=1).mean(), seen[:, 0].mean()


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [3, 4, 5, 8])
def test_false_findings_are_few_whoever_varies_much_and_arms_that_are_not_named_cost_no_power(blocks):
    """The rule's table: at most 2% with equal variances or wild exploratory arms, about 4% with a wild reference."""
    wild, first = np.repeat([1.0, 9.0], [NAMED, OTHERS]), np.repeat([9.0, 1.0], [1, NAMED + OTHERS - 1])
    for factors, most in ((None, 0.027), (wild, 0.027), (first, 0.05)):
        assert found(blocks, NAMED, factors=factors)[0] < most
    assert found(blocks, NAMED, factors=wild)[0] == found(blocks, NAMED)[0]
    named, every = (found(4, pooled, effect=0.1, factors=wild)[1] for pooled in (NAMED, NAMED + OTHERS))
    assert named == found(4, NAMED, effect=0.1)[1]
    assert named > every + 0.2
