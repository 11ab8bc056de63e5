"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

500 inputs in the default suite, 20,000 under `-m slow`.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import GENERATORS
from oracle import judge

FEW, MANY = 504, 20_020
EACH = (MANY if settings.default.max_examples > 100 else FEW) // len(GENERATORS)


@pytest.mark.parametrize("kind", GENERATORS)
@given(seed=st.integers(0, 2**64 - 1))
@settings(max_examples=EACH, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_input_harms_hangs_or_confuses(world, kind, seed):
    words, writes = GENERATORS[kind](world, Random(seed))
    outcome = judge(words, writes)
    assert not outcome.complaints, outcome
