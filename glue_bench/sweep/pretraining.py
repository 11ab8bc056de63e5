"""Pretrain the arms that waiting cells start from. A failing arm ends itself, never the sweep."""

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from glue_bench import recipe as recipes
from glue_bench.config import Arm, Pretraining
from glue_bench.errors import UserError
from glue_bench.files import results_written_to
from glue_bench.records.record import Environment, PretrainingRecord
from glue_bench.records.store import SCHEMA_VERSION, Store
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.environment import environment
from glue_bench.sweep.events import Observer, PretrainingEnded, PretrainingPoint, PretrainingStarted
from glue_bench.sweep.executors import POLL_SECONDS, Failure
from glue_bench.sweep.plan import PlannedCell
from glue_bench.testing.order import check_order
from glue_bench.training.identities import pretraining_id, pretraining_identity
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.memory import is_out_of_memory, release_memory
from glue_bench.training.pretrain import PretrainingTask, Report, pretrain
from glue_bench.training.runtime import accelerator, decided_by_main
from glue_bench.training.starts import arm_start, pretraining_folder


def pretrain_arms(
    cells: Sequence[PlannedCell],
    inputs: Inputs,
    store: Store,
    console: Console,
    claims: Claims,
    watching: Observer,
) -> dict[str, Failure]:
    """Bring every checkpoint that these cells start from into being; returns what failed, by the arm's name.

    An arm whose positions pretraining has left dead has failed, too. One that another sweep pretrains is waited for.
    """
    to_pretrain = {arm.name for arm in arms_to_pretrain(cells, inputs, store)}
    failures = {
        arm.name: (_alone(arm, inputs, store, console, claims, watching) if arm.name in to_pretrain else None)
        or _dead_positions(arm, recipe, inputs)
        for arm, recipe in _arms(cells, inputs)
    }
    return {name: failure for name, failure in failures.items() if failure is not None}


def arms_to_pretrain(cells: Sequence[PlannedCell], inputs: Inputs, store: Store) -> list[Arm]:
    """Arms of these cells that lack a checkpoint to start from, or the record of how it was made."""
    arms = _arms(cells, inputs)
    return decided_by_main(lambda: [arm for arm, recipe in arms if not is_pretrained(arm, inputs, store, recipe)])


def _arms(cells: Sequence[PlannedCell], inputs: Inputs) -> list[tuple[Arm, int]]:
    """The arms of these cells, each with the recipe of its pretraining; none in an experiment without pretraining."""
    arms = {planned.cell.arm.name: (planned.cell.arm, planned.cell.pretraining_recipe) for planned in cells}
    return list(arms.values()) if inputs.experiment.pretraining else []


def is_pretrained(arm: Arm, inputs: Inputs, store: Store, recipe: int | None = None) -> bool:
    """Whether the arm's pretraining under a recipe has a record, and all checkpoints that cells start from."""
    has_record = store.has_pretraining(pretraining_id(arm, inputs, recipe))
    return has_record and not pretraining_folder(arm, inputs, recipe).lacks(inputs.pretraining.finetuned_steps)


def _alone(
    arm: Arm, inputs: Inputs, store: Store, console: Console, claims: Claims, watching: Observer
) -> Failure | None:
    """Pretrain an arm while no other sweep does."""
    name = pretraining_id(arm, inputs)
    _wait_for_claim(name, claims, console)
    try:
        if decided_by_main(lambda: is_pretrained(arm, inputs, store)):  # by the one that we have waited for
            return None
        watching.hear(PretrainingStarted(arm.name))
        failure = _attempt(arm, inputs, store, console, watching)
        watching.hear(PretrainingEnded(arm.name, failure.error if failure else None))
        return failure
    finally:
        if accelerator().is_main_process:
            claims.release(name)


def _wait_for_claim(name: str, claims: Claims, console: Console) -> None:
    """Until the main process has the claim. It tells the others each time that it has looked: their patience ends."""
    taken = decided_by_main(lambda: claims.take(name))
    if not taken and accelerator().is_main_process:
        line = f"pretraining {name}: under way in another sweep; waiting for it"
        console.print(line, highlight=False, soft_wrap=True)
    while not taken:
        time.sleep(POLL_SECONDS)
        taken = decided_by_main(lambda: claims.take(name))


def _attempt(arm: Arm, inputs: Inputs, store: Store, console: Console, watching: Observer) -> Failure | None:
    """Pretrain an arm; where memory is short, from the last state on with half the rows at once, at last row by row."""
    runtime, task = accelerator(), inputs.pretraining_task(arm)
    while True:
        try:
            with results_written_to(store.folder, "the same command goes on from the last state"):
                _pretrain(arm, task, inputs, store, console, watching)
            return None
        except UserError:
            raise
        except Exception as error:
            less = _with_less_at_once(task) if is_out_of_memory(error) else None
            # All processes meet a loss that is no number; where one alone fails, the others wait for it.
            if runtime.num_processes > 1 and not isinstance(error, NonFiniteLossError):
                raise
            failure = Failure(f"{type(error).__name__} in pretraining: {error}", traceback.format_exc())
        if less is None:
            break
        task = less
        release_memory()  # the failed attempt's is free only now that its traceback is gone
    if runtime.is_main_process:
        console.print(f"pretraining {arm.name}: FAILED {failure.error}", markup=False, soft_wrap=True)
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


def _pretrain(
    arm: Arm, task: PretrainingTask, inputs: Inputs, store: Store, console: Console, watching: Observer
) -> None:
    folder, runtime = pretraining_folder(arm, inputs), accelerator()
    decided_by_main(folder.prepare)
    with _reporter(arm, task.settings, console, runtime.is_main_process) as report:

        def tell(point: dict[str, Any]) -> None:
            report(point)
            watching.hear(PretrainingPoint(arm.name, point))

        outcome = pretrain(inputs.initial(arm), task, folder, tell)
    if runtime.is_main_process:
        outcome |= _less_at_once(task, inputs)
        store.write_pretraining(_record(arm, inputs, outcome))
        folder.drop_state()
    runtime.wait_for_everyone()


def _less_at_once(task: PretrainingTask, inputs: Inputs) -> dict[str, Any]:
    """What a record says where memory was too short for the micro-batches that were asked for."""
    size = task.settings.micro_batch_tokens
    return {} if size == inputs.pretraining.micro_batch_tokens else {"micro_batch_tokens": size}


def _record(arm: Arm, inputs: Inputs, outcome: dict[str, Any]) -> PretrainingRecord:
    return PretrainingRecord(
        schema_version=SCHEMA_VERSION,
        pretraining_id=pretraining_id(arm, inputs),
        recipe=recipes.RECIPE,
        arm=arm.name,
        origin=inputs.origin(arm),
        identity=pretraining_identity(arm, inputs),
        **outcome,
        environment=Environment(**environment()),
    )


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
