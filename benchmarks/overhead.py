"""What a cell costs beyond training and scoring, in a sweep in one process; of two versions in turns.

    python benchmarks/overhead.py                                             # a tiny encoder
    python benchmarks/overhead.py --checkpoint checkpoints/all-MiniLM-L6-v2
    python benchmarks/overhead.py --against OTHER_CHECKOUT --turns 3

A cell's overhead is what lies between the writing of the record before it and of its own, less the training steps and
the forward passes of scoring: reading, tokenising, building the model, metrics, and storing. The first cell of a
process also pays for the imports and is left out.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

import common

HERE = Path(__file__).resolve().parent.parent
SWEEP = """
import io, json, pathlib, sys, time
from rich.console import Console
import glue_bench
from glue_bench.training import finetune

experiment, results = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
predict, passes = finetune.predict, []

def timed(*arguments):
    began = time.time()
    logits = predict(*arguments)
    passes.append((time.time(), time.time() - began))
    return logits

finetune.predict = timed
glue_bench.run(experiment, results=results, console=Console(file=io.StringIO()))
paths = results.glob("*/cells/*/record.json")
written = sorted((path.stat().st_mtime, json.loads(path.read_text())["training_seconds"]) for path in paths)
overheads = []
for (before, _), (now, training) in zip(written, written[1:]):
    scoring = sum(seconds for at, seconds in passes if before < at <= now)
    overheads.append(now - before - training - scoring)
print(json.dumps(overheads))
"""
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def main(
    checkpoint: Annotated[str, typer.Option()] = "scratch",
    data: common.Data = "demo",
    task: Annotated[str, typer.Option()] = "rte",
    cells: Annotated[int, typer.Option()] = 10,
    turns: Annotated[int, typer.Option()] = 2,
    against: Annotated[Path | None, typer.Option(help="The checkout of another version.")] = None,
) -> None:
    """Print a line for each version."""
    experiment = {
        **{"name": "overhead", "data": data, "checkpoint": checkpoint, "arms": ["add"]},
        **{"tasks": [task], "seeds": [*range(1, cells + 1)]},
        "finetuning": {"learning_rates": [5e-5], "epochs": 1, "batch_size": 32, "max_length": 64},
    }
    if checkpoint == "scratch":
        experiment["scratch"] = {"vocab_size": 200, "max_position_embeddings": 64, **TINY}
    versions = {"this version": HERE} | ({"the other one": against.resolve()} if against else {})
    found: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(turns):
        for name, checkout in versions.items():
            found[name] += swept(experiment, checkout)
    parts = []
    for name, seconds in found.items():
        spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
        parts.append(
            f"{name}: {median(seconds):.3f} s a cell beyond training and scoring ({spread}, {len(seconds)} cells)"
        )
    common.report([*parts, common.machine(device="cpu", precision="float32")], found, None)


def swept(experiment: dict, checkout: Path) -> list[float]:
    """Seconds of each cell but the first, in a fresh process of this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "GLUE_BENCH_CACHE": f"{folder}/cache"}
        environment["GLUE_BENCH_PRECISION"] = "float32"
        words = [sys.executable, "-c", SWEEP, json.dumps(experiment), f"{folder}/runs"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    typer.run(main)
