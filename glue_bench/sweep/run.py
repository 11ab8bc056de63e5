"""Plan the cells, skip those with a record, run the rest, store each as soon as it is finished."""

import gc
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from glue_bench.benchmark.schema import known_labels
from glue_bench.config import Arm, Experiment
from glue_bench.errors import UserError
from glue_bench.model.plugins import plugin_digest
from glue_bench.store import SCHEMA_VERSION, Store
from glue_bench.sweep.environment import environment
from glue_bench.sweep.executors import Failure, InlineExecutor
from glue_bench.sweep.plan import PlannedCell, in_order, plan_cells, select
from glue_bench.sweep.pretraining import arms_to_pretrain, pretrain_arms
from glue_bench.sweep.progress import make_progress
from glue_bench.training.budget import budget
from glue_bench.training.finetune import Outcome
from glue_bench.training.loop import accelerator
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.workspace import Workspace


@dataclass(frozen=True)
class Summary:
    """What a sweep did. `failed` maps cell ids to errors; `interrupted` is Ctrl-C.

    `waiting` are cells and `pretraining` arms that were not finished when it began. `is_main` is false in the
    processes that only help the main one to pretrain.
    """

    folder: Path
    planned: int
    skipped: int
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    pretraining: tuple[str, ...] = ()
    interrupted: bool = False
    is_main: bool = True


def sweep(
    experiment: Experiment,
    results: str | Path,
    only: Iterable[str] = (),
    dry_run: bool = False,
    console: Console | None = None,
) -> Summary:
    """Bring the store of `results/<experiment>` up to the plan. With `dry_run`, only say what would run.

    Under `accelerate launch` all processes pretrain; the main one alone writes and runs cells.

    Raises:
        UserError: bad input, before any cell is run and before anything is written.
    """
    quiet_libraries()
    environment()  # before any cell: the commit is that of the code now loaded
    store = Store(Path(results) / experiment.name)
    workspace = Workspace(experiment, store.folder / "checkpoints")
    cells = plan_cells(experiment, workspace)
    chosen = select(cells, only)
    unfinished = [planned for planned in chosen if not store.has_record(planned.id)]
    waiting = in_order(unfinished, cells, workspace)
    summary = Summary(
        store.folder,
        planned=len(chosen),
        skipped=len(chosen) - len(unfinished),
        waiting=tuple(planned.id for planned in waiting),
        pretraining=tuple(arm.name for arm in arms_to_pretrain(waiting, workspace, store)),
        is_main=accelerator().is_main_process,
    )
    if dry_run:
        return summary
    if summary.is_main:
        store.prepare()
        store.write_plan(_plan(experiment, workspace, cells))
        _write_labels(workspace, store)
    console = console or Console(stderr=True)
    try:
        failed = pretrain_arms(waiting, workspace, store, console)
    except KeyboardInterrupt:
        return replace(summary, interrupted=True)
    return summary if not summary.is_main else _run(summary, waiting, cells, failed, workspace, store, console)


def _run(
    summary: Summary,
    cells: list[PlannedCell],
    all_cells: list[PlannedCell],
    without_start: dict[str, Failure],
    workspace: Workspace,
    store: Store,
    console: Console,
) -> Summary:
    # Each cell ends with a garbage collection; what the imports made would cost it 0.3 s every time.
    gc.collect()
    gc.freeze()
    finished, failed, interrupted = 0, {}, False
    executor = InlineExecutor(workspace, without_start)
    with make_progress(console, cells) as progress:
        try:
            for planned, result in executor.run(cells, progress.started):
                _store(planned, result, workspace, store)
                progress.finished(planned, result)
                if isinstance(result, Failure):
                    failed[planned.id] = result.error
                else:
                    finished += 1
        except KeyboardInterrupt:
            interrupted = True
    _drop_encoders(all_cells, workspace, store)
    return replace(summary, finished=finished, failed=failed, interrupted=interrupted)


def _drop_encoders(cells: list[PlannedCell], workspace: Workspace, store: Store) -> None:
    """Encoders of MNLI cells take the most room of all that a sweep leaves; none is kept that no cell waits for."""
    needed = {planned.mnli for planned in cells if not store.has_record(planned.id)}
    for planned in cells:
        if planned.is_source and planned.id not in needed:
            shutil.rmtree(workspace.encoder_folder(planned.cell), ignore_errors=True)


def _plan(experiment: Experiment, workspace: Workspace, cells: list[PlannedCell]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment.name,
        "data_source": workspace.source.kind,
        # Where a person keeps data and text is no one's business; their digests tell what they are.
        "config": experiment.model_dump(exclude={"data": True, "pretraining": {"corpus"}}),
        "arms": {arm.name: _arm_facts(arm, experiment, workspace) for arm in experiment.arms},
        "cells": [planned.summary for planned in cells],
    }


def _write_labels(workspace: Workspace, store: Store) -> None:
    """Without gold labels beside the predictions, no statistic can be recomputed from the folder alone."""
    for task in workspace.experiment.tasks:
        data = workspace.data(task)
        labels = known_labels(data)
        if labels:
            store.write_labels(task, data.digest, labels)


def _arm_facts(arm: Arm, experiment: Experiment, workspace: Workspace) -> dict[str, Any]:
    pretraining = experiment.pretraining
    length = pretraining.length if pretraining else experiment.finetuning.max_length
    return {
        "variant": arm.variant,
        "options": arm.options,
        "origin": workspace.origin(arm),
        "pretraining": workspace.pretraining_id(arm) if pretraining else None,
        **budget(workspace.initial(arm).config, length),
    }


def _store(planned: PlannedCell, result: Outcome | Failure, workspace: Workspace, store: Store) -> None:
    try:
        if isinstance(result, Failure):
            failure = {"error": result.error, "traceback": result.traceback, "environment": environment()}
            store.write_failure(planned.id, planned.summary | failure)
        elif not store.has_record(planned.id):  # an MNLI cell that ran again for its encoder has one
            store.write_record(_record(planned, result, workspace), result.predictions)
    except OSError as error:
        raise UserError(
            f"cannot write to '{store.folder}': {error.strerror}; earlier cells are kept, "
            "the same command goes on from there"
        ) from error


def _record(planned: PlannedCell, outcome: Outcome, workspace: Workspace) -> dict[str, Any]:
    cell, data, start = planned.cell, workspace.data(planned.cell.task), workspace.initial(planned.cell.arm)
    diagnostic = workspace.diagnostic(cell.task)
    checkpoint = {
        "name": cell.arm.checkpoint,
        "revision": cell.arm.revision,
        "digest": workspace.start_digest(cell.arm, cell.steps),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "cell_id": planned.id,
        "experiment": workspace.experiment.name,
        "cell": cell.key,
        "options": cell.arm.options,
        "plugin": plugin_digest(cell.arm.variant),
        "checkpoint": checkpoint,
        "hyperparameters": cell.hyperparameters.model_dump(exclude_none=True),
        **({"from_mnli": planned.mnli} if planned.mnli else {}),
        **outcome.record,
        "graft_is_exact": start.exact if start.origin == "grafted" else None,
        **({"variance_kept": dict(start.variance_kept)} if start.variance_kept else {}),
        "data": {"source": data.source, "digest": data.digest, "partial": data.partial},
        **({"diagnostic": {"digest": diagnostic.digest}} if diagnostic else {}),
        "environment": environment(),
    }
