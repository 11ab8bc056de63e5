"""Pretrain the arms that waiting cells start from. A failing arm ends itself, never the sweep."""

import time
import traceback
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from glue_bench import recipe as recipes
from glue_bench.config import Arm
from glue_bench.errors import UserError
from glue_bench.files import results_written_to
from glue_bench.records.record import LossPoint, PretrainingRecord
from glue_bench.records.store import Store
from glue_bench.records.value import SCHEMA_VERSION
from glue_bench.sweep.environment import environment
from glue_bench.sweep.events import PretrainingEnded, PretrainingPoint, PretrainingStarted
from glue_bench.sweep.executors import POLL_SECONDS, Failure
from glue_bench.sweep.plan import PlannedCell
from glue_bench.sweep.shared import Shared
from glue_bench.testing.order import check_order
from glue_bench.training.identities import pretraining_id, pretraining_identity
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.memory import is_out_of_memory, release_memory
from glue_bench.training.pretrain import PretrainingTask, pretrain
from glue_bench.training.runtime import accelerator, decided_by_main
from glue_bench.training.starts import arm_start, pretraining_folder


def pretrain_arms(cells: Sequence[PlannedCell], to_pretrain: Collection[Arm], shared: Shared) -> dict[str, Failure]:
    """Bring every checkpoint that these cells start from into being; returns what failed, by the arm's name.

    An arm whose positions pretraining has left dead has failed, too. One that another sweep pretrains is waited for.
    """
    names = {arm.name for arm in to_pretrain}
    failures = {
        arm.name: (_alone(arm, shared) if arm.name in names else None) or _dead_positions(arm, recipe, shared.inputs)
        for arm, recipe in _arms(cells, shared.inputs)
    }
    return {name: failure for name, failure in failures.items() if failure is not None}


def arms_to_pretrain(cells: Sequence[PlannedCell], inputs: Inputs, store: Store) -> list[Arm]:
    """Arms of these cells that lack a checkpoint to start from, or the record of how it was made."""
    arms = _arms(cells, inputs)
    return decided_by_main(lambda: [arm for arm, recipe in arms if not is_pretrained(arm, inputs, store, recipe)])


def is_pretrained(arm: Arm, inputs: Inputs, store: Store, recipe: int | None = None) -> bool:
    """Whether the arm's pretraining under a recipe has a record, and all checkpoints that cells start from."""
    has_record = store.has_pretraining(pretraining_id(arm, inputs, recipe))
    return has_record and not pretraining_folder(arm, inputs, recipe).lacks(inputs.pretraining.finetuned_steps)


def _arms(cells: Sequence[PlannedCell], inputs: Inputs) -> list[tuple[Arm, int]]:
    """The arms of these cells, each with the recipe of its pretraining; none in an experiment without pretraining."""
    arms = {planned.cell.arm.name: (planned.cell.arm, planned.cell.pretraining_recipe) for planned in cells}
    return list(arms.values()) if inputs.experiment.pretraining else []


def _alone(arm: Arm, shared: Shared) -> Failure | None:
    """Pretrain an arm while no other sweep does."""
    name = pretraining_id(arm, shared.inputs)
    _wait_for_claim(name, shared)
    try:
        # The sweep that this one has waited for may have done it.
        if decided_by_main(lambda: is_pretrained(arm, shared.inputs, shared.store)):
            return None
        shared.observer.hear(PretrainingStarted(arm.name, shared.inputs.pretraining.steps))
        failure = _attempt(arm, shared)
        shared.observer.hear(PretrainingEnded(arm.name, failure.error if failure else None))
        return failure
    finally:
        if accelerator().is_main_process:
            shared.claims.release(name)


def _wait_for_claim(name: str, shared: Shared) -> None:
    """Until the main process has the claim. It tells the others each time that it has looked: their patience ends."""
    taken = decided_by_main(lambda: shared.claims.take(name))
    if not taken and accelerator().is_main_process:
        line = f"pretraining {name}: under way in another sweep; waiting for it"
        shared.console.print(line, highlight=False, soft_wrap=True)
    while not taken:
        time.sleep(POLL_SECONDS)
        taken = decided_by_main(lambda: shared.claims.take(name))


def _attempt(arm: Arm, shared: Shared) -> Failure | None:
    """Pretrain an arm; where memory is short, from the last state on with half the rows at once, at last row by row."""
    task: PretrainingTask | None = shared.inputs.pretraining_task(arm)
    while task:
        try:
            with results_written_to(shared.store.folder, "the same command goes on from the last state"):
                _pretrain(arm, task, shared)
            return None
        except UserError:
            raise
        except Exception as error:
            task = _with_less_at_once(task) if is_out_of_memory(error) else None
            # All processes meet a loss of NaN; where one alone fails, the others wait for it.
            if accelerator().num_processes > 1 and not isinstance(error, NonFiniteLossError):
                raise
            failure = Failure(f"{type(error).__name__} in pretraining: {error}", traceback.format_exc())
        release_memory()  # the failed attempt's is free only now that its traceback is gone
    return failure


def _with_less_at_once(task: PretrainingTask) -> PretrainingTask | None:
    """The same task in micro-batches of half the rows; None if it goes row by row already."""
    settings = task.settings
    rows = (settings.micro_batch_tokens or settings.batch_tokens) // settings.length
    if rows == 1:
        return None
    return replace(task, settings=settings.model_copy(update={"micro_batch_tokens": rows // 2 * settings.length}))


def _dead_positions(arm: Arm, recipe: int, inputs: Inputs) -> Failure | None:
    if not accelerator().is_main_process:
        return None
    try:
        for steps in inputs.pretraining.finetuned_steps:
            folder = pretraining_folder(arm, inputs, recipe).checkpoint(steps)
            check_order(arm_start(arm, inputs, steps, recipe), arm.name, str(folder))
    except UserError as error:
        return Failure(str(error), traceback.format_exc())
    return None


def _pretrain(arm: Arm, task: PretrainingTask, shared: Shared) -> None:
    inputs, folder = shared.inputs, pretraining_folder(arm, shared.inputs)
    decided_by_main(folder.prepare)
    made = pretrain(
        inputs.initial(arm),
        task,
        folder,
        lambda point: shared.observer.hear(PretrainingPoint(arm.name, LossPoint(**point))),
    )
    if accelerator().is_main_process:
        facts, size = made.facts, task.settings.micro_batch_tokens
        if size != inputs.pretraining.micro_batch_tokens:  # memory was too short for those that were asked for
            facts |= {"micro_batch_tokens": size}
        shared.store.write_pretraining(_record(arm, inputs, facts), made.validation)
        folder.drop_state()
    accelerator().wait_for_everyone()


def _record(arm: Arm, inputs: Inputs, facts: dict[str, Any]) -> PretrainingRecord:
    return PretrainingRecord(
        schema_version=SCHEMA_VERSION,
        pretraining_id=pretraining_id(arm, inputs),
        recipe=recipes.RECIPE,
        arm=arm.name,
        origin=inputs.origin(arm),
        identity=pretraining_identity(arm, inputs),
        **facts,
        environment=environment(),
    )
