"""Reads a plan and the records of its finished jobs into data frames."""

from collections.abc import Sequence
from itertools import product
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.board.columns import (
    ARM_COLUMNS,
    BASELINE_COLUMNS,
    CELL_COLUMNS,
    EPOCH_SCORE_COLUMNS,
    LOSS_COLUMNS,
    MEASURE_COLUMNS,
    PRETRAINING_COLUMNS,
    RUN_COLUMNS,
    TASK_COLUMNS,
)
from glue_bench.config import AS_PUBLISHED, FINISHED, HELD_OUT, SCRATCH
from glue_bench.data.metrics import score
from glue_bench.data.task_data import is_demo
from glue_bench.data.tasks import KNOWN, find_task
from glue_bench.errors import UserError
from glue_bench.records.finished import Finished
from glue_bench.records.labels import CLUSTERS, GOLD
from glue_bench.records.store import Store
from glue_bench.records.values import (
    ArmFacts,
    Cell,
    Plan,
    PretrainingRecord,
    Record,
    Shape,
    TaskFacts,
)

Run = Record | PretrainingRecord
"""What a finished job has recorded: of a cell, or of a pretraining."""
Row = dict[str, Any]
"""A row of a frame, by column."""
UNFINISHED_RUN: Row = {
    "finished": False,
    "collapsed": (),
    "precision": "",
    "processor": "",
    "base_model": "",
}
"""The RUN_COLUMNS of a cell that has not finished."""
WITH_GRAPHS = " with CUDA graphs"
"""The end of a GPU's name if its steps were launched as CUDA graphs."""
MAJORITY_BASELINE = "majority class"
"""The name of the baseline that gives every row the same answer."""
FRESH_WEIGHTS = "fresh weights of this shape"
"""The start of an arm from scratch."""
ANY_SHAPE = "each its own"
"""The shape of native and finished arms, which are shown together whatever their shapes are."""


def read_cells(plan: Plan, finished: Finished) -> pd.DataFrame:
    """Return CELL_COLUMNS and RUN_COLUMNS of each planned cell."""
    base_models: dict[str, str] = {}
    for arm in plan.experiment.arms:
        # A name without a revision may be the name of a folder, which is private.
        if arm.revision:
            base_models[arm.name] = f"{arm.checkpoint}@{arm.revision}"

    rows: list[Row] = []
    for cell in plan.cells:
        row = UNFINISHED_RUN | cell.key
        row["cell_id"] = cell.id
        row["origin"] = cell.origin
        row["data"] = cell.data
        record = finished.records.get(cell.id)
        if record:
            row |= _fields_among(record, RUN_COLUMNS)
            runs = _runs_of_weights(record, finished)
            row["finished"] = True
            row["base_model"] = base_models.get(cell.arm, "")
            row["precision"] = _join_if_known([_precision(run) for run in runs])
            row["processor"] = _join_if_known([_processor(run) for run in runs])
        rows.append(row)

    types: dict[str, Any] = {
        "learning_rate": float,
        "seed": int,
        "pretraining_seed": "Int64",
        "steps": "Int64",
        "finished": bool,
    }
    return pd.DataFrame(rows, columns=[*CELL_COLUMNS, *RUN_COLUMNS]).astype(types)


def read_scores(plan: Plan, finished: Finished) -> pd.DataFrame:
    """Return EPOCH_SCORE_COLUMNS of each score of each epoch of a finished cell, times 100."""
    rows: list[tuple[Any, ...]] = []
    for cell in plan.cells:
        record = finished.records.get(cell.id)
        if not record:
            continue
        task = find_task(cell.task)
        scores_by_epoch = {epoch.epoch: epoch.scores for epoch in record.history}
        # A finished model has no history, and its scores are those of epoch 0.
        last = max(scores_by_epoch, default=0)
        scores_by_epoch[last] = scores_by_epoch.get(last, {}) | record.scores
        splits = (*task.columns, HELD_OUT)
        for epoch, split, metric in product(scores_by_epoch, splits, task.metrics):
            scores = scores_by_epoch[epoch].get(split, {})
            if metric in scores:
                rows.append((cell.id, epoch, epoch == last, split, metric, scores[metric]))
    frame = pd.DataFrame(rows, columns=list(EPOCH_SCORE_COLUMNS))
    frame = frame.astype({"value": float, "last": bool})
    return frame.assign(value=100.0 * frame["value"])


def read_arms(plan: Plan) -> pd.DataFrame:
    """Return ARM_COLUMNS of each arm; its name is the index.

    `start` is what the weights started from before any pretraining of ours, and `start_digest` is
    the digest of its files.
    """
    cell_of_arm = {cell.arm: cell for cell in plan.cells}
    arm_of_name = {arm.name: arm for arm in plan.experiment.arms}

    rows: list[Row] = []
    for name, facts in plan.arms.items():
        arm = arm_of_name[name]
        cell = cell_of_arm[name]

        start = arm.checkpoint
        # A path says where a person keeps a checkpoint, which is private.
        if start.startswith(("/", "~", ".")):
            start = PurePath(start).name
        if arm.revision:
            start = f"{start}@{arm.revision}"

        shape = ANY_SHAPE
        if facts.shape and cell.origin not in (AS_PUBLISHED, FINISHED):
            shape = shape_text(facts.shape)

        row = _fields_among(facts, ARM_COLUMNS)
        row |= {
            "checkpoint": arm.checkpoint,
            "options": arm.options,
            "embedding_size": arm.embedding_size,
            "arm": arm.name,
            "variant": cell.variant,
            "origin": cell.origin,
            "shape": shape,
            "start": start,
            # The checkpoint of a native arm has the digest first, and then how texts are given to
            # the model.
            "start_digest": cell.checkpoint.partition(" ")[0],
        }
        if start == SCRATCH:
            row["start"] = FRESH_WEIGHTS
            row["start_digest"] = ""
        rows.append(row)

    types = {"parameters": "Int64", "embedding_size": "Int64"}
    frame = pd.DataFrame(rows, columns=list(ARM_COLUMNS)).astype(types)
    return frame.set_index("arm", drop=False)


def shape_text(shape: Shape) -> str:
    """Return a shape in words, which are equal for equal shapes.

    It names all that decides how much an encoder learns, whatever the variant. The embedding size
    is named if it is below the hidden size (ELECTRA), where it bounds what a token can express.
    A larger embedding size is left out, because it belongs to how an arm combines embeddings. The
    number of positions is left out, because rows beyond the longest text take no part.
    """
    parts = [
        _count(shape.num_hidden_layers, "layer"),
        f"hidden size {shape.hidden_size}",
        _count(shape.num_attention_heads, "head"),
        f"intermediate size {shape.intermediate_size}",
    ]
    if shape.embedding_size < shape.hidden_size:
        parts.append(f"embedding size {shape.embedding_size}")
    parts.append(f"vocabulary {shape.vocab_size}")
    if shape.norm_first:
        parts.append("LayerNorm first")
    if shape.gated:
        parts.append("gated")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def read_tasks(plan: Plan) -> pd.DataFrame:
    """Return TASK_COLUMNS of each task, in the order of KNOWN; its name is the index.

    The settings are the settings of fine-tuning, if any arm is fine-tuned.
    """
    cell_of_task: dict[str, Cell] = {}
    # Cells that are trained come last, and so replace those that are only scored.
    for cell in sorted(plan.cells, key=lambda cell: cell.is_trained):
        cell_of_task[cell.task] = cell

    rows: list[Row] = []
    for task, definition in KNOWN.items():
        if task not in cell_of_task:
            continue
        cell = cell_of_task[task]
        facts = plan.tasks[task]
        partial = facts.partial and not is_demo(facts.source)
        rows.append(
            {
                "task": task,
                "title": definition.title,
                "source": facts.source,
                "digest": facts.digest,
                "revision": facts.revision or "",
                "partial": partial and not _are_needed_splits_official(cell, facts),
                "rows": facts.rows,
                "differences": facts.differences or {},
                "unchecked": facts.unchecked or (),
                "settings": cell.settings.model_dump(exclude_none=True, exclude={"learning_rate"}),
                "from_mnli": cell.mnli is not None,
            }
        )

    frame = pd.DataFrame(rows, columns=list(TASK_COLUMNS))
    return frame.astype({"partial": bool, "from_mnli": bool}).set_index("task", drop=False)


def _are_needed_splits_official(cell: Cell, facts: TaskFacts) -> bool:
    """Return whether no split that a cell needs is missing, and all splits have official rows.

    A cell needs validation, and train if it is trained. If only other splits are missing, its
    scores compare with published ones.
    """
    official = find_task(cell.task).splits
    needed = {*find_task(cell.task).validation_splits}
    if cell.is_trained:
        needed.add("train")
    if facts.differences or not needed <= facts.rows.keys():
        return False
    return all(
        split in official and rows == official[split].rows for split, rows in facts.rows.items()
    )


def read_pretrainings(plan: Plan, finished: Finished) -> pd.DataFrame:
    """Return PRETRAINING_COLUMNS of each planned pretraining, those of rate searches last."""
    rows: list[Row] = []
    for pretraining in sorted(plan.pretrainings, key=lambda pretraining: pretraining.is_search):
        record = finished.pretrainings.get(pretraining.id)
        row = {
            "pretraining_id": pretraining.id,
            "is_search": pretraining.is_search,
            "finished": record is not None,
            "arm": pretraining.arm,
            "seed": pretraining.seed,
        }
        if record:
            row |= _fields_among(record, PRETRAINING_COLUMNS)
            row["searches"] = pretraining.searches
            row["weights"] = (record.weights or {}).get(record.steps)
            row["learning_rate"] = record.pretraining.learning_rate
            row["processor"] = _processor(record)
            row["precision"] = _precision(record)
        rows.append(row)

    types: dict[str, Any] = {
        "is_search": bool,
        "finished": bool,
        "learning_rate": float,
        "validation_loss": float,
        "seconds": float,
    }
    return pd.DataFrame(rows, columns=list(PRETRAINING_COLUMNS)).astype(types)


def read_losses(plan: Plan, finished: Finished) -> pd.DataFrame:
    """Return LOSS_COLUMNS of each point of the curve of a finished pretraining."""
    rows: list[Row] = []
    for keys, record in _finished_pretrainings(plan, finished):
        for point in record.losses:
            row = keys | point.model_dump()
            rows.append(row)
    return pd.DataFrame(rows, columns=list(LOSS_COLUMNS))


def read_measures(plan: Plan, finished: Finished) -> pd.DataFrame:
    """Return MEASURE_COLUMNS of each measure of a finished pretraining."""
    rows: list[Row] = []
    for keys, record in _finished_pretrainings(plan, finished):
        for measure in record.measures:
            rows.append(keys | {"measure": measure.name} | measure.model_dump())
    frame = pd.DataFrame(rows, columns=list(MEASURE_COLUMNS))
    return frame.astype({"value": float, "standard_error": float})


def _finished_pretrainings(plan: Plan, finished: Finished) -> list[tuple[Row, PretrainingRecord]]:
    """Return the columns that name each finished pretraining, and its record.

    Pretrainings of rate searches are left out.
    """
    pairs: list[tuple[Row, PretrainingRecord]] = []
    for pretraining in plan.pretrainings:
        record = finished.pretrainings.get(pretraining.id)
        if record and not pretraining.is_search:
            keys = {
                "pretraining_id": pretraining.id,
                "arm": pretraining.arm,
                "pretraining_seed": pretraining.seed,
                "step": record.steps,
            }
            pairs.append((keys, record))
    return pairs


def read_baselines(store: Store, plan: Plan) -> tuple[pd.DataFrame, list[str]]:
    """Return BASELINE_COLUMNS of each score of a trivial baseline, and a line for each problem.

    The baselines are the majority class (the mean of STS-B), and those whose predictions are stored
    beside the gold labels.
    """
    rows: list[tuple[Any, ...]] = []
    problems: list[str] = []

    for task in KNOWN:
        if task not in plan.tasks:
            continue
        facts = plan.tasks[task]
        try:
            stored = dict(store.labels.read(task, facts.digest, facts.labels))
        except UserError as error:
            problems.append(str(error))
            continue
        gold = stored.pop(GOLD)
        stored.pop(CLUSTERS, None)
        # Without the labels and their clusters, the predictions of each baseline are left.
        constants = {split: _constant_answer(task, values) for split, values in gold.items()}
        for baseline, predictions in {MAJORITY_BASELINE: constants, **stored}.items():
            for split, predicted in predictions.items():
                for metric, value in score(task, predicted, gold[split]).items():
                    rows.append((task, split, metric, baseline, 100.0 * value))

    frame = pd.DataFrame(rows, columns=list(BASELINE_COLUMNS)).astype({"value": float})
    return frame, problems


def _constant_answer(task: str, gold: np.ndarray) -> np.ndarray:
    """Return the mean of the gold labels, or the most frequent one, for every row."""
    if find_task(task).is_regression:
        return np.full_like(gold, gold.mean())
    return np.full_like(gold, np.bincount(gold).argmax())


def _fields_among(values: Run | ArmFacts, columns: Sequence[str]) -> Row:
    """Return the fields of a record, or of the facts of an arm, that are called as a column is."""
    return {name: getattr(values, name) for name in columns if hasattr(values, name)}


def _runs_of_weights(record: Record, finished: Finished) -> list[Run | None]:
    """Return the runs that trained a cell's weights, in order; None for a run without a record.

    They are its pretraining here, the fine-tuning on MNLI that it starts from, and its own run.
    """
    cell = record.cell
    runs: list[Run | None] = []
    if cell.pretraining:
        runs.append(finished.pretrainings.get(cell.pretraining))
    if cell.mnli:
        runs.append(finished.records.get(cell.mnli))
    return [*runs, record]


def _precision(run: Run | None) -> str:
    """Return the precision that a run computed in, or "" if it is not known."""
    if run is None:
        return ""
    if isinstance(run, Record) and run.precision:
        return run.precision
    return run.environment.precision or ""


def _processor(run: Run | None) -> str:
    """Return the name of the GPU or CPU that a run used, or "" if it is not known.

    A GPU that launched steps as graphs counts as another one than the same GPU without them.
    """
    if run is None:
        return ""
    environment = run.environment
    if environment.device in (None, "cpu"):
        return environment.processor or ""
    return f"{environment.device}{WITH_GRAPHS}" if environment.graphs else environment.device


def _join_if_known(facts: Sequence[str]) -> str:
    """Join the different facts of runs, the first run's first. It is "" if one is not known."""
    return ", then ".join(dict.fromkeys(facts)) if all(facts) else ""
