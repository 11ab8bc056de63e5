"""What the harness itself costs: 10,000 cells that compute nothing, planned, run on workers, stored, made into tables.

    python benchmarks/scheduling.py [--cells 10000] [--workers 2] [--inline]

`planning` is everything before the first cell, `running` everything from the first worker's readiness to the last
record, `leaderboard` the tables of all records, as `glue-bench run` writes them. Needs Ray, unless --inline.
"""

import argparse
import io
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from glue_bench.config import Experiment, parse_experiment
from glue_bench.data.tasks import TASKS
from glue_bench.records.record import RunFacts
from glue_bench.records.store import Store
from glue_bench.reporting.export import write_tables
from glue_bench.sweep import executors, run
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.sweep.options import RunOptions
from glue_bench.sweep.plan import plan_cells
from glue_bench.training.finetune import Outcome
from glue_bench.training.inputs import Inputs

TASKS_USED = ("cola", "sst2", "mrpc", "stsb", "mnli", "qnli", "rte", "wnli")
ARMS, RATES = ("add", "concat", "untied", "none", "alibi"), (1e-3, 2e-3, 3e-3, 4e-3, 5e-3)
SIZES = {
    "vocab_size": 200,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}


def experiment(cells: int) -> Experiment:
    """So many cells of the demo, at least; seeds make up the number."""
    seeds = -(-cells // (len(ARMS) * len(TASKS_USED) * len(RATES)))
    return parse_experiment(
        {
            "name": "scheduling",
            "data": "demo",
            "checkpoint": "scratch",
            "scratch": SIZES,
            "arms": list(ARMS),
            "tasks": list(TASKS_USED),
            "seeds": list(range(1, seeds + 1)),
            "finetuning": {"learning_rates": list(RATES), "max_length": 32},
        }
    )


def nothing(planned: PlannedCell, inputs: Inputs) -> Iterator[Outcome]:  # noqa: ARG001
    """A cell's outcome without a cell."""
    task, score = TASKS[planned.cell.task], (hash(planned.id) % 1000) / 1000
    splits = {name: dict.fromkeys(task.metrics, score) for name in task.columns}
    record = {
        "origin": "scratch",
        "scores": splits,
        "history": [{"epoch": 1, "train_loss": 1.0, "scores": splits}],
        "collapsed": [],
        "seconds": {"total": 0.0, "training": 0.0},
        "tokens": {"training": 1},
        "parameters": 1,
        "environment": {},
    }
    yield Outcome(RunFacts.model_validate(record), {name: np.zeros((8, 2), np.float32) for name in splits})


def main() -> None:
    """Time the three parts and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--inline", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(arguments.cells, None if arguments.inline else arguments.workers, Path(folder))))


def measure(cells: int, workers: int | None, results: Path) -> dict[str, float]:
    """Seconds of planning, of running a cell (in milliseconds) and of the tables."""
    wanted, began = experiment(cells), time.perf_counter()
    count = len(plan_cells(wanted, Inputs(wanted)))
    planning = time.perf_counter() - began

    first_started: list[float] = []
    run.make_executor = make_executor(workers, first_started)
    summary = run.sweep(wanted, RunOptions(results=results), console=Console(file=io.StringIO()))
    running = time.perf_counter() - first_started[0]
    assert (summary.finished, summary.failed) == (count, {}), summary

    began = time.perf_counter()
    write_tables(summary.folder)
    assert len(Store(summary.folder).states()) == count
    return {
        "cells": count,
        "planning_s": round(planning, 2),
        "ms_a_cell": round(1000 * running / count, 3),
        "leaderboard_s": round(time.perf_counter() - began, 2),
    }


def make_executor(workers: int | None, first_started: list[float]):
    """The sweep's executor with cells that compute nothing; notes when the first of them starts."""

    def watched(on_start):
        def started(planned: PlannedCell, worker: str) -> None:
            first_started or first_started.append(time.perf_counter())
            on_start(planned, worker)

        return started

    def make(inputs: Inputs, *_: object):
        if workers is None:
            executors.attempt = nothing
            executor = executors.InlineExecutor(inputs)
        else:
            from glue_bench.sweep.ray_executor import RayExecutor

            executor = RayExecutor(inputs.experiment, inputs.folder, workers=workers, attempt=nothing)
        plain = executor.run
        executor.run = lambda schedule, on_start: plain(schedule, watched(on_start))
        return executor

    return make


if __name__ == "__main__":
    main()
