"""Pretrainings side by side: the bits of the inline sweep, also where what ran one of them was lost in the middle."""

import io
import os
import signal
import sys

import pytest
from rich.console import Console
from safetensors.torch import load_file

from glue_bench.config import parse_experiment
from glue_bench.records.record import LossPoint
from glue_bench.records.store import Store
from glue_bench.sweep import run as sweep_module
from glue_bench.sweep.attempts import attempt
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.events import JobStarted, PretrainingPoint
from glue_bench.sweep.executors import InlineExecutor
from glue_bench.sweep.jobs import PlannedPretraining
from glue_bench.sweep.options import RunOptions
from glue_bench.sweep.order import longest_first
from glue_bench.sweep.plan import plan_cells, pretrainings_of
from glue_bench.sweep.schedule import Schedule
from glue_bench.sweep.stop import Stop
from glue_bench.training import pretrain
from glue_bench.training.compute import choose_compute
from glue_bench.training.inputs import Inputs


class Alternating(InlineExecutor):
    """Workers in one process: each takes a step of its job in turn. The `lost` pretraining loses its worker once."""

    def __init__(self, inputs: Inputs, workers: int, lost: str) -> None:
        super().__init__(inputs, choose_compute())
        self.workers, self.lost = workers, lost
        self.order: list[str] = []

    def run(self, schedule, on_start):
        under_way = []
        while schedule.open or under_way:
            while len(under_way) < self.workers and (job := schedule.take()):
                on_start(job, f"worker:{len(under_way)}")
                self.order.append(job.id)
                under_way.append((job, attempt(job, self.inputs, self.compute)))
            job, saying = under_way.pop(0)
            said = next(saying)
            if job.id.startswith(self.lost) and isinstance(said, LossPoint) and said.step == 6:
                self.lost = "-"
                saying.close()
                saying = attempt(job, self.inputs, self.compute)
            if isinstance(said, LossPoint):
                under_way.append((job, saying))
            yield job, said


def weights(folder) -> dict[str, bytes]:
    """The weights of all checkpoints by their paths."""
    found = {path.relative_to(folder): load_file(path) for path in folder.rglob("model.safetensors")}
    return {f"{path} {name}": t.numpy().tobytes() for path, tensors in found.items() for name, t in tensors.items()}


def kept(folder) -> dict[str, bytes]:
    """What must not differ: weights, predictions, tables without measured speeds."""
    files = [*(folder / "predictions").iterdir(), folder / "plan.json"]
    return weights(folder / "checkpoints") | {path.name: path.read_bytes() for path in files}


@pytest.fixture
def swept(tmp_path):
    """Run an experiment into a folder of this name; with an executor of `make`, or inline."""

    def run(values, name, make=None, observe=None, workers=None):
        with pytest.MonkeyPatch.context() as patch:
            if make:
                patch.setattr(sweep_module, "make_executor", lambda inputs, *_: make(inputs))
            console, options = Console(file=io.StringIO()), RunOptions(results=tmp_path / name, workers=workers)
            return sweep_module.sweep(parse_experiment(values), options, console, observe)

    return run


@pytest.fixture
def jobs(values, tmp_path):
    """Those of three arms, two seeds and a search, as workers get them: the longest first."""
    searched = {"seeds": [1, 2], "learning_rates": [1e-4, 1e-3], "rate_search": {"steps": 4}}
    experiment = parse_experiment(values(searched, arms=["add", "untied", "none"]))
    inputs = Inputs(experiment, tmp_path / "checkpoints")
    cells = plan_cells(experiment, inputs)
    return longest_first(
        [*cells, *pretrainings_of(cells, inputs)], lambda job: 1.0 + isinstance(job, PlannedPretraining)
    )


@pytest.mark.usefixtures("small_demo")
def test_each_job_waits_for_its_own_start_alone(jobs, tmp_path):
    with Claims(tmp_path / "claims") as claims:
        stop = Stop(Console(file=io.StringIO()))
        schedule = Schedule(jobs, claims=claims, stop=stop, ready=lambda job: job, say=pytest.fail)
        searches = [schedule.take() for _ in range(6)]
        assert all(job.is_search for job in searches)
        assert schedule.take() is None
        add = [job for job in searches if job.arm == "add"]
        schedule.end(add[0])
        assert schedule.take() is None
        schedule.end(add[1])
        first, second = schedule.take(), schedule.take()
        assert {(job.arm, job.run.settings.seed) for job in (first, second)} == {("add", 1), ("add", 2)}
        assert schedule.take() is None
        schedule.end(second)
        cell = schedule.take()
        assert (cell.arm, cell.cell.pretraining_seed) == ("add", second.run.settings.seed)
        assert schedule.take() is None
        assert schedule.left == 6 + 6 + 6 - 3


@pytest.mark.usefixtures("small_demo")
def test_arms_that_alternate_and_one_that_is_lost_end_with_the_inline_bits(values, swept, monkeypatch):
    monkeypatch.setattr(pretrain, "SAVE_SECONDS", 0)
    experiment, made = values({"seeds": [1, 2]}), []

    def make(inputs):
        made.append(Alternating(inputs, 2, "untied"))
        return made[0]

    whole = swept(experiment, "inline")
    summary = swept(experiment, "alternating", make)
    assert (summary.finished, summary.failed) == (4, {})
    assert made[0].lost == "-"
    assert kept(summary.folder) == kept(whole.folder)
    (record, *_) = Store(summary.folder).read_pretrainings()
    assert [point.step for point in record.losses] == list(range(1, 11))


class Killer:
    """An observer that kills the worker of a pretraining once, at a step, and notes what is told."""

    def __init__(self, arm: str, step: int) -> None:
        self.arm, self.step = arm, step
        self.workers: dict[str, list[str]] = {}
        self.killed = False

    def hear(self, event) -> None:
        if isinstance(event, JobStarted):
            self.workers.setdefault(event.job.id, []).append(event.worker)
        is_there = isinstance(event, PretrainingPoint) and event.job.arm == self.arm and event.point.step >= self.step
        if is_there and not self.killed:
            self.killed = True
            os.kill(int(self.workers[event.job.id][-1].rpartition(":")[2]), signal.SIGKILL)


def eager(job, inputs, compute):
    """A job whose state is saved at every step."""
    from glue_bench.training import pretrain

    pretrain.SAVE_SECONDS = 0
    yield from attempt(job, inputs, compute)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_two_seeds_of_three_arms_on_two_workers_have_the_inline_bits(values, swept):
    """One worker is killed in the middle of a pretraining."""
    ray = pytest.importorskip("ray")
    from glue_bench.sweep.ray_executor import RayExecutor

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings = {"seeds": [1, 2], "steps": 60}
    experiment = values(settings, arms=["add", "untied", "none"], finetuning={"learning_rates": [1e-3], "epochs": 1})
    whole = swept(experiment, "inline")
    killer = Killer("untied", 30)

    def make(inputs):
        return RayExecutor(inputs.experiment, inputs.folder, workers=2, attempt=eager)

    summary = swept(experiment, "workers", make, lambda _: killer, workers=2)
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert (summary.finished, summary.failed) == (6, {})
    assert killer.killed
    again = [workers for workers in killer.workers.values() if len(workers) > 1]
    assert len(again) == 1
    assert len({worker for workers in killer.workers.values() for worker in workers}) == 3
    assert kept(summary.folder) == kept(whole.folder)
    for record in Store(summary.folder).read_pretrainings():
        assert record.steps == 60
    assert not (summary.folder / "claims").exists()
