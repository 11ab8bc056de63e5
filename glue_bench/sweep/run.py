"""The story of a sweep: plan, check, and run the jobs that are left."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from glue_bench.config import Experiment
from glue_bench.data.baselines import baseline_predictions
from glue_bench.data.task_data import known_labels
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError, quoted
from glue_bench.files import cache_folder, results_written_to
from glue_bench.records.store import Store
from glue_bench.records.value import versions
from glue_bench.records.values import Cell, Failure, Job, Plan, Pretraining
from glue_bench.remote import refuse_url
from glue_bench.sweep.attempt import Worker, make_worker
from glue_bench.sweep.drive import Observer, drive
from glue_bench.sweep.executors import Executor, Inline, Ray
from glue_bench.sweep.jobs import Todo, longest_first
from glue_bench.sweep.plan import make_plan, select
from glue_bench.sweep.preflight import check_disks, check_starts, remarks, room_here
from glue_bench.sweep.progress import Estimate
from glue_bench.sweep.slurm import Slurm, refuse_live_jobs
from glue_bench.terminal import tell
from glue_bench.training.compute import Compute, choose_compute, quiet_transformers
from glue_bench.training.inputs import Inputs

AUTO = "auto"
MOST_WORKERS = 4096
Watch = Callable[[Store, Plan, Sequence[Job]], Sequence[Observer]]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How an experiment is run. Nothing here changes what a cell is, or its id.

    Results go to `results/<experiment>`. `only` is a list of KEY=VALUE conditions on cells; arms without a chosen cell
    are not pretrained. With `dry_run` all is checked that a run checks, and nothing is run or written. `workers`
    processes of this machine ("auto": as many as it has room for) share the jobs, or those of the Ray cluster at
    `address` (HOST:PORT), or Slurm with these options of sbatch (`slurm`); without any they run in this process, one
    after another. `device` is auto, cpu, cuda or mps, `precision` auto (bf16 where the device is faster in it), float32
    or bf16. Losses and scores go to the trackers `track`: tensorboard, wandb, mlflow, trackio.

    Raises:
        UserError: one of them is none, or there are several engines.
    """

    results: str | Path = "runs"
    only: Iterable[str] = ()
    dry_run: bool = False
    workers: int | str | None = None
    address: str | None = None
    slurm: Mapping[str, Any] | None = None
    device: str = "auto"
    precision: str = "auto"
    track: Iterable[str] = ()

    def __post_init__(self) -> None:
        for name in ("only", "track"):  # an iterator could be read only once
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.results, str | Path) or not str(self.results):
            raise UserError(f"results {quoted(self.results)}: give a folder")
        refuse_url(self.results)
        if self.workers not in (None, AUTO) and not (type(self.workers) is int and 1 <= self.workers <= MOST_WORKERS):
            raise UserError(f"workers {quoted(self.workers)}: give a whole number from 1 to {MOST_WORKERS}, or {AUTO}")
        host, _, port = (self.address or "host:1").rpartition(":")
        if not (host and "/" not in host and port.isdecimal() and 0 < int(port[:6]) < 2**16):
            raise UserError(f"--address is HOST:PORT with a port from 1 to 65535, not {quoted(self.address)}")
        if self.slurm is not None and (self.workers or self.address):
            raise UserError("--slurm goes without --workers and --address: one engine runs all jobs")

    @property
    def elsewhere(self) -> bool:
        """Whether jobs run on machines of a cluster."""
        return bool(self.address or self.slurm is not None)

    @property
    def side_by_side(self) -> bool:
        """Whether jobs run in processes of their own."""
        return bool(self.workers or self.elsewhere)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a sweep did. `failed` maps ids of cells to errors.

    `waiting` are the ids of the cells, and `pretraining` what was to be pretrained in words, that were to run when it
    began; of a dry run `reasons` says why, with how many jobs each. `cause`: why it ended early, "interrupted" (Ctrl-C)
    or "terminated" (SIGTERM); empty if it did not.
    """

    folder: Path
    planned: int
    skipped: int
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    pretraining: tuple[str, ...] = ()
    reasons: dict[str, int] = field(default_factory=dict)
    cause: str = ""


def find_work(plan: Plan, cells: Sequence[Cell], inputs: Inputs) -> Todo:
    """What is left to do of these cells of a plan, by what is stored. Raises as `Todo`."""
    splits = {task: {*TASKS[task].test_splits} & inputs.data(task).splits.keys() for task in plan.tasks}
    return Todo(plan, cells, inputs.store, [task for task in splits if splits[task] or inputs.diagnostic(task)])


def sweep(
    experiment: Experiment, options: RunOptions, console: Console | None = None, watch: Watch = lambda *_: ()
) -> Summary:
    """Bring the results in `results/<experiment>` up to the plan. With `dry_run`, only say what would run.

    What is worth knowing before a run is said on the `console`; what happens then is told to the observers that `watch`
    makes.

    Raises:
        UserError: bad input, before any job is run and before anything is written; later on, what every job would meet.
    """
    refuse_url(cache_folder(), "the cache (GLUE_BENCH_CACHE)")
    quiet_transformers()
    versions()  # before any job: the commit is that of the code now loaded
    compute = choose_compute(options.device, options.precision)
    if options.workers == AUTO:
        options = replace(options, workers=None if options.address else room_here(experiment.resources, compute))
    inputs = Inputs(experiment, Path(options.results) / experiment.name)
    plan, store = make_plan(experiment, inputs), inputs.store
    cells = select(plan.cells, options.only)
    _executor(inputs, plan, options, compute)  # what is wrong with an engine shows before anything else
    check_disks(inputs)
    if not options.dry_run:
        store.prepare()
    with nullcontext() if options.dry_run else store.lock():
        work = find_work(plan, cells, inputs)
        where = {"side_by_side": options.side_by_side, "elsewhere": options.elsewhere}
        if console:
            for line in remarks(work, inputs, compute, **where):
                tell(console, line)
        check_starts(work.jobs, inputs)
        summary = Summary(
            folder=store.folder,
            planned=len(cells),
            skipped=len(cells) - len(work.left),
            waiting=tuple(job.id for job in work.jobs if isinstance(job, Cell)),
            pretraining=tuple(job.label for job in work.jobs if isinstance(job, Pretraining)),
        )
        if options.dry_run:
            return replace(summary, reasons=dict(Counter(work.reasons().values()).most_common()))
        with results_written_to(store.folder):  # with the gold labels, by which every statistic can be recomputed
            data = {task: inputs.data(task) for task in plan.tasks}
            missing = {task: each for task, each in data.items() if not store.labels(task, each.digest)["gold"]}
            given = {task: {"gold": known_labels(each), **baseline_predictions(each)} for task, each in missing.items()}
            store.write_plan(plan, given)
        return _run(work, inputs, options, compute, watch, summary)


def _executor(inputs: Inputs, plan: Plan, options: RunOptions, compute: Compute) -> Executor:
    """What runs the jobs: this process, or workers.

    Raises:
        UserError: the engine is not installed, or Slurm still runs jobs of these results for another command.
    """
    experiment, store = inputs.experiment, inputs.store
    make = partial(make_worker, experiment, store.folder.absolute(), options.device, options.precision)
    if options.slurm is not None:
        return Slurm(make, experiment.resources, store, Estimate(plan), options.slurm)
    refuse_live_jobs(store)
    if not options.side_by_side:
        return Inline(lambda: Worker(inputs, compute))
    assert not isinstance(options.workers, str), "settled before"
    return Ray(make, experiment.resources, workers=options.workers, address=options.address)


def _run(work: Todo, inputs: Inputs, options: RunOptions, compute: Compute, watch: Watch, summary: Summary) -> Summary:
    """Run the jobs, and after them those whose need has only shown then: of the runs that a submission takes."""
    plan, store, tuning = work.plan, inputs.store, inputs.experiment.finetuning
    cells = {cell.id for cell in plan.cells}
    while True:
        jobs = longest_first(work.jobs, plan) if options.side_by_side else work.jobs
        executor = _executor(inputs, plan, options, compute)
        results, cause = drive(jobs, executor, store, plan, watch(store, plan, jobs))
        ended = {name: result for name, result in results.items() if name in cells}
        failed = {name: result.error for name, result in ended.items() if isinstance(result, Failure)}
        finished = summary.finished + len(ended) - len(failed)
        summary = replace(summary, finished=finished, failed=summary.failed | failed, cause=cause)
        if cause or not jobs or not (tuning.keep == "best" or tuning.predicts_test):
            return summary
        work = find_work(plan, [cell for cell in work.cells if cell.id not in summary.failed], inputs)
        if not work.jobs:
            return summary
