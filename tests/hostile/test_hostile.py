"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

500 generated inputs in the default suite, 20,000 under `-m slow`; and those by name that once were taken badly.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from inputs import GENERATORS
from named import CASES
from oracle import judge

FEW, MANY = 504, 20_020
EACH = (MANY if settings.default.max_examples > 100 else FEW) // len(GENERATORS)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller seed is no smaller input


@pytest.mark.parametrize("kind", GENERATORS)
@given(seed=st.integers(0, 2**64 - 1))
@settings(max_examples=EACH, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
def test_no_input_harms_hangs_or_confuses(world, kind, seed):
    words, writes = GENERATORS[kind](world, Random(seed))
    outcome = judge(words, writes)
    assert not outcome.complaints, outcome


@pytest.mark.parametrize("name", CASES)
def test_what_once_was_taken_badly(world, name):
    make, says = CASES[name]
    outcome = judge(*make(world))
    assert not outcome.complaints, outcome
    assert says in outcome.out + outcome.err, outcome
