"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

500 generated inputs in the default suite, the same in each run; 20,000 under `-m slow`, others in each run; and those
by name that once were taken badly.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from inputs import GENERATORS
from named import CASES
from oracle import judge

FEW = {
    "experiments": 40,
    "data": 40,
    "checkpoints": 350,
    "names": 36,
    "submissions": 24,
    "results": 8,
    "bundles": 6,
}
"""How many of each kind: the fewer, the longer one takes."""
MANY = 2860
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller seed is no smaller input


def check(world, kind, count, *, same):
    """So many inputs of a kind."""

    @given(st.integers(0, 2**64 - 1))
    @settings(
        max_examples=count, phases=PHASES, deadline=None, derandomize=same, suppress_health_check=list(HealthCheck)
    )
    def holds(seed):
        outcome = judge(*GENERATORS[kind](world, Random(seed)))
        assert not outcome.complaints, outcome

    holds()


@pytest.mark.parametrize("kind", GENERATORS)
def test_no_input_harms_hangs_or_confuses(world, kind):
    check(world, kind, FEW[kind], same=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
def test_none_of_20_000_inputs_does(world, kind):
    check(world, kind, MANY, same=False)


@pytest.mark.parametrize("name", CASES)
def test_what_once_was_taken_badly(world, name):
    make, says = CASES[name]
    outcome = judge(*make(world))
    assert not outcome.complaints, outcome
    assert says in outcome.out + outcome.err, outcome
