"""An engine is read, and refused, before anything is imported or asked for it."""

import subprocess
import sys

import pytest

from glue_bench.errors import UserError
from glue_bench.sweep.engine import MAX_WORKERS, Engine


@pytest.mark.parametrize("workers", [None, 1, MAX_WORKERS, "auto"])
def test_an_engine_has_the_workers_that_it_is_given(workers):
    assert Engine.parse(workers, None, None) == Engine(workers=workers)


@pytest.mark.parametrize("workers", [0, -1, MAX_WORKERS + 1, True, 2.0, "2", "many", ""])
def test_workers_that_are_no_number_of_processes_are_refused(workers):
    with pytest.raises(
        UserError, match=f"^workers .*: give a whole number from 1 to {MAX_WORKERS}, or auto$"
    ):
        Engine.parse(workers, None, None)


@pytest.mark.parametrize("address", ["head:1", "head:65535", "[::1]:6379"])
def test_a_host_and_a_port_are_an_address(address):
    Engine(address=address).check()


@pytest.mark.parametrize(
    "address",
    ["", "head", "head:", ":6379", "head:0", "head:65536", "ray://head:6379", "head:6379/a"],
)
def test_what_is_no_host_and_port_is_refused(address):
    with pytest.raises(
        UserError, match=r"^--address is HOST:PORT with a port from 1 to 65535, not "
    ):
        Engine(address=address).check()


@pytest.mark.parametrize("options", [{"workers": 2}, {"workers": "auto"}, {"address": "head:6379"}])
def test_slurm_goes_with_no_other_engine(options):
    with pytest.raises(UserError, match=r"^--slurm goes without --workers and --address"):
        Engine(slurm={}, **options).check()


@pytest.mark.parametrize(
    ("options", "is_elsewhere"),
    [({}, False), ({"workers": 2}, False), ({"address": "head:6379"}, True), ({"slurm": {}}, True)],
)
def test_jobs_of_a_cluster_run_elsewhere(options, is_elsewhere):
    assert Engine(**options).is_elsewhere is is_elsewhere


def test_an_engine_is_checked_without_torch():
    imports = "import sys; from glue_bench.sweep.engine import Engine"
    code = f"{imports}; Engine(workers=2).check(); print('torch' in sys.modules)"
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"
