"""Pretraining tiny arms on workers of one thread each, against one after another in this process.

    python benchmarks/side_by_side.py [--rounds 3] [--workers 2] [--steps 300] [--json FILE]

Each round pretrains the same arms anew in both ways, in turns. `pretraining` is from the first arm's start to the last
arm's end, each as the sweep tells it, so that imports and the start of workers, which a sweep pays once, are left out;
`whole` is the sweep with them, and with a cell for each arm. Needs Ray.
"""

import io
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from measure import column, command, in_turns, machine, report, table, with_quartiles
from options import Json

ARMS = ("add", "concat", "untied", "none")
SCRATCH = {
    "vocab_size": 500,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 64,
}


class Clock:
    """An observer that knows when the first pretraining began and the last one ended."""

    began, ended = float("inf"), 0.0

    def hear(self, event) -> None:
        """Note the moment."""
        from glue_bench.sweep.events import JobEnded, JobStarted

        if isinstance(event, JobStarted) and event.job.kind == "pretraining":
            self.began = min(self.began, time.perf_counter())
        if isinstance(event, JobEnded) and event.job.kind == "pretraining":
            assert event.error is None, event.error
            self.ended = time.perf_counter()


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    workers: Annotated[int, typer.Option(min=2)] = 2,
    steps: Annotated[int, typer.Option(min=1)] = 300,
    json: Json = None,
) -> None:
    """Print both times, and how many times as fast the workers are."""
    with tempfile.TemporaryDirectory() as name:
        runs = {
            "one process": lambda: measure(Path(name), steps, None),
            f"{workers} workers": lambda: measure(Path(name), steps, workers),
        }
        measured = in_turns(runs, rounds)
    columns = {key: with_quartiles(column(measured, key), 2) for key in ("pretraining", "whole")}
    ratios = column(measured, "pretraining").pipe(
        lambda seconds: seconds["one process"] / seconds[f"{workers} workers"]
    )
    said = f"{workers} workers are {ratios.median():.2f} times as fast ({ratios.min():.2f} to {ratios.max():.2f})."
    what = f"{len(ARMS)} arms of {SCRATCH['hidden_size']} hidden units, {steps} steps of 2,048 tokens; seconds"
    where = machine(device="cpu", precision="float32", threads=1)
    report([what, table(columns, "how"), said, where, command()], measured, json)


def measure(folder: Path, steps: int, workers: int | None) -> dict[str, float]:
    """Seconds of a sweep that has nothing done before."""
    from glue_bench.config import parse_experiment
    from glue_bench.sweep.options import RunOptions
    from glue_bench.sweep.run import sweep

    experiment = {
        "name": "side_by_side",
        "data": "demo",
        "scratch": SCRATCH,
        "arms": list(ARMS),
        "tasks": ["wnli"],
        "seeds": [1],
        "pretraining": {"corpus": "demo", "steps": steps, "batch_tokens": 2048, "length": 64, "validations": 1},
        "finetuning": {"learning_rates": [1e-3], "epochs": 1, "max_length": 32},
    }
    shutil.rmtree(folder / "side_by_side", ignore_errors=True)
    clock, began = Clock(), time.perf_counter()
    options = RunOptions(results=folder, workers=workers, device="cpu", precision="float32")
    summary = sweep(parse_experiment(experiment), options, Console(file=io.StringIO()), lambda _: clock)
    assert (summary.finished, summary.failed) == (len(ARMS), {}), summary
    return {"pretraining": clock.ended - clock.began, "whole": time.perf_counter() - began}


if __name__ == "__main__":
    typer.run(main)
