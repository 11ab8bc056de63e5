"""Pretrain the arms that waiting cells start from. A failing arm ends itself, never the sweep."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from glue_bench.config import Arm, Pretraining
from glue_bench.store import SCHEMA_VERSION, Store
from glue_bench.sweep.environment import environment
from glue_bench.sweep.executors import Failure
from glue_bench.sweep.plan import PlannedCell
from glue_bench.training.loop import NonFiniteLossError, accelerator
from glue_bench.training.pretrain import Report, pretrain
from glue_bench.training.workspace import Workspace


def pretrain_arms(
    cells: Sequence[PlannedCell], workspace: Workspace, store: Store, console: Console
) -> dict[str, Failure]:
    """Bring every checkpoint that these cells start from into being; returns what failed, by the arm's name."""
    failed: dict[str, Failure] = {}
    for arm in arms_to_pretrain(cells, workspace, store):
        try:
            _pretrain(arm, workspace, store, console)
        except NonFiniteLossError as error:
            console.print(f"pretraining {arm.name}: FAILED {error}", markup=False, soft_wrap=True)
            failed[arm.name] = Failure(f"pretraining failed: {error}", traceback.format_exc())
    return failed


def arms_to_pretrain(cells: Sequence[PlannedCell], workspace: Workspace, store: Store) -> list[Arm]:
    """Arms of these cells that lack a checkpoint to start from, or the record of how it was made."""
    if workspace.experiment.pretraining is None:
        return []
    arms = {planned.cell.arm.name: planned.cell.arm for planned in cells}
    return [arm for arm in arms.values() if not _is_pretrained(arm, workspace, store)]


def _is_pretrained(arm: Arm, workspace: Workspace, store: Store) -> bool:
    has_record = store.has_pretraining(workspace.pretraining_id(arm))
    return has_record and not workspace.pretraining_folder(arm).lacks(workspace.pretraining.finetuned_steps)


def _pretrain(arm: Arm, workspace: Workspace, store: Store, console: Console) -> None:
    folder, task, runtime = workspace.pretraining_folder(arm), workspace.pretraining_task(arm), accelerator()
    if runtime.is_main_process:
        folder.prepare()
    runtime.wait_for_everyone()
    with _reporter(arm, task.settings, console, runtime.is_main_process) as report:
        outcome = pretrain(workspace.initial(arm), task, folder, report)
    if runtime.is_main_process:
        store.write_pretraining(workspace.pretraining_id(arm), _record(arm, workspace, outcome))
        folder.drop_state()
    runtime.wait_for_everyone()


def _record(arm: Arm, workspace: Workspace, outcome: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "pretraining_id": workspace.pretraining_id(arm),
        "arm": arm.name,
        "origin": workspace.origin(arm),
        "identity": workspace.pretraining_identity(arm),
        **outcome,
        "environment": environment(),
    }


@contextmanager
def _reporter(arm: Arm, settings: Pretraining, console: Console, shown: bool) -> Iterator[Report]:
    """A line at each held-out loss; in a terminal a bar, too. Only the main process is `shown`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        under_way = bar.add_task(f"pretraining {arm.name}", total=settings.steps)

        def report(point: dict[str, Any]) -> None:
            bar.update(under_way, completed=point["step"])
            if shown and point["validation_loss"] is not None:
                line = f"pretraining {arm.name}: {_describe(point, settings)}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)

        yield report


def _describe(point: dict[str, Any], settings: Pretraining) -> str:
    return (
        f"step {point['step']:,} of {settings.steps:,}, {point['tokens']:,} tokens, loss {point['train_loss']:.3f}, "
        f"held-out {point['validation_loss']:.3f}, {point['tokens'] / point['seconds']:,.0f} tokens/s"
    )
