"""Jobs that take a moment and train nothing, a worker of them that has mishaps, and engines for it.

A file `mishaps/<job>` beside the results says what happens to the job, the first time alone: `hang`
(SIGSTOP), `raise`, `fill` (a DiskError), `refuse` (a UserError), `diverge`, or `late` (SIGKILL when
all is stored), perhaps after `raise`. `die` (SIGKILL) lasts. What only a driver needs is imported
late: workers start a second sooner.
"""

import os
import signal
import time
from functools import partial
from types import SimpleNamespace

import numpy as np

from glue_bench.config import Resources
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import DiskError, UserError
from glue_bench.records.store import Store
from glue_bench.records.values import (
    ArmFacts,
    Cell,
    Failure,
    Job,
    LossPoint,
    Plan,
    Pretraining,
    Progress,
    Result,
)
from glue_bench.sweep.executors import Executor, Ray
from helpers.stored import cell_with, plan_with, pretrained_of, pretraining_with, record_of


def cell(seed: int, task: str = "cola", **facts) -> Cell:
    return cell_with(seed=seed, task=task, **facts)


def pretraining(rates=(1e-3,), **facts) -> Pretraining:
    search = {"rate_search": {"steps": 2}} if len(rates) > 1 else {}
    return pretraining_with(steps=10, settings={"learning_rates": [*rates], **search}, **facts)


def plan(*jobs: Job, **config) -> Plan:
    """Return a plan of these jobs; `config` is what the experiment says beside."""
    return plan_with(
        *(job for job in jobs if isinstance(job, Cell)),
        experiment="stub",
        pretrainings=tuple(job for job in jobs if isinstance(job, Pretraining)),
        config=config,
        arms={"add": ArmFacts(summary="", flops_per_token=1)},
        tokens=dict.fromkeys(TRAINABLE, 100),
    )


class StubWorker:
    """Writes how far it is, then the record or why there is none, as the real worker does."""

    def __init__(self, store: Store, seconds: float = 0.0) -> None:
        self.store = store
        self.seconds = seconds

    def run(self, job: Job) -> Result:
        """Do a job, unless a mishap keeps it from that."""
        mishap = self._begin(job)

        if mishap == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        if mishap == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if mishap == "fill":
            raise DiskError("this machine has other files")
        if mishap == "refuse":
            raise UserError("this machine has other files")

        result: Result = Failure(id=job.id, error="ValueError: no")
        if "raise" in mishap:
            self.store.write_failure(result)
        elif isinstance(job, Pretraining):
            result = self._pretrain(job, mishap)
        else:
            result = self._finetune(job)

        if "late" in mishap:
            os.kill(os.getpid(), signal.SIGKILL)
        self.store.progress.drop(job.id)
        return result

    def _begin(self, job: Job) -> str:
        """Write progress twice, and return what happens to the job."""
        start = time.time()
        worker = f"here:{os.getpid()}"
        progress = Progress(id=job.id, worker=worker, began=start, updated=start, steps=2)
        self.store.progress.write(progress)
        with (self.store.folder / "attempts").open("a") as file:
            file.write(f"{job.id} {os.getpid()}\n")
        time.sleep(self.seconds)
        self.store.progress.write(progress.model_copy(update={"step": 1, "updated": time.time()}))
        path = self.store.folder / "mishaps" / job.id
        mishap = path.read_text() if path.exists() else ""
        if mishap and mishap != "die":
            path.unlink()
        return mishap

    def _pretrain(self, job: Pretraining, mishap: str) -> Result:
        loss = None if mishap == "diverge" else 1 / job.learning_rate
        points = (LossPoint(step=10, tokens=100, train_loss=1.0, seconds=1.0),)
        return self.store.write(pretrained_of(job, validation_loss=loss, losses=points))

    def _finetune(self, job: Cell) -> Result:
        scores = {"validation": {"accuracy": 0.5}}
        record = record_of(job, seconds=self.seconds, scores=scores)
        return self.store.write(record, logits={"validation": np.zeros((2, 2), np.float32)})


def mishap(store: Store, job: Job, kind: str) -> None:
    """Let something happen to a job."""
    (store.folder / "mishaps").mkdir(exist_ok=True)
    (store.folder / "mishaps" / job.id).write_text(kind)


def attempts(store: Store, *jobs: Job) -> list[int]:
    """Return how often each job has been begun."""
    path = store.folder / "attempts"
    lines = path.read_text().splitlines() if path.exists() else []
    ids = [line.split()[0] for line in lines]
    return [ids.count(job.id) for job in jobs]


def engine(name: str, store: Store, *jobs: Job, seconds: float = 0.0, **options) -> Executor:
    """Start `ray` or `slurm` with their options."""
    make = partial(StubWorker, store, seconds)
    if name == "ray":
        usual = {"workers": 2, "address": None, "resources": Resources()}
        return Ray(make, **usual | options)
    from glue_bench.sweep import progress, slurm

    return slurm.Slurm(make, Resources(), store, progress.TimeEstimate(plan(*jobs)), options)


class Observer:
    """Notes what a loop says, and the jobs that have ended."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.jobs: list[Job] = []
        self.begin = self.end = lambda *_: None

    def ended(self, job: Job, _: Result) -> None:
        self.jobs.append(job)

    def say(self, line: str) -> None:
        self.lines.append(line)


def drive(store: Store, executor: Executor, *jobs: Job, watching=(), **config) -> SimpleNamespace:
    """Drive jobs to their end.

    Returns:
        `finished` ids, the errors of those that `failed` by id, the `cause`, and the `lines` that
        were printed.
    """
    from glue_bench.sweep.drive import Loop

    observer = Observer()
    observers = [*watching, observer]
    results, cause = Loop(jobs, executor, store, plan(*jobs, **config), observers).run()
    failed = {name: result.error for name, result in results.items() if isinstance(result, Failure)}
    finished = [job.id for job in observer.jobs if job.id not in failed]
    return SimpleNamespace(finished=finished, failed=failed, cause=cause, lines=observer.lines)
