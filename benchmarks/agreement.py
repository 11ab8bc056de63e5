"""Equal scores: fine-tune one checkpoint with transformers' Trainer and, with `--both`, with ours; a line per score.

    python benchmarks/agreement.py configs/minilm.yaml --data FOLDER --task rte --task cola \\
        --seed 1 --seed 2 --seed 3 --both --output agreement.csv

The experiment's arm `add` on all of train: same checkpoint, data, batch size, optimiser, schedule, epochs and seeds.
Trainer has transformers' own model, head, dropout and batch order. Equal seeds draw different numbers on either side,
so scores agree if their mean difference over seeds lies within its own spread, not seed by seed.
"""

import csv
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from common import OURS, machine, row_table
from glue_bench.config import load_experiment
from glue_bench.data.tasks import TASKS
from glue_bench.records.values import Cell
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.compute import choose_compute, quiet_libraries
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from peers import as_dataset, train_and_score

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

TRAINER = "Trainer"
HEADER = ("system", "task", "split", "metric", "learning_rate", "seed", "value", "seconds")
Scores = dict[str, dict[str, float]]


def main(
    config: Path,
    data: Annotated[str | None, typer.Option()] = None,
    seed: Annotated[list[int] | None, typer.Option(help="May be given several times; 1 unless given.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the experiment's own.")] = None,
    padding: Annotated[str, typer.Option(help="Trainer's batches: dynamic, or grouped by length.")] = "dynamic",
    trainer_precision: Annotated[str, typer.Option(help="float32 or bf16; auto: as ours.")] = "auto",
    both: Annotated[bool, typer.Option("--both", help="Ours, too, and the differences.")] = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Lines are appended.")] = Path("trainer.csv"),
) -> None:
    """Append one line per system, task, metric and seed to OUTPUT; print both systems' scores side by side."""
    quiet_libraries()
    experiment = load_experiment(config, data=data)
    inputs = Inputs(experiment)
    systems: dict[str, Callable[[Cell], Scores]] = {
        TRAINER: lambda cell: by_trainer(cell, inputs, padding, trainer_precision)
    }
    if both:
        systems[OURS] = lambda cell: by_us(cell, inputs)
    lines = []
    for cell in cells(inputs, task or experiment.tasks, seed or [1], epochs):
        for name, run in systems.items():
            began = time.perf_counter()
            scores = run(cell)
            found = as_lines(name, cell, scores, time.perf_counter() - began)
            append(output, found)
            lines += found
    if both:
        compute, theirs = choose_compute(), choose_compute(precision=trainer_precision)
        precisions = f"glue-bench in {compute.precision}, Trainer in {theirs.precision}"
        where = machine(device=compute.device.type, precision=precisions)
        print(differences(pd.DataFrame(lines)), where, sep="\n\n")


def cells(inputs: Inputs, tasks: list[str], seeds: list[int], epochs: int | None) -> Iterator[Cell]:
    """The cells of `add` for these tasks and seeds; any seed may be asked for, not only the experiment's own."""
    experiment = inputs.experiment
    for cell in settle_jobs(experiment, inputs)[1]:
        if cell.variant == "add" and cell.seed == experiment.seeds[0] and cell.task in tasks:
            settings = cell.settings.model_copy(update={"epochs": epochs or cell.settings.epochs})
            for seed in seeds:
                yield cell.model_copy(update={"seed": seed, "settings": settings})


def by_trainer(cell: Cell, inputs: Inputs, padding: str, precision: str) -> Scores:
    """Scores of each validation split by transformers' Trainer."""
    arm, length = inputs.arm(cell.arm), cell.settings.max_length
    tokenizer = inputs.tokenizer(arm)
    frames, needed = inputs.data(cell.task).splits, ("train", *TASKS[cell.task].validation_splits)
    splits = {name: as_dataset(frames[name], tokenizer, length) for name in needed}
    bf16 = choose_compute(precision=precision).bf16
    return train_and_score(cell, arm.checkpoint, splits, tokenizer, padding, bf16=bf16)


def by_us(cell: Cell, inputs: Inputs) -> Scores:
    """Scores of each validation split by the harness."""
    return finetune(cell, inputs, choose_compute()).facts.scores


def as_lines(system: str, cell: Cell, scores: Scores, seconds: float) -> list[dict[str, Any]]:
    """One line per split and metric, scores x 100."""
    shared = {"system": system, "task": cell.task, "learning_rate": cell.settings.learning_rate}
    shared |= {"seed": cell.seed, "seconds": round(seconds, 1)}
    found = [(split, metric, value) for split, metrics in scores.items() for metric, value in metrics.items()]
    return [
        {**shared, "split": split, "metric": metric, "value": round(100 * value, 4)} for split, metric, value in found
    ]


def append(output: Path, lines: list[dict[str, Any]]) -> None:
    """Write the lines behind what earlier runs wrote."""
    fresh = not output.exists()
    with output.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(lines)


def differences(lines: pd.DataFrame) -> str:
    """Each metric's scores by seed, and the mean of ours - Trainer with its standard deviation over seeds."""
    index = ["task", "split", "metric", "learning_rate"]
    scores = lines.pivot_table(index=[*index, "seed"], columns="system", values="value").reset_index()
    scores["difference"] = scores[OURS] - scores[TRAINER]
    rows = {}
    for (task, split, metric, rate), group in scores.groupby(index, sort=False):
        spread = f" (sd {group['difference'].std():.2f}, {len(group)} seeds)" if len(group) > 1 else ""
        rows[f"{task}, {split}, {metric}, rate {rate:g}"] = {
            "seeds": " ".join(map(str, group["seed"])),
            TRAINER: " ".join(f"{value:.2f}" for value in group[TRAINER]),
            OURS: " ".join(f"{value:.2f}" for value in group[OURS]),
            "mean difference": f"{group['difference'].mean():+.2f}{spread}",
        }
    return row_table(rows, "score")


if __name__ == "__main__":
    typer.run(main)
