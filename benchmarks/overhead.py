"""What a cell costs beyond training and scoring, in a sweep in one process; of two versions in turns.

    python benchmarks/overhead.py                                             # a tiny encoder
    python benchmarks/overhead.py --checkpoint checkpoints/all-MiniLM-L6-v2
    python benchmarks/overhead.py --against OTHER_CHECKOUT --turns 3

A cell's overhead is what lies between the writing of the record before it and of its own, less the training steps and
the forward passes of scoring: reading, tokenising, building the model, metrics, and storing. The first cell of a
process also pays for the imports and is left out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from common import command, machine

HERE = Path(__file__).resolve().parent.parent
SWEEP = """
import io, json, pathlib, sys, time
from rich.console import Console
import glue_bench
from glue_bench.training import finetune, loop

experiment, results = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
predict, passes = loop.predict, []

def timed(*arguments, **options):
    began = time.time()
    logits = predict(*arguments, **options)
    passes.append((time.time(), time.time() - began))
    return logits

for module in (finetune, loop):
    if hasattr(module, "predict"):
        module.predict = timed
glue_bench.run(experiment, results=results, console=Console(file=io.StringIO()))
folder = results / experiment["name"]
paths = [*folder.glob("cells/*/record.json"), *folder.glob("records/*.json")]  # before and since they have folders
written = sorted((path.stat().st_mtime, json.loads(path.read_text())) for path in paths)
overheads = []
for (before, _), (now, record) in zip(written, written[1:]):
    training = record.get("training_seconds") or record["seconds"]["training"]
    scoring = sum(seconds for at, seconds in passes if before < at <= now)
    overheads.append(now - before - training - scoring)
print(json.dumps(overheads))
"""
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def main() -> None:
    """Print a line for each version."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="scratch")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--task", default="rte")
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--against", type=Path, help="the checkout of another version")
    given = parser.parse_args()
    experiment = {
        **{"name": "overhead", "data": given.data, "checkpoint": given.checkpoint, "arms": ["add"]},
        **{"tasks": [given.task], "seeds": [*range(1, given.cells + 1)]},
        "finetuning": {"learning_rates": [5e-5], "epochs": 1, "batch_size": 32, "max_length": 64},
    }
    if given.checkpoint == "scratch":
        experiment["scratch"] = {"vocab_size": 200, "max_position_embeddings": 64, **TINY}
    versions = {"this version": HERE} | ({"the other one": given.against.resolve()} if given.against else {})
    found: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(given.turns):
        for name, checkout in versions.items():
            found[name] += swept(experiment, checkout)
    for name, seconds in found.items():
        spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
        print(f"{name}: {median(seconds):.3f} s a cell beyond training and scoring ({spread}, {len(seconds)} cells)")
    print(machine(device="cpu", precision="float32"))
    print(command())


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
    main()
