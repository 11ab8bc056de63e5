"""Finished cells that are trained once more, for what they have not left; each has to come out as it did."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from rich.console import Console

from glue_bench import recipe as recipes
from glue_bench.config import Experiment
from glue_bench.errors import UserError
from glue_bench.files import results_written_to, set_aside
from glue_bench.records.predicted import is_test
from glue_bench.records.record import Record
from glue_bench.records.store import Store
from glue_bench.sweep.attempts import keeping
from glue_bench.sweep.claims import STALE_SECONDS, Claims
from glue_bench.sweep.encoders import drop_encoders
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.sweep.older import as_stored
from glue_bench.sweep.plan import in_order, plan_cells
from glue_bench.sweep.progress import telling
from glue_bench.sweep.records import store_tests
from glue_bench.terminal import Screen, tell
from glue_bench.training.compute import AUTO, DEVICES, choose_compute
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import Progress
from glue_bench.training.quiet import quiet_libraries

Agree = Callable[[Sequence[str], float], bool]
"""Asked before anything is trained, with the cells and about how many seconds they take."""
WAITING = f"waiting up to {STALE_SECONDS:.0f} s for signs of life of another sweep that has claimed"


def train_again(
    experiment: Experiment,
    store: Store,
    cell_ids: Collection[str],
    agree: Agree,
    *,
    wanted: Callable[[PlannedCell, Inputs], bool] = lambda *_: True,
    keep: bool = False,
    console: Console | None = None,
) -> None:
    """Train finished cells of an experiment once more, those that are `wanted`.

    What they predict of test splits is stored, if the experiment asks for it, and with `keep` their models are. Each
    is trained as its record says: on the same kind of device, in the same precision, with as many threads. Those that
    another sweep works on are left out, which the console is told.

    Raises:
        UserError: the experiment does not give these cells, this machine or version cannot repeat one, what they start
            from is gone, or a cell does not give its stored validation predictions again. What did come out as stored
            is kept.
    """
    quiet_libraries()
    inputs = Inputs(experiment, store.folder / "checkpoints")
    cells = as_stored(plan_cells(experiment, inputs), inputs, store)
    chosen = [planned for planned in _chosen(cells, cell_ids) if wanted(planned, inputs)]
    todo = in_order(chosen, cells, inputs)
    records = {planned.id: store.read_record(planned.id) for planned in todo}
    _check_repeatable(records)
    if not todo or not agree(list(records), sum(record.seconds.total for record in records.values())):
        return
    try:
        with Claims(store.folder / "claims") as claims:
            for planned in _claimed(chosen, cells, inputs, claims, console or Screen(stderr=True)):
                job = replace(planned, keeps=keep and planned.id in cell_ids)
                with telling(store.folder, planned.id) as progress:
                    outcome = _again(job, inputs, store.read_record(planned.id), progress)
                _check_same(job, outcome, store, inputs)
                with results_written_to(store.folder):
                    store_tests(store, planned, outcome, inputs)
                claims.release(planned.id)
    finally:
        drop_encoders(cells, inputs, store)


def _claimed(
    chosen: Sequence[PlannedCell], cells: Sequence[PlannedCell], inputs: Inputs, claims: Claims, console: Console
) -> list[PlannedCell]:
    """The cells to train, each claimed until it has ended: nobody drops an encoder that a claimed cell starts from."""
    wanted = [planned.id for planned in in_order(chosen, cells, inputs)]
    taken = claims.take_all(wanted, lambda names: tell(console, f"{WAITING} {', '.join(names)}"))
    todo = in_order([planned for planned in chosen if planned.id in taken], cells, inputs)
    elsewhere = {planned.id for planned in todo if planned.id not in taken}
    ready = [planned for planned in todo if planned.id not in elsewhere and planned.mnli not in elsewhere]
    if left := [planned.id for planned in chosen if planned not in ready]:
        tell(console, f"left out, since another sweep works on them or on what they start from: {', '.join(left)}")
    for name in taken - {planned.id for planned in ready}:
        claims.release(name)
    return ready


def _chosen(cells: Sequence[PlannedCell], cell_ids: Collection[str]) -> list[PlannedCell]:
    """The cells of these ids.

    Raises:
        UserError: one is not among them, or is of an older recipe.
    """
    by_id = {planned.id: planned for planned in cells}
    for name in cell_ids:
        if name not in by_id:
            raise UserError(
                f"'{name}' is not what the stored plan gives now: its data, text, checkpoint or plugin is another one"
            )
        if by_id[name].recipe != recipes.RECIPE:
            raise UserError(f"'{name}' was trained by an older recipe, which this version cannot repeat; run it anew")
    return [by_id[name] for name in cell_ids]


def _check_repeatable(records: Mapping[str, Record]) -> None:
    """Refuse, before anybody is asked, runs whose record rules out that they come out the same here.

    Raises:
        UserError: one was run on another kind of device.
    """
    for name, record in records.items():
        made, here = record.environment, choose_compute().name
        if made.device not in (None, "cpu") and _kind(made.device) != _kind(here):
            raise UserError(
                f"'{name}' was run on {made.device}, but this machine computes on {here}, which does not give "
                "the same bits; use the kind of machine that ran it"
            )


def _kind(device: str) -> str:
    """The kind of a device that `Compute.name` has named: GPUs of CUDA have names of their own."""
    return device if device in DEVICES else "cuda"


def _again(planned: PlannedCell, inputs: Inputs, record: Record, progress: Progress) -> Outcome:
    """Train a cell as its record says that it was trained."""
    made = record.environment
    compute = choose_compute("cpu" if made.device == "cpu" else AUTO, record.precision or made.precision or AUTO)
    compute = replace(compute, threads=made.threads or compute.threads)
    keep, rows = keeping(planned, inputs), record.micro_batch_size
    return finetune(planned.cell, inputs, compute, keep=keep, progress=progress, rows_at_once=rows)


def _check_same(planned: PlannedCell, outcome: Outcome, store: Store, inputs: Inputs) -> None:
    """Refuse a run that is not the stored one; its weights are not those of the record either."""
    stored = {split: logits for split, logits in store.read_predictions(planned.id).items() if not is_test(split)}
    away = [
        float(np.abs(logits - outcome.predictions[split]).max())
        for split, logits in stored.items()
        if not np.array_equal(logits, outcome.predictions[split])
    ]
    if stored and not away:
        return
    with suppress(OSError):
        set_aside(inputs.encoder_folder(planned.cell))
        if planned.keeps:
            set_aside(store.model_folder(planned.id))
    why = f"its logits differ by up to {max(away):.2g}" if away else "none are stored to hold it to"
    made = store.read_record(planned.id).environment
    where = ", ".join(str(part) for part in (made.processor, made.device, made.precision) if part)
    raise UserError(
        f"'{planned.id}' does not give its stored validation predictions again ({why}), so that its weights "
        f"and test predictions would be another run's; nothing of it is stored. Use the kind of machine that ran it "
        f"({where}), with the same versions"
    )
