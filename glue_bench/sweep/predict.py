"""Test predictions of cells that were run without: each is trained once more, and has to come out as it did."""

import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from glue_bench import recipe as recipes
from glue_bench.benchmark.tasks import TASKS
from glue_bench.config import Experiment, parse_experiment, with_sources
from glue_bench.errors import UserError
from glue_bench.files import results_written_to
from glue_bench.records.plan import Plan
from glue_bench.records.predicted import is_test
from glue_bench.records.record import Record
from glue_bench.records.store import Store
from glue_bench.sweep.encoders import drop_encoders
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.sweep.older import as_stored
from glue_bench.sweep.plan import in_order, plan_cells
from glue_bench.sweep.records import store_tests
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.runtime import all_threads, computing, in_float32, is_float32
from glue_bench.training.starts import cell_start, encoder_folder

Agree = Callable[[Sequence[str], float], bool]
"""Asked before anything is trained, with the cells and about how many seconds they take."""


def predict_tests(
    store: Store, cell_ids: Collection[str], agree: Agree, data: str | None = None, corpus: Sequence[str] = ()
) -> None:
    """Train cells of the stored plan once more, and store what they predict of their test splits.

    Each is trained as its record says: on the same kind of device, in the same precision, with as many threads. Cells
    whose data has no test split are left out. `data` and `corpus` are needed where the plan cannot tell them.

    Raises:
        UserError: the plan with these data does not give these cells, what they start from is gone, or a cell does not
            give its stored validation predictions again. What did come out as stored is kept.
    """
    quiet_libraries()
    experiment = _experiment(store.needed_plan(), data, corpus)
    inputs = Inputs(experiment, store.folder / "checkpoints")
    cells = as_stored(plan_cells(experiment, inputs), inputs, store)
    chosen = _chosen(cells, cell_ids, inputs)
    todo = in_order(chosen, cells, inputs)
    records = {planned.id: store.read_record(planned.id) for planned in todo}
    if not todo or not agree(list(records), sum(record.seconds.total for record in records.values())):
        return
    try:
        for planned in todo:
            outcome = _again(planned, inputs, records[planned.id])
            _check_same(planned, outcome, store, inputs)
            with results_written_to(store.folder):
                store_tests(store, planned, outcome, inputs)
    finally:
        drop_encoders(cells, inputs, store)


def _experiment(plan: Plan, data: str | None, corpus: Sequence[str]) -> Experiment:
    """The plan's experiment, which does not tell where a person keeps data and text, with its tests to be predicted."""
    known = plan.data_source if plan.data_source in ("demo", "hub") else None
    if not (data or known):
        raise UserError("the plan does not tell where its data lies; give it with --data")
    config: dict[str, Any] = {**plan.config, "data": known}
    finetuning = config.get("finetuning")
    config["finetuning"] = {**(finetuning if isinstance(finetuning, dict) else {}), "predict": ["validation", "test"]}
    if isinstance(pretraining := config.get("pretraining"), dict):
        if not corpus and known != "demo":
            raise UserError(
                "the plan does not tell where the text lies that its arms were pretrained on; give --corpus"
            )
        renamed = {"from" if name == "start" else name: value for name, value in pretraining.items()}
        config["pretraining"] = {**renamed, "corpus": ["demo"]}
    return parse_experiment(with_sources(config, data, corpus), "plan.json")


def _chosen(cells: Sequence[PlannedCell], cell_ids: Collection[str], inputs: Inputs) -> list[PlannedCell]:
    """The cells of these ids that have something to predict."""
    by_id = {planned.id: planned for planned in cells}
    for name in cell_ids:
        if name not in by_id:
            raise UserError(
                f"'{name}' is not what the stored plan gives now: its data, text, checkpoint or plugin is another one"
            )
        if by_id[name].recipe != recipes.RECIPE:
            raise UserError(f"'{name}' was trained by an older recipe, which this version cannot repeat; run it anew")
    return [
        by_id[name]
        for name in cell_ids
        if inputs.diagnostic(task := by_id[name].cell.task) is not None
        or inputs.data(task).splits.keys() & set(TASKS[task].test_splits)
    ]


def _again(planned: PlannedCell, inputs: Inputs, record: Record) -> Outcome:
    """Train a cell as its record says that it was trained."""
    cell, made = planned.cell, record.environment
    device = "cpu" if made.device == "cpu" else "auto"
    with computing(device, made.precision or "auto"):
        torch.set_num_threads(made.threads or torch.get_num_threads())
        all_threads.cache_clear()
        alone = in_float32() if record.precision == "float32" and not is_float32() else nullcontext()
        keep_in = encoder_folder(cell, inputs) if planned.is_source else None
        with alone:
            return finetune(cell, cell_start(cell, inputs), inputs.tokens(cell), keep_in, record.micro_batch_size)


def _check_same(planned: PlannedCell, outcome: Outcome, store: Store, inputs: Inputs) -> None:
    """Refuse a run that is not the stored one; its encoder is not that of the record either."""
    stored = {split: logits for split, logits in store.read_predictions(planned.id).items() if not is_test(split)}
    away = [
        float(np.abs(logits - outcome.predictions[split]).max())
        for split, logits in stored.items()
        if not np.array_equal(logits, outcome.predictions[split])
    ]
    if stored and not away:
        return
    shutil.rmtree(encoder_folder(planned.cell, inputs), ignore_errors=True)
    why = f"its logits differ by up to {max(away):.2g}" if away else "none are stored to hold it to"
    made = store.read_record(planned.id).environment
    where = ", ".join(str(part) for part in (made.processor, made.device, made.precision) if part)
    raise UserError(
        f"'{planned.id}' does not give its stored validation predictions again ({why}), so that its test predictions "
        f"would be another run's; nothing of it is stored. Predict on the kind of machine that ran it ({where}), "
        "with the same versions"
    )
