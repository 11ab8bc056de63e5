"""Fine-tuning speed of every variant against `add`, in turns in one process.

    python benchmarks/finetune_variants.py --data FOLDER --task rte --checkpoint checkpoints/all-MiniLM-L6-v2

Each variant is grafted from the checkpoint and trains on the same batches, dropout included, on the way that a sweep
takes. An untimed round comes first. Seconds are those of the training loop; a ratio is of one round.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cells import Settings, checkpoint_folder
from finetune import settle
from glue_bench.config import Arm
from glue_bench.data.tasks import TASKS
from glue_bench.model.variants import VARIANTS
from glue_bench.records.values import Cell
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.compute import choose_compute, quiet_libraries
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from measure import column, command, in_turns, machine, report, table, with_quartiles
from options import BatchSize, Checkpoint, Data, Device, Json, Precision, Task, Threads
from ours import Given
from workers import set_environment

BASE = "add"
SCORED_ROWS = 32  # of the validation split: what is timed is training


def main(
    data: Data = "demo",
    task: Task = "rte",
    checkpoint: Checkpoint = "scratch-tiny",
    variant: Annotated[list[str] | None, typer.Option(help="Only these, and add. May be given several times.")] = None,
    batch_size: BatchSize = 32,
    rounds: Annotated[int, typer.Option(help="How often every variant is timed.")] = 5,
    steps: Annotated[int, typer.Option(help="Batches in a round.")] = 8,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    json: Json = None,
) -> None:
    """Print tokens per second of every variant, and its ratio to `add`."""
    device, precision = settle(device, precision)
    set_environment(device, precision, threads)
    quiet_libraries()
    with tempfile.TemporaryDirectory() as aside:
        folder = checkpoint_folder(checkpoint, data, task, Path(aside))
        settings = Settings(data, task, folder, batch_size=batch_size)
        runs = make_runs(settings, list(dict.fromkeys([BASE, *(variant or VARIANTS)])), steps)
        in_turns(runs, 1)
        measured = in_turns(runs, rounds)
    speed = column(measured, "tokens_per_second")
    shown = {
        "tokens/s": with_quartiles(speed, 0),
        "of add": with_quartiles(speed.div(speed[BASE], axis=0), 2),
    }
    what = f"{task}, {checkpoint}, batches of {batch_size}, {rounds} rounds of {steps} steps; medians and quartiles"
    where = machine(device=device, precision=precision, threads=threads)
    report([what, table(shown, "variant"), where, command()], measured, json)


def make_runs(settings: Settings, variants: list[str], steps: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """A round of each variant: `steps` batches of the same rows."""
    arms = [Arm(name=name, variant=name, checkpoint=settings.checkpoint) for name in variants]
    inputs = Inputs(settings.experiment.model_copy(update={"arms": arms}))
    return {cell.arm: timed(cell, inputs, settings, steps) for cell in settle_jobs(inputs.experiment, inputs)[1]}


def timed(cell: Cell, inputs: Inputs, settings: Settings, steps: int) -> Callable[[], dict[str, Any]]:
    """Fine-tune on a sample; its tokens a second."""
    tokens = inputs.tokens(cell)
    train = tokens.splits["train"].take(settings.rows(len(tokens.splits["train"]), steps))
    scored = {
        name: tokens.splits[name].take(np.arange(min(SCORED_ROWS, len(tokens.splits[name]))))
        for name in TASKS[cell.task].validation_splits
    }
    sample = replace(tokens, splits={"train": train, **scored})
    given, compute = Given(inputs, inputs.initial(inputs.arm(cell.arm)), sample), choose_compute()

    def run() -> dict[str, Any]:
        facts = finetune(cell, given, compute).facts
        return {"tokens_per_second": int(train.offsets[-1]) / facts.training_seconds}

    return run


if __name__ == "__main__":
    typer.run(main)
