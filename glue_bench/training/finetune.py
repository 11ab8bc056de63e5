"""One cell, from its start to its scores and predictions."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed

from glue_bench.benchmark.metrics import is_collapsed, score_logits
from glue_bench.benchmark.tasks import AX_SPLIT, TASKS
from glue_bench.config import HELD_OUT, Cell
from glue_bench.files import whole_folder, write_checksums
from glue_bench.model.checkpoints import Start
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.transformers_api import EncoderForSequenceClassification
from glue_bench.training.batches import EVALUATION_TOKENS, Batch, evaluation_batches, training_batches
from glue_bench.training.loop import ALL_THREADS, predict, train
from glue_bench.training.tokens import TokenisedTask
from glue_bench.training.used_rows import used_rows_only

NARROW = 256


@dataclass(frozen=True)
class Outcome:
    """What a finished cell leaves: its part of the record, and logits float32 (rows, labels) per split."""

    record: dict[str, Any]
    predictions: dict[str, np.ndarray]


def finetune(
    cell: Cell, start: Start, tokens: TokenisedTask, keep_in: Path | None = None, rows_at_once: int | None = None
) -> Outcome:
    """Fine-tune one cell. The same cell on the same machine gives the same bits, whatever ran before.

    The score is the last epoch's; every epoch's scores are kept in `history`, those on a held-out slice of train among
    them. The encoder is kept in the folder `keep_in`, if given, for cells that start from it. Where memory is short,
    batches go through in parts of `rows_at_once` rows; updates stay those of whole batches.

    Raises:
        NonFiniteLossError: training diverged.
    """
    began = time.perf_counter()
    torch.set_num_threads(threads_for(start.config.hidden_size))
    model = build_classifier(start, cell.task, cell.seed)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with used_rows_only(model, tokens.splits["train"].ids):
        history, predictions, training_seconds = _train(model, cell, tokens, rows_at_once)
    if keep_in:
        with whole_folder(keep_in) as aside:
            model.base.save_pretrained(aside)
            write_checksums(aside)
    for name in (*TASKS[cell.task].test_splits, AX_SPLIT):
        if name in tokens.splits:
            predictions[name] = _predict(model, tokens, name, _share(cell, rows_at_once))
    record = {
        "origin": start.origin,
        "scores": {name: scores for name, scores in history[-1]["scores"].items() if name != HELD_OUT},
        "history": history,
        "collapsed": _collapsed(cell.task, predictions),
        "seconds": {"total": round(time.perf_counter() - began, 3), "training": round(training_seconds, 3)},
        "tokens": {"training": int(tokens.splits["train"].offsets[-1]) * cell.hyperparameters.epochs},
        "parameters": parameters,
        **({"micro_batch_size": rows_at_once} if rows_at_once else {}),
    }
    return Outcome(record, predictions)


def threads_for(hidden_size: int) -> int:
    """CPU threads for an encoder of this width.

    The operations of a narrow one end before a second thread has joined in, and on a busy machine every one of
    them waits for it: a demo cell took 7 s instead of 1.
    """
    return 1 if hidden_size < NARROW else ALL_THREADS


def build_classifier(start: Start, task: str, seed: int) -> EncoderForSequenceClassification:
    """The start's encoder under a fresh head. Equal seeds give equal heads, whatever the variant."""
    set_seed(seed)
    model = EncoderForSequenceClassification(_for_task(start.config, task))
    model.base.load_state_dict(start.weights, strict=False)
    fresh = (
        [model.classifier] if "pooler.dense.weight" in start.weights else [model.base.pooler.dense, model.classifier]
    )
    # A variant's own parameters draw random numbers too; from here on all arms draw the same ones.
    set_seed(seed)
    for module in fresh:
        model._init_weights(module)
    return model


def _for_task(config: EncoderConfig, task: str) -> EncoderConfig:
    row = TASKS[task]
    names = dict(enumerate(row.labels or ("score",)))
    labels = {"id2label": names, "label2id": {name: index for index, name in names.items()}}
    return EncoderConfig.from_dict(config.to_dict() | labels | {"num_labels": row.num_labels})


def _train(
    model: EncoderForSequenceClassification, cell: Cell, tokens: TokenisedTask, rows_at_once: int | None
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray], float]:
    """History, the last epoch's logits of all scored splits, and seconds spent training."""
    settings, split = cell.hyperparameters, tokens.splits["train"]
    steps = -(-len(split) // settings.batch_size)
    scored = [name for name in (*TASKS[cell.task].validation_splits, HELD_OUT) if name in tokens.splits]

    def epochs(epoch: int) -> Iterator[Batch]:
        return training_batches(split, settings.batch_size, tokens.padding_id, cell.seed, epoch)

    history, predictions, seconds, began = [], {}, 0.0, time.perf_counter()
    for epoch, loss in enumerate(train(model, epochs, steps, settings, rows_at_once), start=1):
        seconds += time.perf_counter() - began
        predictions = {name: _predict(model, tokens, name, _share(cell, rows_at_once)) for name in scored}
        history.append({"epoch": epoch, "train_loss": loss, "scores": _scores(cell.task, tokens, predictions)})
        began = time.perf_counter()
    return history, predictions, seconds


def _share(cell: Cell, rows_at_once: int | None) -> float:
    """The part of a batch that goes through at once."""
    return (rows_at_once or cell.hyperparameters.batch_size) / cell.hyperparameters.batch_size


def _predict(model: EncoderForSequenceClassification, tokens: TokenisedTask, name: str, share: float) -> np.ndarray:
    """Logits of a split, in batches of a `share` of the usual size."""
    split = tokens.splits[name]
    batches = evaluation_batches(split, tokens.padding_id, int(EVALUATION_TOKENS * share))
    return predict(model, batches, len(split))


def _scores(task: str, tokens: TokenisedTask, predictions: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    return {name: score_logits(task, logits, tokens.splits[name].labels) for name, logits in predictions.items()}


def _collapsed(task: str, predictions: Mapping[str, np.ndarray]) -> list[str]:
    return [
        name for name in TASKS[task].validation_splits if name in predictions and is_collapsed(task, predictions[name])
    ]
