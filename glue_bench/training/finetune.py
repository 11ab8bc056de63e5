"""One cell, from its start to its scores and predictions."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import set_seed
from transformers import PreTrainedModel

from glue_bench.config import HELD_OUT, Cell
from glue_bench.data.metrics import is_collapsed, score_logits
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.files import whole_folder, write_checksums
from glue_bench.model.checkpoints import Start
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.fresh import unfilled
from glue_bench.model.heads import EncoderForSequenceClassification
from glue_bench.model.native import NativeClassifier, NativeStart, build_native
from glue_bench.records.record import Epoch, RunFacts, Scores, Seconds, Tokens
from glue_bench.training.batches import bucketed_rows
from glue_bench.training.loop import HostTraining, NonFiniteLossError
from glue_bench.training.memory import return_freed
from glue_bench.training.runtime import all_threads, keeps_kernels
from glue_bench.training.shuffled import SUFFIX
from glue_bench.training.tokens import TokenisedSplit, TokenisedTask

NARROW = 256
Classifier = EncoderForSequenceClassification | NativeClassifier


@dataclass(frozen=True)
class Outcome:
    """What a finished cell leaves: its part of the record, and logits float32 (rows, labels) per split."""

    record: RunFacts
    predictions: dict[str, np.ndarray]


def finetune(
    cell: Cell,
    start: Start,
    tokens: TokenisedTask,
    keep_in: Path | None = None,
    rows_at_once: int | None = None,
    keep: Callable[[PreTrainedModel], None] | None = None,
) -> Outcome:
    """Fine-tune one cell. The same cell on the same machine gives the same bits, whatever ran before.

    On a GPU some gradients are summed in any order, so that last bits may differ.

    The score is the last epoch's; every epoch's scores are kept in `history`, those on a held-out slice of train among
    them. The encoder is kept in the folder `keep_in`, if given, for cells that start from it; `keep` is
    called with the whole model, as transformers knows it. Where memory is short, batches go through in parts of
    `rows_at_once` rows; updates stay those of whole batches.

    Raises:
        NonFiniteLossError: training diverged.
    """
    began = time.perf_counter()
    if keeps_kernels():  # they lie between what the last cell has freed
        return_freed()
    torch.set_num_threads(threads_for(start.config.get_text_config().hidden_size))
    model = build_classifier(start, cell.task, cell.seed)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    training = HostTraining(model, cell, tokens, rows_at_once)
    history, predictions, training_seconds = _train(training, cell, tokens)
    collapsed = [name for name, logits in predictions.items() if name != HELD_OUT and is_collapsed(cell.task, logits)]
    if keep_in:
        with whole_folder(keep_in, replaces=True) as aside:  # that of a run that did not live to its record
            training.model.base.save_pretrained(aside)
            write_checksums(aside)
    if keep:
        keep(training.model.model if isinstance(training.model, NativeClassifier) else training.model)
    for name in (*TASKS[cell.task].test_splits, AX_SPLIT):
        if name in tokens.splits:
            predictions[name] = training.predict(name)
    record = RunFacts(
        origin=start.origin,
        scores={name: scores for name, scores in history[-1].scores.items() if name != HELD_OUT},
        history=tuple(history),
        collapsed=tuple(collapsed),
        seconds=Seconds(total=round(time.perf_counter() - began, 3), training=round(training_seconds, 3)),
        tokens=Tokens(training=trained_tokens(cell, tokens.splits["train"])),
        parameters=parameters,
        order=_without_order(training, cell, tokens),
        micro_batch_size=rows_at_once,
    )
    return Outcome(record, predictions)


def _without_order(training: HostTraining, cell: Cell, tokens: TokenisedTask) -> Scores:
    """The scores on validation sets with shuffled words, by the names of the sets, where they are asked for."""
    shuffled = {name: name + SUFFIX for name in TASKS[cell.task].validation_splits if name + SUFFIX in tokens.splits}
    return {
        name: dict(score_logits(cell.task, training.predict(moved), tokens.splits[moved].labels))
        for name, moved in shuffled.items()
    }


def _train(
    training: HostTraining, cell: Cell, tokens: TokenisedTask
) -> tuple[list[Epoch], dict[str, np.ndarray], float]:
    """History, the last epoch's logits of all scored splits, and seconds spent training."""
    scored = [name for name in (*TASKS[cell.task].validation_splits, HELD_OUT) if name in tokens.splits]
    kept = cell.hyperparameters.predictions or "float32"
    history, predictions, seconds, began = [], {}, 0.0, time.perf_counter()
    for epoch, loss in enumerate(training.epochs(), start=1):
        seconds += time.perf_counter() - began
        # Scores are of what is stored, so that whoever has the predictions gets the same ones.
        predictions = {name: training.predict(name).astype(kept).astype(np.float32) for name in scored}
        if not all(np.isfinite(logits).all() for logits in predictions.values()):  # an update after the last loss
            raise NonFiniteLossError(f"predictions are not finite after epoch {epoch}")
        scores = {name: score_logits(cell.task, predictions[name], tokens.splits[name].labels) for name in scored}
        history.append(Epoch(epoch=epoch, train_loss=loss, scores=scores))
        began = time.perf_counter()
    return history, predictions, seconds


def trained_tokens(cell: Cell, split: TokenisedSplit) -> int:
    """The tokens of all updates, those of an epoch that ends early too."""
    settings = cell.hyperparameters
    in_epoch = -(-len(split) // settings.batch_size)
    whole, left = divmod(settings.steps(in_epoch), in_epoch)
    order = np.random.default_rng([cell.seed, whole + 1])
    cut = bucketed_rows(split.lengths, settings.batch_size, order)[:left] if left else []
    return int(split.offsets[-1]) * whole + sum(int(split.lengths[rows].sum()) for rows in cut)


def threads_for(hidden_size: int) -> int:
    """CPU threads for an encoder of this width.

    The operations of a narrow one end before a second thread has joined in, and on a busy machine every one of
    them waits for it: a demo cell took 7 s instead of 1.
    """
    of_all = all_threads()  # asked for first: the number of threads is about to be another
    return 1 if hidden_size < NARROW else of_all


def build_classifier(start: Start, task: str, seed: int) -> Classifier:
    """The start's encoder under a fresh head. Equal seeds give equal heads, whatever the variant.

    The head of a native arm is its own, of which this holds for arms of one family alone.
    """
    row = TASKS[task]
    names = dict(enumerate(row.labels or ("score",)))
    labels = {"id2label": names, "label2id": {name: index for index, name in names.items()}}
    labels |= {"num_labels": row.num_labels}
    if isinstance(start, NativeStart):
        return build_native(start, labels, seed)
    set_seed(seed)
    config = EncoderConfig.from_dict(start.config.to_dict() | labels)
    make = partial(unfilled, EncoderForSequenceClassification) if start.weights else EncoderForSequenceClassification
    model = make(config)
    model.base.load_state_dict(start.weights, strict=False)
    fresh = (
        [model.classifier] if "pooler.dense.weight" in start.weights else [model.base.pooler.dense, model.classifier]
    )
    # A variant's own parameters draw random numbers too; from here on all arms draw the same ones.
    set_seed(seed)
    for module in fresh:
        model._init_weights(module)
    return model
