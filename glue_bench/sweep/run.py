"""The story of a sweep: plan, check, and run the jobs that have no record."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from rich.console import Console

from glue_bench.config import Experiment
from glue_bench.errors import UserError
from glue_bench.files import cache_folder
from glue_bench.records.environment import versions
from glue_bench.records.store import Store
from glue_bench.remote import refuse_url
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.encoders import drop_encoders
from glue_bench.sweep.events import Observer, Observers, SweepStarted, told
from glue_bench.sweep.executors import Executor, InlineExecutor, room_here
from glue_bench.sweep.intrinsic import measure_missing
from glue_bench.sweep.kept import Choose, Kept, every_run
from glue_bench.sweep.options import AUTO, RunOptions
from glue_bench.sweep.preflight import check_disks, check_starts
from glue_bench.sweep.remarks import idle_cores, made_anew, remarks
from glue_bench.sweep.running import Running
from glue_bench.sweep.work import Work, plan_work, write_plan
from glue_bench.terminal import Screen, tell
from glue_bench.training.compute import Compute, choose_compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.quiet import quiet_libraries


@dataclass(frozen=True)
class Summary:
    """What a sweep did. `failed` maps cell ids to errors.

    What is `interrupted` was ended early; by what, `cause` says: "interrupted" (Ctrl-C), "terminated" (SIGTERM), or how
    the cluster was lost. `gone` are ids of cells whose records were there, and are not any more.
    `unkept` are those finished cells whose fine-tuned models are asked for (`finetuning.keep`) and not there.
    `waiting` are the ids of cells, and `pretraining` what was to be pretrained in words, that were not finished when it
    began. Cells that a sweep beside it finished meanwhile are counted `elsewhere`.
    """

    folder: Path
    planned: int
    skipped: int
    finished: int = 0
    elsewhere: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    pretraining: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()
    interrupted: bool = False
    cause: str = ""
    gone: tuple[str, ...] = ()


def sweep(
    experiment: Experiment,
    options: RunOptions,
    console: Console | None = None,
    observe: Callable[[Console], Observer] | None = None,
    choose: Choose = every_run,
) -> Summary:
    """Bring the store of `results/<experiment>` up to the plan. With `dry_run`, only say what would run.

    What happens is told to the observer that `observe` makes for the console. `choose` tells whose models stay under
    `finetuning.keep: best`.

    Raises:
        UserError: bad input, before any cell is run and before anything is written; later on, results that cannot be
            written, or workers that cannot start.
    """
    refuse_url(cache_folder(), "the cache (GLUE_BENCH_CACHE)")
    quiet_libraries()
    versions()  # before any cell: the commit is that of the code now loaded
    console = console or Screen(stderr=True)
    compute = choose_compute(options.device, options.precision)
    if options.workers == AUTO:
        options = replace(options, workers=None if options.address else room_here(experiment.resources, compute))
    store = Store(Path(options.results) / experiment.name)
    inputs = Inputs(experiment, store.folder / "checkpoints")
    executor = make_executor(inputs, options, compute)
    work = plan_work(inputs, store, options)
    summary = _before(work, store)
    _preflight(work, inputs, store, options, compute, console)
    if options.dry_run:
        if work.waiting:
            executor.check()
        return summary
    work = write_plan(work, inputs, store, options)
    observer = observe(console) if observe else Observers([], console)
    # Connected before any pretraining: what is wrong with a cluster shows within seconds.
    with (
        told(_beginning(work, summary, experiment.name, options), observer),
        Claims(store.folder / "claims") as claims,
        executor if work.waiting else nullcontext(),
    ):
        running = Running(
            inputs=inputs,
            store=store,
            claims=claims,
            console=console,
            observer=observer,
            kept=Kept(experiment.finetuning.keep, work.cells, store, choose),
            jobs=[*work.pretraining, *work.waiting],
            costs=work.costs,
        )
        return _run(executor, work, running, compute, summary)


def make_executor(inputs: Inputs, options: RunOptions, compute: Compute) -> Executor:
    """What runs the jobs: this process, or workers.

    Raises:
        UserError: Ray is not installed.
    """
    if not options.side_by_side:
        return InlineExecutor(inputs, compute)
    try:
        from glue_bench.sweep.ray_executor import RayExecutor
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UserError("--workers and --address need Ray; install it: pip install 'glue-bench[ray]'") from error
    assert inputs.folder is not None, "a sweep has a folder"
    return RayExecutor(
        inputs.experiment,
        inputs.folder,
        workers=options.processes,
        address=options.address,
        device=options.device,
        precision=options.precision,
    )


def _before(work: Work, store: Store) -> Summary:
    """What there is to do, before anything of it is done."""
    return Summary(
        store.folder,
        planned=len(work.chosen),
        skipped=len(work.chosen) - len(work.unfinished),
        waiting=tuple(planned.id for planned in work.waiting),
        pretraining=tuple(job.label for job in work.pretraining),
    )


def _preflight(
    work: Work, inputs: Inputs, store: Store, options: RunOptions, compute: Compute, console: Console
) -> None:
    """Say what a person should know, and check disks and starts."""
    said = remarks(work.chosen, inputs, store, options, compute), made_anew(work, store)
    for line in chain(*said, idle_cores(work, inputs, options, compute)):
        tell(console, line)
    check_disks(store)
    check_starts([planned.cell for planned in work.waiting], work.pretraining, inputs)


def _beginning(work: Work, summary: Summary, experiment: str, options: RunOptions) -> SweepStarted:
    waiting = {planned.id for planned in work.waiting}
    return SweepStarted(
        experiment=experiment,
        folder=summary.folder,
        before=[planned for planned in work.chosen if planned.id not in waiting],
        cells=work.waiting,
        arms=list(dict.fromkeys(planned.cell.arm.name for planned in work.chosen)),
        costs=work.costs,
        pretraining=work.pretraining,
        workers=options.processes or (None if options.address else 1),
    )


def _run(executor: Executor, work: Work, running: Running, compute: Compute, summary: Summary) -> Summary:
    """Run the jobs, then drop what nothing waits for any more."""
    running.run(executor, work.jobs)
    drop_encoders(work.cells, running.inputs, running.store)
    if not running.cause:
        measure_missing(work.chosen, running.inputs, running.store, compute, running.console)
    running.kept.settle()
    stored = {planned.id for planned in work.chosen} - set(summary.waiting) | set(running.finished)
    return replace(
        summary,
        unkept=tuple(running.kept.lacking(work.chosen)),
        finished=len(running.finished),
        elsewhere=running.elsewhere,
        failed=running.failed,
        interrupted=bool(running.cause),
        cause=running.cause,
        gone=tuple(sorted(stored - running.store.ids("records"))),
    )
