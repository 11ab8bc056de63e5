"""What a cell costs beyond training and scoring, in a sweep in one process.

    python benchmarks/overhead.py                                             # a tiny encoder
    python benchmarks/overhead.py --checkpoint checkpoints/all-MiniLM-L6-v2

A cell's overhead is what lies between the writing of the record before it and of its own, less the training steps and
the forward passes of scoring: reading, tokenising, building the model, metrics, and storing. The first cell of a sweep
also pays for the imports and is left out.
"""

import io
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

import common
import glue_bench
from glue_bench.training import finetune

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def main(
    checkpoint: Annotated[str, typer.Option()] = "scratch",
    data: common.Data = "demo",
    task: Annotated[str, typer.Option()] = "rte",
    cells: Annotated[int, typer.Option()] = 10,
    turns: Annotated[int, typer.Option()] = 2,
) -> None:
    """Print the median, and the least and the most."""
    experiment = {
        **{"name": "overhead", "data": data, "checkpoint": checkpoint, "arms": ["add"]},
        **{"tasks": [task], "seeds": [*range(1, cells + 1)]},
        "finetuning": {"learning_rates": [5e-5], "epochs": 1, "batch_size": 32, "max_length": 64},
    }
    if checkpoint == "scratch":
        experiment["scratch"] = {"vocab_size": 200, "max_position_embeddings": 64, **TINY}
    found = [seconds for _ in range(turns) for seconds in swept(experiment)]
    spread = f"{min(found):.3f} to {max(found):.3f}, {len(found)} cells"
    line = f"{median(found):.3f} s a cell beyond training and scoring ({spread})"
    common.report([line, common.machine(device="cpu", precision="float32")], found, None)


def swept(experiment: dict[str, Any]) -> list[float]:
    """Seconds of each cell but the first."""
    predict, passes = finetune.predict, list[tuple[float, float]]()

    def timed(*arguments: Any) -> Any:
        began = time.time()
        logits = predict(*arguments)
        passes.append((time.time(), time.time() - began))
        return logits

    finetune.predict = timed
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"GLUE_BENCH_CACHE": f"{folder}/cache", "GLUE_BENCH_PRECISION": "float32"}
        glue_bench.run(experiment, results=f"{folder}/runs", console=Console(file=io.StringIO()))
        paths = Path(folder).glob("runs/*/cells/*/record.json")
        written = sorted(
            (path.stat().st_mtime, json.loads(path.read_text())["training_seconds"])
            for path in paths
        )
    finetune.predict = predict
    overheads = []
    for (before, _), (now, training) in pairwise(written):
        scoring = sum(seconds for at, seconds in passes if before < at <= now)
        overheads.append(now - before - training - scoring)
    return overheads


if __name__ == "__main__":
    typer.run(main)
