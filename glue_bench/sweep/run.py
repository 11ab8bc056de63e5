"""The story of a sweep: plan, check, and run the jobs that are left."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from glue_bench.config import Experiment
from glue_bench.config.load import Names
from glue_bench.config.machine import AUTO
from glue_bench.data.baselines import baseline_predictions
from glue_bench.data.task_data import cluster_numbers, known_labels
from glue_bench.files import results_written_to
from glue_bench.model.plugins import PLUGINS
from glue_bench.records.environment import versions
from glue_bench.records.labels import CLUSTERS, GOLD
from glue_bench.records.layout import record_folders
from glue_bench.records.plugin_files import keep_plugin
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Plan, Result
from glue_bench.sweep.drive import Loop, Observer
from glue_bench.sweep.engine import Engine
from glue_bench.sweep.executors import Executor
from glue_bench.sweep.expected_time import (
    UNKNOWN_TIME,
    ExpectedTime,
    expected_times,
    rows_predicted,
    steps_of,
)
from glue_bench.sweep.jobs import WorkLeft, longest_first, work_left
from glue_bench.sweep.plan import make_plan, select
from glue_bench.sweep.reasons import reasons
from glue_bench.sweep.remarks import Situation, remarks
from glue_bench.sweep.request import check_request
from glue_bench.sweep.sent import refuse_live_jobs
from glue_bench.sweep.worker import make_worker
from glue_bench.terminal import print_line
from glue_bench.training.device import Compute, choose_compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.pretraining_folder import PretrainingFolder
from glue_bench.training.quiet import quiet_transformers


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The outcome of a sweep for the cells that were chosen.

    Attributes:
        folder: where the results are.
        planned: how many cells were chosen.
        finished: how many of the chosen cells ran and ended well.
        failed: the errors of the chosen cells that failed, by id.
        waiting: the ids of the chosen cells that had no result and were to run.
        pretrainings: how many pretrainings were to run.
        pretrained: how many of these pretrainings have ended well.
        tokens: how many tokens these pretrainings were to train on.
        epochs: how many epochs the cells that were to run have, from the fewest to the most.
        steps: how many updates these cells were to take together.
        rows: how many rows the finished models that were to be evaluated predict together.
        pretraining_time: how long the pretrainings take one after another, without validation if
            steps were timed.
        finetuning_time: how long the fine-tuning runs take one after another.
        evaluation_time: how long the evaluations of finished models take one after another.
        reasons: in a dry run, the reasons why jobs would run, with the number of jobs. Jobs that
            were not chosen count, too, if other jobs start from them.
        cause: "interrupted" (Ctrl-C), "terminated" (SIGTERM) or "".
    """

    folder: Path
    planned: int
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    pretrainings: int = 0
    pretrained: int = 0
    tokens: int = 0
    epochs: tuple[int, ...] = ()
    steps: int = 0
    rows: int = 0
    pretraining_time: ExpectedTime = UNKNOWN_TIME
    finetuning_time: ExpectedTime = UNKNOWN_TIME
    evaluation_time: ExpectedTime = UNKNOWN_TIME
    reasons: dict[str, int] = field(default_factory=dict)
    cause: str = ""

    @property
    def failures_folder(self) -> Path:
        """The folder with the reasons of failures."""
        return Store(self.folder).failures_folder

    @property
    def result_folders(self) -> list[str]:
        """The folders of records that are there, each with a slash."""
        return record_folders(self.folder)

    @property
    def seconds(self) -> float | None:
        """The time of the cells that were to run, one after another; None if it is not known."""
        times = [self.finetuning_time.seconds, self.evaluation_time.seconds]
        known_times = [seconds for seconds in times if seconds is not None]
        return sum(known_times) if known_times else None

    @property
    def skipped(self) -> int:
        """The number of cells that were done before."""
        return self.planned - len(self.waiting)


def sweep(
    experiment: Experiment,
    console: Console | None,
    observers: Sequence[Observer],
    *,
    results: str | Path,
    only: Names,
    dry_run: bool,
    engine: Engine,
    device: str,
    precision: str,
    graph: str,
) -> Summary:
    """Bring the results in `results/<experiment>` up to the plan.

    Args:
        experiment: the experiment.
        console: where remarks are printed before the run; None to print nothing.
        observers: the observers, which are told what happens in the sweep.
        results: the folder of the results of all experiments.
        only: conditions on cells, as `glue_bench.run` takes them.
        dry_run: check everything, and run and write nothing.
        engine: where jobs run.
        device: as `glue_bench.run` takes it.
        precision: as `glue_bench.run` takes it.
        graph: as `glue_bench.run` takes it.

    Raises:
        UserError: bad input, before anything runs or is written; later an error that every job
            would meet.
    """
    check_request(
        experiment,
        results=results,
        only=only,
        engine=engine,
        device=device,
        precision=precision,
        graph=graph,
    )

    quiet_transformers()
    versions()  # this notes the commit of the loaded code before any job runs
    # Workers elsewhere look for a device themselves.
    compute = choose_compute(AUTO if engine.is_elsewhere else device, precision, graph)

    inputs = Inputs(experiment, Path(results) / experiment.name)
    plan = make_plan(inputs)
    store = inputs.store

    cells = select(plan.cells, only)
    if engine.slurm is None and not dry_run:
        refuse_live_jobs(store)
    make = partial(make_worker, experiment, store.folder.absolute(), device, precision, graph)
    executor = engine.make(plan, inputs, compute, make)

    store.prepare(make=not dry_run)
    with nullcontext() if dry_run else store.lock():
        work = work_left(plan, cells, store)
        if console:
            situation = Situation(work=work, inputs=inputs, compute=compute, executor=executor)
            for line in remarks(situation):
                print_line(console, line)

        _check_starts(work, inputs)
        is_here = not (executor.in_parallel or executor.queues)
        timed_on = compute if dry_run and is_here else None
        summary = _summary(work, inputs, dry_run=dry_run, timed_on=timed_on)
        return summary if dry_run else _run(work, inputs, executor, observers, summary)


def _summary(work: WorkLeft, inputs: Inputs, *, dry_run: bool, timed_on: Compute | None) -> Summary:
    """Make the summary of a run before anything has run.

    Args:
        work: what is left.
        inputs: of the experiment.
        dry_run: whether nothing runs, so that reasons are told.
        timed_on: where steps are timed, to expect how long the run takes; None to time none.
    """
    store = inputs.store

    selected = {cell.id for cell in work.cells}
    epochs: set[int] = set()
    steps = 0
    rows = 0
    for cell in work.cell_jobs:
        if cell.is_trained:
            epochs.add(cell.hyperparameters.epochs)
            steps += steps_of(cell, inputs)
        else:
            rows += rows_predicted(cell, inputs)

    times = expected_times(work, inputs, timed_on)
    return Summary(
        folder=store.folder,
        planned=len(work.cells),
        waiting=tuple(job.id for job in work.jobs if job.id in selected),
        pretrainings=len(work.pretrainings),
        tokens=sum(job.tokens(work.plan.tokens) for job in work.pretrainings),
        epochs=tuple(sorted(epochs)),
        steps=steps,
        rows=rows,
        pretraining_time=times.pretraining,
        finetuning_time=times.finetuning,
        evaluation_time=times.evaluation,
        reasons=dict(Counter(reasons(work, store).values()).most_common()) if dry_run else {},
    )


def _check_starts(work: WorkLeft, inputs: Inputs) -> None:
    """Read all weights that the jobs start from and that are there: they may be damaged."""
    made_then = {job.id for job in work.jobs}
    starts: dict[tuple[str | int | None, ...], Cell] = {}
    for pretraining in work.pretrainings:
        PretrainingFolder(inputs.store, pretraining.id).read_state()
    for cell in work.cell_jobs:
        if cell.pretraining in made_then:
            continue
        # If the MNLI cell is still to run, the start of its arm is read in its place.
        start = cell.model_copy(update={"mnli": None}) if cell.mnli in made_then else cell
        starts.setdefault((start.arm, start.pretraining, start.steps, start.mnli), start)
    for start in starts.values():
        inputs.cell_start(start)


def _run(
    work: WorkLeft,
    inputs: Inputs,
    executor: Executor,
    observers: Sequence[Observer],
    summary: Summary,
) -> Summary:
    """Run the jobs, and then the jobs that turn out to be needed after them."""
    plan = work.plan
    store = inputs.store
    with results_written_to(store.folder):
        _write_plan(plan, inputs)
    selected = {cell.id for cell in work.cells}

    ended: dict[str, Result] = {}
    # A second round has the runs that a submission takes, because only the scores of the first
    # round decide them (weights.py). It also has cells whose start was made again with other
    # weights.
    while True:
        jobs = longest_first(work.jobs, plan) if executor.in_parallel else work.jobs
        results, cause = Loop(jobs, executor, store, plan, observers).run()
        ended |= results

        errors = {}
        for name, result in ended.items():
            if not result.ok:
                errors[name] = result.error

        summary = _after_round(summary, plan, selected, ended, errors, cause)
        if cause:
            return summary

        work = work_left(plan, [cell for cell in work.cells if cell.id not in errors], store)
        # A job that has just run, or failed, would end in the same way.
        in_vain = results.keys() | errors.keys()
        if in_vain >= {job.id for job in work.jobs}:
            return summary


def _write_plan(plan: Plan, inputs: Inputs) -> None:
    """Write the plan, the gold labels and the plugins, so that everything can be recomputed."""
    share = inputs.experiment.finetuning.held_out_share
    trains = inputs.experiment.trains
    stored = inputs.store.labels
    labels = {}
    for task in plan.tasks:
        data = inputs.tasks.data(task)
        if not stored.has(task, data.digest, share, with_baselines=trains):
            # Baselines are fitted on the rows that arms are trained on.
            baselines = baseline_predictions(data, share) if trains else {}
            clusters = cluster_numbers(data)
            labels[task] = {GOLD: known_labels(data), CLUSTERS: clusters, **baselines}
    digests = {job.plugin for job in plan.jobs}
    for plugin in PLUGINS.values():
        if plugin.digest in digests:
            keep_plugin(inputs.store.folder, plugin.file.name, plugin.code)
    inputs.store.write_plan(plan, labels)


def _after_round(
    summary: Summary,
    plan: Plan,
    selected: Collection[str],
    ended: Mapping[str, Result],
    errors: Mapping[str, str],
    cause: str,
) -> Summary:
    """Update the summary after a round: jobs have `ended`, some with `errors`, by their ids."""
    pretrainings = {job.id for job in plan.pretrainings}
    selected_ended = []
    failed = {}
    pretrained = 0
    for name in ended:
        if name in selected:
            selected_ended.append(name)
            if name in errors:
                failed[name] = errors[name]
        if name in pretrainings and name not in errors:
            pretrained += 1
    return replace(
        summary,
        finished=len(selected_ended) - len(failed),
        failed=failed,
        waiting=tuple(dict.fromkeys([*summary.waiting, *selected_ended])),
        pretrained=pretrained,
        cause=cause,
    )
