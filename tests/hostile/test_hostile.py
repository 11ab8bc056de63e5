"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

500 generated inputs in the default suite, the same in each run; 20,000 under `-m slow`, others in each run; and those
by name that once were taken badly. The 20,000 take hours: with a folder GLUE_BENCH_HOSTILE_LOG, which then holds how
many of each kind were tried and what was found, a run goes on from where the last one came.
"""

import json
import os
from pathlib import Path
from random import Random
from secrets import randbits

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from inputs import GENERATORS
from named import CASES
from oracle import judge

FEW = {
    "experiments": 12,
    "data": 12,
    "checkpoints": 402,
    "names": 36,
    "submissions": 24,
    "results": 8,
    "bundles": 6,
}
"""How many of each kind: the fewer, the longer one takes."""
MANY = 2860
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller seed is no smaller input


@pytest.mark.parametrize("kind", GENERATORS)
def test_no_input_harms_hangs_or_confuses(world, kind):
    @given(st.integers(0, 2**64 - 1))
    @settings(
        **{"max_examples": FEW[kind], "phases": PHASES, "deadline": None},
        **{"derandomize": True, "suppress_health_check": list(HealthCheck)},
    )
    def holds(seed):
        outcome = judge(*GENERATORS[kind](world, Random(seed)))
        assert not outcome.complaints, outcome

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
def test_none_of_20_000_inputs_does(world, kind, tmp_path):
    path = Path(os.environ.get("GLUE_BENCH_HOSTILE_LOG", tmp_path)) / f"{kind}.json"
    log = json.loads(path.read_text()) if path.exists() else {"base": randbits(64), "tried": 0, "found": []}
    while log["tried"] < MANY:
        outcome = judge(*GENERATORS[kind](world, Random(f"{log['base']} {log['tried']}")))
        log["found"] += [f"{log['base']} {log['tried']}: {outcome}"] if outcome.complaints else []
        log["tried"] += 1
        path.write_text(json.dumps(log, indent=1))
    assert not log["found"], "\n\n".join(log["found"])


@pytest.mark.parametrize("name", CASES)
def test_what_once_was_taken_badly(world, name):
    make, says = CASES[name]
    outcome = judge(*make(world))
    assert not outcome.complaints, outcome
    assert says in outcome.out + outcome.err, outcome
