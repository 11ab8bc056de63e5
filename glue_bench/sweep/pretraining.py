"""Pretrain the arms that waiting cells start from. A failing arm ends itself, never the sweep."""

import traceback
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from glue_bench.config import Arm, Pretraining
from glue_bench.errors import UserError
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
    settings = workspace.experiment.pretraining
    if settings is None:
        return {}
    failed: dict[str, Failure] = {}
    for arm in {planned.cell.arm.name: planned.cell.arm for planned in cells}.values():
        if not is_pretrained(arm, settings, workspace, store):
            failure = _attempt(arm, workspace, store, console)
            if failure:
                failed[arm.name] = failure
    return failed


def is_pretrained(arm: Arm, settings: Pretraining, workspace: Workspace, store: Store) -> bool:
    """Whether the checkpoints that cells start from are there, and the record of how they were made."""
    has_record = store.has_pretraining(workspace.pretraining_id(arm))
    return has_record and not workspace.pretraining_folder(arm).lacks(settings.finetuned_steps)


def _attempt(arm: Arm, workspace: Workspace, store: Store, console: Console) -> Failure | None:
    runtime = accelerator()
    try:
        _pretrain(arm, workspace, store, console)
        return None
    except UserError:
        raise
    except OSError as error:
        raise UserError(
            f"cannot write to '{store.folder}': {error.strerror or error}; the same command goes on from the last state"
        ) from error
    except Exception as error:
        # All processes meet a loss that is no number; where one alone fails, the others wait for it.
        if runtime.num_processes > 1 and not isinstance(error, NonFiniteLossError):
            raise
        failure = Failure(f"{type(error).__name__} in pretraining: {error}", traceback.format_exc())
    if runtime.is_main_process:
        console.print(f"pretraining {arm.name}: FAILED {failure.error}", markup=False, soft_wrap=True)
    return failure


def _pretrain(arm: Arm, workspace: Workspace, store: Store, console: Console) -> None:
    folder, task, runtime = workspace.pretraining_folder(arm), workspace.pretraining_task(arm), accelerator()
    folder.prepare()  # in every process, so that all of them meet what is wrong with it
    outcome = pretrain(workspace.initial(arm), task, folder, _reporter(arm, task.settings, console))
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


def _reporter(arm: Arm, settings: Pretraining, console: Console) -> Report:
    def report(point: dict[str, Any]) -> None:
        if point["validation_loss"] is None or not accelerator().is_main_process:
            return
        speed = point["tokens"] / point["seconds"]
        console.print(
            f"pretraining {arm.name}: step {point['step']} of {settings.steps}, {point['tokens']:,} tokens, "
            f"loss {point['train_loss']:.3f}, held-out {point['validation_loss']:.3f}, {speed:,.0f} tokens/s",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    return report
