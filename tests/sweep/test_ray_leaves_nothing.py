"""Workers of this machine: the process that asked for them is as it was, and may ask again."""

import io
from importlib import import_module

import pytest
from rich.console import Console
from test_process import changed, snapshot

from glue_bench.api import run
from glue_bench.errors import UserError

pytestmark = pytest.mark.slow
MAY_DIFFER = {"open files", "warnings", "frozen objects"}
"""Ray closes its files some time later; what it imports when it starts says how often its warnings are shown; and of
what the tests have frozen some objects come to their end."""


def test_workers_leave_nothing_and_start_again(tiny, tmp_path):
    ray = pytest.importorskip("ray")
    import_module("glue_bench.sweep.ray_executor")
    import_module("datasets")
    before = snapshot()

    def call(**changes):
        values = tiny(**{"arms": ["add"], "tasks": ["cola"]} | changes)
        return run(values, results=tmp_path, workers=1, console=Console(file=io.StringIO()))

    for seed in (1, 2):
        assert call(seeds=[seed]).finished == 1
        assert set(changed(before, snapshot())) <= MAY_DIFFER
    with pytest.raises(UserError, match="no machine has room"):
        call(seeds=[3], resources={"gpus": 64})
    assert set(changed(before, snapshot())) <= MAY_DIFFER
    assert not ray.is_initialized()
