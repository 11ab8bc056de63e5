"""`--workers auto`, and what is said of cores that would be idle."""

import io

import pytest
import torch
from rich.console import Console

from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.config.sections import Resources
from glue_bench.errors import UserError
from glue_bench.sweep import run as sweeping
from glue_bench.sweep.executors import room_here
from glue_bench.sweep.options import RunOptions
from glue_bench.training.compute import Compute


@pytest.fixture
def machine(monkeypatch):
    """Pretends to be a machine of so many cores and GPUs; where it computes, on a GPU if there is one."""

    def pretend(cores, gpus=0):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        compute = Compute(torch.device("cuda" if gpus else "cpu"), False, cores)
        monkeypatch.setattr(sweeping, "choose_compute", lambda *_: compute)
        return compute

    return pretend


@pytest.mark.parametrize(
    ("cores", "gpus", "needs", "expected"),
    [
        (8, 0, {}, 8),
        (8, 0, {"cpus": 3}, 2),
        (8, 0, {"cpus": 5}, None),
        (1, 0, {}, None),
        (8, 1, {}, None),
        (8, 1, {"gpus": 0.25}, 4),
        (8, 1, {"gpus": 1.0}, None),
        (8, 2, {"gpus": 0.4}, 4),  # a share is one of a single GPU
        (8, 3, {"gpus": 0.7}, 3),
        (8, 1, {"gpus": 1 / 3}, 3),
        (8, 4, {"gpus": 1.0, "cpus": 4}, 2),
    ],
)
def test_a_worker_takes_its_cpus_and_its_share_of_a_gpu(machine, cores, gpus, needs, expected):
    assert room_here(Resources(**needs), machine(cores, gpus)) == expected


@pytest.mark.parametrize("workers", [0, -1, 2.0, True, "all", "2", 10**9])
def test_what_is_no_number_of_workers(workers):
    with pytest.raises(UserError, match=r"^workers .*: give a whole number from 1 to 4096, or auto$"):
        RunOptions(workers=workers)


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize(("cores", "address", "expected"), [(4, None, 4), (1, None, None), (4, "auto", None)])
def test_auto_is_settled_before_anything_runs(tiny, tmp_path, machine, monkeypatch, cores, address, expected):
    machine(cores)
    asked = []

    def stop(_inputs, options, _compute):
        asked.append(options.processes)
        raise UserError("far enough")

    monkeypatch.setattr(sweeping, "make_executor", stop)
    with pytest.raises(UserError, match="far enough"):
        sweeping.sweep(parse_experiment(tiny()), RunOptions(results=tmp_path, workers="auto", address=address))
    assert asked == [expected]


@pytest.mark.usefixtures("small_demo")
def test_idle_cores_are_said_where_workers_would_use_them(tiny, tmp_path, machine):
    def idle(workers=None, **changes):
        console = Console(file=io.StringIO(), width=300)
        experiment = tiny(arms=["add"], tasks=["cola"], **changes)
        run(experiment, results=tmp_path, dry_run=True, workers=workers, console=console)
        return [line for line in console.file.getvalue().splitlines() if "core" in line]

    machine(4)
    assert idle(seeds=[1, 2, 3]) == ["one of 4 cores is at work (narrow encoder); glue-bench run --workers auto uses 3"]
    assert idle(seeds=[1, 2, 3], workers=2) == []
    assert idle(seeds=[1]) == []
    machine(1)
    assert idle(seeds=[1, 2, 3]) == []
    machine(4)
    assert idle(seeds=[1, 2, 3], scratch={"hidden_size": 256}) == []
