"""How long all of GLUE takes here: one fine-tuning run of each task, estimated from a few steps of each.

    python benchmarks/whole_glue.py --data FOLDER --checkpoint checkpoints/all-MiniLM-L6-v2

Timed are --steps batches of random rows of train, and the predictions for up to SCORED_ROWS of the first validation
split, each after an untimed run. Rows of the official splits make seconds of them: train as often as there are epochs,
validation after each, test once.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cells import Settings, checkpoint_folder
from finetune import settle
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.training.finetune import build_classifier, finetune, training_of
from glue_bench.training.inputs import Inputs
from glue_bench.training.quiet import quiet_libraries
from measure import command, machine, report, row_table
from options import BatchSize, Checkpoint, Data, Device, Json, Precision, Threads
from workers import set_environment

SCORED_ROWS = 512
EPOCHS = 3


def main(
    data: Data = "demo",
    checkpoint: Checkpoint = "scratch-tiny",
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks. May be given several times.")] = None,
    batch_size: BatchSize = 32,
    epochs: Annotated[int, typer.Option(help="Epochs of each task.")] = EPOCHS,
    steps: Annotated[int, typer.Option(help="Batches that are timed.")] = 8,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    json: Json = None,
) -> None:
    """Print the rate of each task, and the seconds that it would take as a whole."""
    device, precision = settle(device, precision)
    set_environment(device, precision, threads)
    quiet_libraries()
    measured = {}
    for name in task or TRAINABLE:
        with tempfile.TemporaryDirectory() as aside:
            folder = checkpoint_folder(checkpoint, data, name, Path(aside))
            settings = Settings(data, name, folder, batch_size=batch_size)
            measured[name] = measure(settings, steps) | official_rows(name, epochs)
    what = f"{checkpoint}, batches of {batch_size}, {epochs} epochs, from {steps} steps of each task"
    where = machine(device=device, precision=precision, threads=threads)
    report([what, to_table(measured), where, command()], measured, json)


def measure(settings: Settings, steps: int) -> dict[str, float]:
    """Seconds for a row of train, tokens a second, and seconds for a scored row."""
    cell, inputs = settings.cell, Inputs(settings.experiment)
    tokens, start = inputs.tokens(cell), inputs.initial(cell.arm)
    train = tokens.splits["train"].take(settings.rows(len(tokens.splits["train"]), steps))
    first = TASKS[cell.task].validation_splits[0]
    scored = tokens.splits[first].take(np.arange(min(SCORED_ROWS, len(tokens.splits[first]))))
    sample = replace(tokens, splits={"train": train, **dict.fromkeys(TASKS[cell.task].validation_splits, scored)})
    training_seconds = [finetune(cell, start, sample).record.seconds.training for _ in range(2)][-1]
    training = training_of(build_classifier(start, cell.task, cell.seed), cell, sample, None)
    return {
        "train": training_seconds / len(train),
        "tokens_per_second": int(train.offsets[-1]) / training_seconds,
        "score": [predicting(training, first) for _ in range(2)][-1] / len(scored),
    }


def predicting(training: Any, split: str) -> float:
    """Seconds of the predictions for a split."""
    began = time.perf_counter()
    training.predict(split)
    return time.perf_counter() - began


def official_rows(task: str, epochs: int) -> dict[str, int]:
    """Rows that one run trains on and scores, repetitions counted."""
    rows = {name: split.rows for name, split in TASKS[task].splits.items()}
    validation = sum(rows[name] for name in TASKS[task].validation_splits)
    return {
        "trained_rows": epochs * rows["train"],
        "scored_rows": epochs * validation + sum(rows[name] for name in TASKS[task].test_splits),
    }


def to_table(measured: dict[str, dict[str, float]]) -> str:
    """A row a task, and their sum."""
    rows, total = {}, 0.0
    for name, found in measured.items():
        training, scoring = found["train"] * found["trained_rows"], found["score"] * found["scored_rows"]
        total += training + scoring
        rows[TASKS[name].title] = {
            "tokens/s": f"{found['tokens_per_second']:,.0f}",
            "training (s)": f"{training:,.0f}",
            "scoring (s)": f"{scoring:,.0f}",
        }
    rows["all"] = {"tokens/s": "", "training (s)": "", "scoring (s)": f"{total:,.0f} together"}
    return row_table(rows, "task")


if __name__ == "__main__":
    typer.run(main)
