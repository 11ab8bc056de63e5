"""Jobs that take a moment and train nothing, a worker of them that has mishaps, and engines for it.

A file `mishaps/<job>` beside the results says what happens to the job: `die` (SIGKILL), `hang` (SIGSTOP), `raise`,
`refuse` (a UserError), `diverge`, each the first time alone, or `die always`.
"""

import os
import signal
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from glue_bench.config import Resources, load_experiment
from glue_bench.errors import UserError
from glue_bench.records import values
from glue_bench.records.store import Store
from glue_bench.records.value import Environment
from glue_bench.records.values import Cell, Failure, Job, Plan, Pretraining, Result
from glue_bench.sweep import executors, slurm
from glue_bench.sweep.drive import Loop, Observer
from glue_bench.sweep.progress import Estimate

DIGEST = "0" * 64
EXPERIMENT = {
    "name": "stub",
    "data": "demo",
    "arms": ["add"],
    "tasks": ["mnli", "rte", "cola"],
    "pretraining": {"corpus": "demo", "steps": 10, "learning_rates": [1e-3]},
}
ALIKE = {"arm": "add", "variant": "add", "tokenizer": DIGEST, "checkpoint": "tiny", "origin": "pretrained"}


def cell(seed: int, task: str = "cola", **changes) -> Cell:
    settings = load_experiment(EXPERIMENT).finetuning.hyperparameters(task, 1e-3)
    return Cell(**ALIKE, task=task, data=DIGEST, settings=settings, seed=seed, **changes)


def pretraining(rates=(1e-3,), **changes) -> Pretraining:
    search = {"rate_search": {"steps": 2}} if len(rates) > 1 else {}
    given = {**EXPERIMENT["pretraining"], "learning_rates": list(rates), **search}
    settings = load_experiment(EXPERIMENT | {"pretraining": given}).pretraining
    return Pretraining(**ALIKE, corpus=DIGEST, packing=1, settings=settings, **changes)


def plan(*jobs: Job, **changes) -> Plan:
    """A plan of these jobs."""
    cells = tuple(job for job in jobs if isinstance(job, Cell))
    return Plan(
        experiment=load_experiment(EXPERIMENT | changes),
        arms={"add": values.ArmFacts(summary="sum", flops_per_token=1)},
        tasks={job.task: values.TaskFacts(source="demo", digest=DIGEST) for job in cells},
        tokens={job.task: 100 for job in cells},
        pretrainings=tuple(job for job in jobs if isinstance(job, Pretraining)),
        cells=cells,
    )


class StubWorker:
    """As the real one: it writes how far it is, then the record or why there is none."""

    def __init__(self, folder: Path, seconds: float = 0.0) -> None:
        self.folder, self.store, self.seconds = Path(folder), Store(folder), seconds

    def run(self, job: Job) -> Result:
        begun, path = time.time(), self.folder / "mishaps" / job.id
        progress = values.Progress(id=job.id, worker=f"here:{os.getpid()}", began=begun, updated=begun, steps=2)
        self.store.write_progress(progress)
        with (self.folder / "attempts").open("a") as file:
            file.write(f"{job.id} {os.getpid()}\n")
        time.sleep(self.seconds)
        self.store.write_progress(progress.model_copy(update={"step": 1, "updated": time.time()}))
        mishap = path.read_text() if path.exists() else ""
        if mishap and mishap != "die always":
            path.unlink()
        if mishap in ("die", "die always", "hang"):
            os.kill(os.getpid(), signal.SIGSTOP if mishap == "hang" else signal.SIGKILL)
        if mishap == "refuse":
            raise UserError("this machine has other files")
        self.store.drop_progress(job.id)
        if mishap == "raise":
            failure = Failure(id=job.id, error="ValueError: no")
            self.store.write_failure(failure)
            return failure
        facts = {"seconds": self.seconds, "environment": Environment(device="cpu", threads=1)}
        if isinstance(job, Pretraining):
            loss = None if mishap == "diverge" else 1 / job.learning_rate
            facts |= {"steps": 10, "tokens": 100, "stream": "0", "validation_loss": loss}
            facts |= {"losses": (values.LossPoint(step=10, tokens=100, train_loss=1.0, seconds=1.0),)}
            return self.store.write(values.PretrainingRecord(pretraining=job, **facts))
        facts |= {"scores": {"validation": {"accuracy": 0.5}}, "history": (), "training_tokens": 100, "parameters": 1}
        return self.store.write(values.Record(cell=job, **facts), logits={"validation": np.zeros((2, 2), np.float32)})


def mishap(store: Store, job: Job, what: str) -> None:
    """What is to happen to a job."""
    path = store.folder / "mishaps" / job.id
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(what)


def attempts(store: Store, *jobs: Job) -> list[int]:
    """How often each job has been begun."""
    path = store.folder / "attempts"
    begun = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
    return [begun.count(job.id) for job in jobs]


def engine(name: str, store: Store, *jobs: Job, seconds: float = 0.0, **options) -> executors.Executor:
    """`inline`, `ray` or `slurm` with their options."""
    make = partial(StubWorker, store.folder, seconds)
    if name == "inline":
        return executors.Inline(make())
    if name == "ray":
        given = {"workers": 2, "address": None, "resources": Resources()} | options
        return executors.Ray(make, **given)
    return slurm.Slurm(make, Resources(), store, Estimate(plan(*jobs)), options)


class Told(Observer):
    """What a loop says, and the jobs that have ended."""

    def __init__(self) -> None:
        self.lines, self.jobs = list[str](), list[Job]()

    def ended(self, job: Job, _: Result) -> None:
        self.jobs.append(job)

    def say(self, line: str) -> None:
        self.lines.append(line)


def drive(store: Store, executor: executors.Executor, *jobs: Job, watching=(), **changes) -> SimpleNamespace:
    """What comes of jobs: `finished` ids, errors by the ids of the `failed`, the `cause`, and the `lines` said."""
    told = Told()
    results, cause = Loop(jobs, executor, store, plan(*jobs, **changes), [*watching, told]).run()
    failed = {name: result.error for name, result in results.items() if isinstance(result, Failure)}
    finished = [job.id for job in told.jobs if job.id not in failed]
    return SimpleNamespace(finished=finished, failed=failed, cause=cause, lines=told.lines)
