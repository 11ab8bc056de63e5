"""The peer's side: transformers' Trainer, driven as its examples/pytorch/text-classification/run_glue.py does.

Left out is what run_glue does beside training and scoring and can be told not to do: saving, progress bars, reporting.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from cells import Settings
from glue_bench.config import Hyperparameters, PretrainingSettings
from glue_bench.data.metrics import score_logits
from glue_bench.data.tasks import TASKS
from glue_bench.records.values import Cell
from glue_bench.training.compute import quiet_libraries
from glue_bench.training.inputs import Inputs
from workers import Round

EVALUATION_ROWS = 64  # run_glue's own default is 8, which would be slow
PADDINGS = ("fixed", "dynamic", "grouped")


def make_peer(settings: Settings, padding: str) -> Round:
    """Tokenise; a round then goes from the checkpoint's folder to scores. `padding` is one of PADDINGS."""
    quiet_libraries()
    os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16" if settings.bf16 else "no"  # what Trainer falls back to
    inputs = Inputs(settings.experiment)
    cell, (arm,) = settings.cell(inputs), inputs.experiment.arms
    tokenizer, frames = inputs.tokenizer(arm), inputs.data(cell.task).splits
    scored = {
        name: as_dataset(frames[name], tokenizer, settings.max_length, padding)
        for name in TASKS[cell.task].validation_splits
    }

    def work(steps: int) -> dict[str, Any]:
        rows = frames["train"].iloc[settings.rows(len(frames["train"]), steps)]
        train, clock = as_dataset(rows, tokenizer, settings.max_length, padding), Clock()
        began = time.perf_counter()
        scores = train_and_score(
            cell,
            arm.checkpoint,
            {"train": train, **scored},
            tokenizer,
            padding,
            callbacks=[clock],
            bf16=settings.bf16,
        )
        total = time.perf_counter() - began
        return {
            "tokens": real_tokens(train),
            "training_seconds": clock.seconds,
            "total_seconds": total,
            "scores": scores,
        }

    return work


class Clock(TrainerCallback):
    """Seconds of the training loop, without the making of model, optimiser and data loader."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The first step is about to begin."""
        self.began = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The last step has been taken."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self.began


def as_dataset(frame: Any, tokenizer: Any, max_length: int, padding: str = "dynamic") -> Dataset:
    """A split, tokenised as run_glue does: padded to `max_length` only with `fixed` padding."""
    texts = [frame[column].tolist() for column in ("text_a", "text_b") if column in frame]
    to = "max_length" if padding == "fixed" else False
    encoded = tokenizer(*texts, padding=to, truncation=True, max_length=max_length)
    return Dataset.from_dict({**encoded, "label": frame["label"].tolist()})


def real_tokens(split: Dataset) -> int:
    """Tokens that are not padding."""
    return sum(map(sum, split["attention_mask"]))


def train_and_score(
    cell: Cell, checkpoint: str, splits: dict[str, Dataset], tokenizer: Any, padding: str = "dynamic", **options: Any
) -> dict[str, dict[str, float]]:
    """Scores of each validation split after the last epoch."""
    task = TASKS[cell.task]
    set_seed(cell.seed)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=task.num_labels)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=arguments(cell.settings, cell.seed, folder, padding, bf16=options.get("bf16", False)),
            train_dataset=splits["train"],
            processing_class=tokenizer,
            data_collator=default_data_collator if padding == "fixed" else DataCollatorWithPadding(tokenizer),
            callbacks=options.get("callbacks"),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return {name: score_split(trainer, cell.task, splits[name]) for name in task.validation_splits}


def arguments(
    settings: Hyperparameters, seed: int, folder: str | Path, padding: str = "dynamic", *, bf16: bool = False
) -> TrainingArguments:
    """A cell's hyperparameters in Trainer's names."""
    return plain_arguments(
        settings,
        folder,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=EVALUATION_ROWS,
        train_sampling_strategy="group_by_length" if padding == "grouped" else "random",
        bf16=bf16,
        seed=seed,
    )


def plain_arguments(
    settings: Hyperparameters | PretrainingSettings, folder: str | Path, **more: Any
) -> TrainingArguments:
    """The optimiser's settings in Trainer's names, its own default optimiser, and nothing saved or reported."""
    return TrainingArguments(
        output_dir=str(folder),
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_ratio,  # below 1 it is a share of all steps
        lr_scheduler_type="linear",
        weight_decay=settings.weight_decay,
        adam_epsilon=settings.adam_epsilon,
        max_grad_norm=settings.clip_norm,
        use_cpu=not torch.cuda.is_available(),  # else bf16 is refused
        dataloader_pin_memory=torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **more,
    )


def score_split(trainer: Trainer, task: str, split: Dataset) -> dict[str, float]:
    """Metrics of one split, by the project's own scoring: those of `evaluate` need the hub.

    Labels are Trainer's, too: where it groups by length, it predicts the examples in another order than the split's.
    """
    found = trainer.predict(split)
    return score_logits(task, np.asarray(found.predictions), np.asarray(found.label_ids))
