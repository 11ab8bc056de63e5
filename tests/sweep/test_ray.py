"""Cells on Ray's workers: the inline sweep's tables to the byte, whatever becomes of workers and machines."""

import io
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from stored import documents

from glue_bench.api import run
from glue_bench.errors import UserError
from glue_bench.records.record import RunFacts
from glue_bench.records.store import Store
from glue_bench.sweep import run as sweep_module
from glue_bench.training.finetune import Outcome

ray = pytest.importorskip("ray")
from glue_bench.sweep import cluster as cluster_module  # noqa: E402
from glue_bench.sweep.ray_executor import RayExecutor  # noqa: E402

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL"), pytest.mark.slow]

TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")
FINETUNING = {"epochs": 1, "from_mnli": ["rte"]}


@pytest.fixture(scope="module")
def cluster():
    """A head and one more machine, of two CPUs and one, as far as Ray knows."""
    from ray.cluster_utils import Cluster

    sizes = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    os.environ |= cluster_module.RAY_SETTINGS  # beside other work, workers of Ray's own priority would take minutes
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **sizes})
    made.other = made.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    cluster_module._connect(0, made.address)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield made
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ray.shutdown()
    made.shutdown()


class Listener(io.StringIO):
    """A console that does something once so many cells have ended."""

    def __init__(self, cells: int, action) -> None:
        super().__init__()
        self.cells, self.action = cells, action

    def write(self, text: str) -> int:
        written = super().write(text)
        if f"[{self.cells}/" in text and self.action:
            action, self.action = self.action, None
            action()
        return written


def nothing(planned) -> Outcome:  # noqa: ARG001
    scores = {"validation": {"matthews_correlation": 0.5}}
    record = {
        "origin": "scratch", "scores": scores, "history": [], "collapsed": [], "seconds": {"total": 0.0},
        "tokens": {}, "parameters": 1, "environment": {},
    }  # fmt: skip
    return Outcome(RunFacts.model_validate(record), {"validation": np.zeros((2, 2), np.float32)})


@pytest.fixture
def sweep_with(tiny, tmp_path, monkeypatch):
    """A sweep of CoLA with six seeds on the cluster, unless told otherwise, each cell being `attempt`."""

    def run_it(attempt, console=None, seeds=6):
        def make_executor(inputs, *_):
            said = lambda job, inputs, _: iter([attempt(job, inputs)])  # noqa: E731 - a function that Ray can send
            return RayExecutor(inputs.experiment, inputs.folder, address="auto", attempt=said)

        monkeypatch.setattr(sweep_module, "make_executor", make_executor)
        values = tiny(arms=["add"], tasks=["cola"], seeds=[*range(1, seeds + 1)])
        return run(values, results=tmp_path / "runs", console=console or Console(file=io.StringIO()), address="auto")

    return run_it


@pytest.mark.usefixtures("cluster")
def test_a_killed_workers_cell_is_run_again_twice_at_most_and_one_that_raises_is_not(sweep_with, tmp_path):
    marks = tmp_path

    class OwnError(Exception):
        """One that only the worker knows, and that cannot be pickled."""

        def __init__(self) -> None:
            super().__init__("out of luck")
            self.lock = threading.Lock()

    def killed(planned, _):
        seed, mark = planned.cell.seed, marks / f"{planned.cell.seed}-{os.getpid()}"
        mark.touch()
        attempts = len(list(marks.glob(f"{seed}-*")))
        if seed == 1 or (seed == 2 and attempts < 2):
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 3:
            raise OwnError
        return nothing(planned)

    summary = sweep_with(killed)
    assert summary.finished == 4
    errors = {int(cell_id.split("-s")[1][0]): error for cell_id, error in summary.failed.items()}
    assert set(errors) == {1, 3}
    assert errors[1].startswith("its worker was lost 3 times: ")
    assert "worker process has died" in errors[1]
    assert len(errors[1]) < 300
    assert "out of luck" in errors[3]
    assert len(list(marks.glob("1-*"))) == 3
    assert len(list(marks.glob("2-*"))) == 2
    assert {failure["error"] for failure in documents(Store(summary.folder), "failures")} == set(errors.values())


@pytest.mark.usefixtures("cluster")
def test_what_would_meet_every_cell_ends_the_sweep(sweep_with):
    def full(planned, _):
        if planned.cell.seed == 2:
            raise UserError("cannot write '/cache': No space left on device; earlier cells are kept")
        return nothing(planned)

    with pytest.raises(UserError, match=r"^cannot write '/cache': No space left on device"):
        sweep_with(full)


@pytest.mark.usefixtures("cluster")
def test_handing_a_cell_out_and_storing_it_takes_milliseconds(sweep_with):
    """benchmarks/scheduling.py in short; the bound is for a busy machine."""
    moments: list[float] = []
    console = Console(file=Listener(1, lambda: moments.append(time.perf_counter())))
    summary = sweep_with(lambda planned, _: nothing(planned), console, seeds=300)
    assert (summary.finished, summary.failed) == (300, {})
    assert (time.perf_counter() - moments[0]) / 300 < 0.05


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_cannot_start_ends_the_sweep(sweep_with, monkeypatch):
    monkeypatch.setattr(Path, "cwd", lambda: Path("/no/such/folder"))
    with pytest.raises(UserError, match=r"has no folder '/no/such/folder' \(No such file or directory\)"):
        sweep_with(lambda planned, _: nothing(planned))


@pytest.mark.usefixtures("cluster")
def test_ctrl_c_lets_running_cells_end(sweep_with):
    console = Console(file=Listener(1, lambda: signal.raise_signal(signal.SIGINT)))
    summary = sweep_with(lambda planned, _: nothing(planned), console)
    assert summary.interrupted
    assert 1 <= summary.finished < 6
    assert len(documents(Store(summary.folder))) == summary.finished
    assert not (summary.folder / "claims").exists()


@pytest.mark.usefixtures("cluster")
def test_a_cell_that_no_machine_can_hold_is_refused_at_once(tiny, tmp_path):
    with pytest.raises(UserError, match=r"no machine has room for a cell, which takes 64 CPUs and 0 GPUs .*2 CPUs"):
        run(tiny(resources={"cpus": 64}), results=tmp_path, workers=2, console=Console(file=io.StringIO()))


@pytest.mark.usefixtures("cluster", "small_demo")
def test_a_machine_with_other_data_ends_the_sweep(sweep_with):
    """The little demo is that of this process only."""
    with pytest.raises(UserError, match=r"sees other data, text, checkpoint, tokenizer or plugin than this one"):
        sweep_with(lambda planned, _: nothing(planned))


# Last: the cluster is smaller afterwards.
def test_a_machine_lost_in_mid_sweep_costs_nothing(cluster, tiny, tmp_path):
    values = tiny(tasks=["stsb", "rte", "mnli"], seeds=[1, 2, 3], finetuning=FINETUNING)
    whole = run(values, results=tmp_path / "inline", console=Console(file=io.StringIO()))
    console = Console(file=Listener(6, lambda: cluster.remove_node(cluster.other, allow_graceful=False)))
    summary = run(values, results=tmp_path / "ray", console=console, address=cluster.address)
    assert (summary.finished, summary.failed) == (18, {})
    assert cluster.other not in cluster.list_all_nodes()
    for name in TABLES:
        assert (summary.folder / name).read_bytes() == (whole.folder / name).read_bytes()
    for path in (whole.folder / "predictions").iterdir():
        assert (summary.folder / "predictions" / path.name).read_bytes() == path.read_bytes()
    threads = {record["environment"]["threads"] for record in documents(Store(summary.folder))}
    assert threads == {1}


def test_without_ray_one_line_says_how_to_install_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "glue_bench.sweep.ray_executor")
    with pytest.raises(UserError, match=r"^--workers .* need Ray; install it: pip install 'glue-bench\[ray\]'$"):
        run(tiny(), results=tmp_path, workers=2)
