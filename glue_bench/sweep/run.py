"""Plan the cells, skip those with a record, run the rest, store each as soon as it is finished."""

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from glue_bench.config import Experiment
from glue_bench.errors import UserError
from glue_bench.model.plugins import plugin_digest
from glue_bench.store import SCHEMA_VERSION, Store
from glue_bench.sweep.environment import environment
from glue_bench.sweep.executors import Failure, InlineExecutor
from glue_bench.sweep.plan import PlannedCell, plan_cells, select
from glue_bench.sweep.progress import make_progress
from glue_bench.training.finetune import Outcome
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.workspace import Workspace


@dataclass(frozen=True)
class Summary:
    """What a sweep did. `failed` maps cell ids to errors; `interrupted` is Ctrl-C."""

    folder: Path
    planned: int
    skipped: int
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    interrupted: bool = False


def sweep(
    experiment: Experiment,
    results: str | Path,
    only: Iterable[str] = (),
    dry_run: bool = False,
    console: Console | None = None,
) -> Summary:
    """Bring the store of `results/<experiment>` up to the plan. With `dry_run`, only say what would run.

    Raises:
        UserError: bad input, before any cell is run and before anything is written.
    """
    quiet_libraries()
    environment()  # before any cell: the commit is that of the code now loaded
    workspace, store = Workspace(experiment), Store(Path(results) / experiment.name)
    cells = plan_cells(experiment, workspace)
    chosen = select(cells, only)
    waiting = [planned for planned in chosen if not store.has_record(planned.id)]
    summary = Summary(store.folder, len(chosen), len(chosen) - len(waiting), waiting=tuple(p.id for p in waiting))
    if dry_run:
        return summary
    store.prepare()
    store.write_plan(_plan(experiment, workspace, cells))
    return _run(summary, waiting, workspace, store, console or Console(stderr=True))


def _run(summary: Summary, cells: list[PlannedCell], workspace: Workspace, store: Store, console: Console) -> Summary:
    # Each cell ends with a garbage collection; what the imports made would cost it 0.3 s every time.
    gc.collect()
    gc.freeze()
    finished, failed, interrupted = 0, {}, False
    executor = InlineExecutor(workspace)
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
    return Summary(summary.folder, summary.planned, summary.skipped, finished, failed, summary.waiting, interrupted)


def _plan(experiment: Experiment, workspace: Workspace, cells: list[PlannedCell]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment.name,
        "data_source": workspace.source.kind,
        "config": experiment.model_dump(exclude={"data"}),  # where a person keeps the data is no one's business
        "cells": [planned.summary for planned in cells],
    }


def _store(planned: PlannedCell, result: Outcome | Failure, workspace: Workspace, store: Store) -> None:
    try:
        if isinstance(result, Failure):
            failure = {"error": result.error, "traceback": result.traceback, "environment": environment()}
            store.write_failure(planned.id, planned.summary | failure)
        else:
            store.write_record(_record(planned, result, workspace), result.predictions)
    except OSError as error:
        raise UserError(
            f"cannot write to '{store.folder}': {error.strerror}; earlier cells are kept, "
            "the same command goes on from there"
        ) from error


def _record(planned: PlannedCell, outcome: Outcome, workspace: Workspace) -> dict[str, Any]:
    cell, data, start = planned.cell, workspace.data(planned.cell.task), workspace.start(planned.cell.arm)
    checkpoint = {
        "name": cell.arm.checkpoint,
        "revision": cell.arm.revision,
        "digest": workspace.start_digest(cell.arm),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "cell_id": planned.id,
        "experiment": workspace.experiment.name,
        "cell": cell.key,
        "options": cell.arm.options,
        "plugin": plugin_digest(cell.arm.variant),
        "checkpoint": checkpoint,
        "hyperparameters": cell.hyperparameters.model_dump(),
        **outcome.record,
        "graft_is_exact": start.exact if start.origin == "grafted" else None,
        "data": {"source": data.source, "digest": data.digest, "partial": data.partial},
        "environment": environment(),
    }
