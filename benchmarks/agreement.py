"""Equal scores: fine-tune one checkpoint with transformers' Trainer and with ours; a line per score.

    python benchmarks/agreement.py configs/minilm.yaml --data FOLDER --task rte --task cola \\
        --seed 1 --seed 2 --seed 3 --output agreement.csv

The experiment's arm `add` on all of train: same checkpoint, data, batch size, optimiser, schedule, epochs and seeds.
Trainer has transformers' own model, head, dropout and batch order. Equal seeds draw different numbers on either side,
so scores agree if their mean difference over seeds lies within its own spread, not seed by seed.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from common import OURS, machine, table
from glue_bench.config import load_experiment
from glue_bench.data.tasks import TASKS
from glue_bench.records.values import Cell
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.device import choose_compute
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.quiet import quiet_transformers
from peers import as_dataset, train_and_score

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

TRAINER = "Trainer"
HEADER = ["system", "task", "split", "metric", "learning_rate", "seed", "value", "seconds"]
Scores = dict[str, dict[str, float]]


def main(
    config: Path,
    data: Annotated[str | None, typer.Option()] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="May be given several times; 1 unless given.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks.")] = None,
    padding: Annotated[
        str, typer.Option(help="Trainer's batches: dynamic, or grouped by length.")
    ] = "dynamic",
    output: Annotated[Path, typer.Option("-o", "--output", help="Lines are appended.")] = Path(
        "agreement.csv"
    ),
) -> None:
    """Append one line per system, task, metric and seed to OUTPUT; print both systems' scores and the differences."""
    quiet_transformers()
    inputs = Inputs(load_experiment(config, data=data), Path("none"))
    compute = choose_compute()
    systems: dict[str, Callable[[Cell], Scores]] = {
        TRAINER: lambda cell: by_trainer(cell, inputs, padding, bf16=compute.bf16),
        OURS: lambda cell: finetune(cell, inputs, compute).record.scores,
    }
    parts = []
    for cell in cells(inputs, task or inputs.experiment.tasks, seed or [1]):
        for name, run in systems.items():
            began = time.perf_counter()
            scores = run(cell)
            parts.append(as_lines(name, cell, scores, time.perf_counter() - began))
            parts[-1].to_csv(output, mode="a", index=False, header=not output.exists())
    where = machine(device=compute.device.type, precision=compute.precision)
    print(differences(pd.concat(parts)), where, sep="\n\n")


def cells(inputs: Inputs, tasks: list[str], seeds: list[int]) -> Iterator[Cell]:
    """The cells of `add` for these tasks and seeds; any seed may be asked for, not only the experiment's own."""
    for cell in settle_jobs(inputs)[1]:
        if cell.variant == "add" and cell.seed == inputs.experiment.seeds[0] and cell.task in tasks:
            yield from (cell.model_copy(update={"seed": seed}) for seed in seeds)


def by_trainer(cell: Cell, inputs: Inputs, padding: str, *, bf16: bool) -> Scores:
    """Scores of each validation split by transformers' Trainer."""
    arm, length = inputs.arms[cell.arm], cell.settings.max_length
    tokenizer = arm.tokenizer
    frames, needed = (
        inputs.tasks.data(cell.task).splits,
        ("train", *TASKS[cell.task].validation_splits),
    )
    splits = {name: as_dataset(frames[name], tokenizer, length) for name in needed}
    return train_and_score(cell, arm.arm.checkpoint, splits, tokenizer, padding, None, bf16=bf16)


def as_lines(system: str, cell: Cell, scores: Scores, seconds: float) -> pd.DataFrame:
    """One line per split and metric, scores x 100."""
    settings = (cell.settings.learning_rate, cell.seed)
    return pd.DataFrame(
        [
            (system, cell.task, split, metric, *settings, round(100 * value, 4), round(seconds, 1))
            for split, metrics in scores.items()
            for metric, value in metrics.items()
        ],
        columns=HEADER,
    )


def differences(lines: pd.DataFrame) -> str:
    """Each metric's scores by seed, and the mean of ours - Trainer with its standard deviation over seeds."""
    index = ["task", "split", "metric", "learning_rate"]
    scores = lines.pivot_table(
        index=[*index, "seed"], columns="system", values="value"
    ).reset_index()
    scores["difference"] = scores[OURS] - scores[TRAINER]
    rows = {}
    for (task, split, metric, rate), group in scores.groupby(index, sort=False):
        spread = (
            f" (sd {group['difference'].std():.2f}, {len(group)} seeds)" if len(group) > 1 else ""
        )
        rows[f"{task}, {split}, {metric}, rate {rate:g}"] = {
            "seeds": " ".join(map(str, group["seed"])),
            TRAINER: " ".join(f"{value:.2f}" for value in group[TRAINER]),
            OURS: " ".join(f"{value:.2f}" for value in group[OURS]),
            "mean difference": f"{group['difference'].mean():+.2f}{spread}",
        }
    return table(pd.DataFrame.from_dict(rows, orient="index"), "score")


if __name__ == "__main__":
    typer.run(main)
