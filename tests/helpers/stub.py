"""Jobs that take a moment and train nothing, a worker of them that has mishaps, and engines for it.

A file `mishaps/<job>` beside the results says what happens to the job, the first time alone: `hang` (SIGSTOP), `raise`,
`fill` (a DiskError), `refuse` (a UserError), `diverge`, or `late` (SIGKILL when all is stored), perhaps after `raise`.
`die` (SIGKILL) lasts.
What only a driver needs is imported late: workers start a second sooner.
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
    """A plan of these jobs; `config` is what the experiment says beside."""
    cells = [job for job in jobs if isinstance(job, Cell)]
    costs = {
        "arms": {"add": ArmFacts(summary="", flops_per_token=1)},
        "tokens": dict.fromkeys(TRAINABLE, 100),
    }
    pretrainings = tuple(job for job in jobs if isinstance(job, Pretraining))
    return plan_with(*cells, experiment="stub", pretrainings=pretrainings, config=config, **costs)


class StubWorker:
    """As the real one: it writes how far it is, then the record or why there is none."""

    def __init__(self, store: Store, seconds: float = 0.0) -> None:
        self.store, self.seconds = store, seconds

    def run(self, job: Job) -> Result:
        begun, path = time.time(), self.store.folder / "mishaps" / job.id
        progress = Progress(
            id=job.id, worker=f"here:{os.getpid()}", began=begun, updated=begun, steps=2
        )
        self.store.write_progress(progress)
        with (self.store.folder / "attempts").open("a") as file:
            file.write(f"{job.id} {os.getpid()}\n")
        time.sleep(self.seconds)
        self.store.write_progress(progress.model_copy(update={"step": 1, "updated": time.time()}))
        mishap = path.read_text() if path.exists() else ""
        if mishap and mishap != "die":
            path.unlink()
        if mishap in ("die", "hang"):
            os.kill(os.getpid(), signal.SIGSTOP if mishap == "hang" else signal.SIGKILL)
        if mishap in ("fill", "refuse"):
            raise (DiskError if mishap == "fill" else UserError)("this machine has other files")
        result: Result = Failure(id=job.id, error="ValueError: no")
        if "raise" in mishap:
            self.store.write_failure(result)
        elif isinstance(job, Pretraining):
            loss = None if mishap == "diverge" else 1 / job.learning_rate
            points = (LossPoint(step=10, tokens=100, train_loss=1.0, seconds=1.0),)
            result = self.store.write(pretrained_of(job, validation_loss=loss, losses=points))
        else:
            scores, logits = (
                {"validation": {"accuracy": 0.5}},
                {"validation": np.zeros((2, 2), np.float32)},
            )
            result = self.store.write(
                record_of(job, seconds=self.seconds, scores=scores), logits=logits
            )
        if "late" in mishap:
            os.kill(os.getpid(), signal.SIGKILL)
        self.store.drop_progress(job.id)
        return result


def mishap(store: Store, job: Job, what: str) -> None:
    """What is to happen to a job."""
    (store.folder / "mishaps").mkdir(exist_ok=True)
    (store.folder / "mishaps" / job.id).write_text(what)


def attempts(store: Store, *jobs: Job) -> list[int]:
    """How often each job has been begun."""
    path = store.folder / "attempts"
    begun = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
    return [begun.count(job.id) for job in jobs]


def engine(name: str, store: Store, *jobs: Job, seconds: float = 0.0, **options) -> Executor:
    """`ray` or `slurm` with their options."""
    make = partial(StubWorker, store, seconds)
    if name == "ray":
        return Ray(make, **{"workers": 2, "address": None, "resources": Resources()} | options)
    from glue_bench.sweep import progress, slurm

    return slurm.Slurm(make, Resources(), store, progress.TimeEstimate(plan(*jobs)), options)


class Told:
    """An observer: what a loop says, and the jobs that have ended."""

    def __init__(self) -> None:
        self.lines, self.jobs = list[str](), list[Job]()
        self.begin = self.end = lambda *_: None

    def ended(self, job: Job, _: Result) -> None:
        self.jobs.append(job)

    def say(self, line: str) -> None:
        self.lines.append(line)


def drive(store: Store, executor: Executor, *jobs: Job, watching=(), **config) -> SimpleNamespace:
    """What comes of jobs: `finished` ids, errors by the ids of the `failed`, the `cause`, and the `lines` said."""
    from glue_bench.sweep.drive import Loop

    told = Told()
    results, cause = Loop(jobs, executor, store, plan(*jobs, **config), [*watching, told]).run()
    failed = {name: result.error for name, result in results.items() if isinstance(result, Failure)}
    finished = [job.id for job in told.jobs if job.id not in failed]
    return SimpleNamespace(finished=finished, failed=failed, cause=cause, lines=told.lines)
