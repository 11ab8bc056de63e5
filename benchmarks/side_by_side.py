"""Workers of one thread each, against the same work one after another in this process.

    python benchmarks/side_by_side.py [--rounds 3] [--workers 2] [--steps 300] [--json FILE]
    python benchmarks/side_by_side.py --checkpoint FOLDER --data GLUE_FOLDER [--steps 24] [--rounds 3] ...

The first pretrains four tiny arms, with a cell for each; the second fine-tunes a checkpoint on RTE and MRPC with two
seeds. Each round does all of it anew in both ways, in turns. `work` is from the start of the first pretraining (or
cell) to the end of the last one, each as the sweep tells it, so that imports and the start of workers, which a sweep
pays once, are left out; `whole` is the sweep with them. `memory` is the most that the sweep's process and the
processes under it had at once, in MiB: Ray's own count too, and what several share counts once for each. Needs Ray
and psutil.
"""

import io
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import psutil
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
    """An observer that knows when the first job of a kind began and the last one ended."""

    def __init__(self, kind: str) -> None:
        self.kind, self.began, self.ended = kind, float("inf"), 0.0

    def hear(self, event) -> None:
        """Note the moment."""
        from glue_bench.sweep.events import JobEnded, JobStarted

        if isinstance(event, JobStarted) and event.job.kind == self.kind:
            self.began = min(self.began, time.perf_counter())
        if isinstance(event, JobEnded) and event.job.kind == self.kind:
            assert event.error is None, event.error
            self.ended = time.perf_counter()


class Memory(threading.Thread):
    """Looks every fifth of a second what this process and those under it hold together; `peak` is in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.done = 0.0, threading.Event()

    def run(self) -> None:
        """Look until `done` is set."""
        while not self.done.wait(0.2):
            self.peak = max(self.peak, sum(map(_resident, psutil.Process().children(recursive=True)), _resident()))


def _resident(process: psutil.Process | None = None) -> float:
    with suppress(psutil.Error):  # it has ended in between
        return (process or psutil.Process()).memory_info().rss / 2**20
    return 0.0


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    workers: Annotated[int, typer.Option(min=2)] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Of each pretraining or cell.")] = 300,
    checkpoint: Annotated[Path | None, typer.Option(help="Fine-tune this folder instead of pretraining.")] = None,
    data: Annotated[str, typer.Option(help="hub, or a folder of GLUE's TSV files, with --checkpoint.")] = "hub",
    json: Json = None,
) -> None:
    """Print both times, and how many times as fast the workers are."""
    experiment = fine_tuning(checkpoint, data, steps) if checkpoint else pretraining(steps)
    kind = "cell" if checkpoint else "pretraining"
    with tempfile.TemporaryDirectory() as name:
        runs = {
            "one process": lambda: measure(experiment, kind, Path(name), None),
            f"{workers} workers": lambda: measure(experiment, kind, Path(name), workers),
        }
        measured = in_turns(runs, rounds)
    columns = {f"{key} (s)": with_quartiles(column(measured, key), 2) for key in ("work", "whole")}
    columns["memory (MiB)"] = with_quartiles(column(measured, "memory"), 0)
    ratios = column(measured, "work").pipe(lambda seconds: seconds["one process"] / seconds[f"{workers} workers"])
    said = f"{workers} workers are {ratios.median():.2f} times as fast ({ratios.min():.2f} to {ratios.max():.2f})."
    tiny = f"{len(ARMS)} pretrainings of {SCRATCH['hidden_size']} hidden units, {steps} steps of 2,048 tokens"
    what = f"{checkpoint} on RTE and MRPC, two seeds, {steps} steps of 32 examples" if checkpoint else tiny
    report([what, table(columns, "how"), said, machine(device="cpu", precision="float32"), command()], measured, json)


def measure(experiment: dict[str, Any], kind: str, folder: Path, workers: int | None) -> dict[str, float]:
    """Seconds of a sweep that has nothing done before, and the most memory that it held, in MiB."""
    from glue_bench.config import parse_experiment
    from glue_bench.sweep.options import RunOptions
    from glue_bench.sweep.run import sweep

    shutil.rmtree(folder / "side_by_side", ignore_errors=True)
    clock, memory, began = Clock(kind), Memory(), time.perf_counter()
    memory.start()
    options = RunOptions(results=folder, workers=workers, device="cpu", precision="float32")
    summary = sweep(parse_experiment(experiment), options, Console(file=io.StringIO()), lambda _: clock)
    memory.done.set()
    assert (summary.finished, summary.failed) == (4, {}), summary
    return {"work": clock.ended - clock.began, "whole": time.perf_counter() - began, "memory": memory.peak}


def pretraining(steps: int) -> dict[str, Any]:
    """Four tiny arms, each pretrained for so many steps and fine-tuned for a moment."""
    return {
        "name": "side_by_side",
        "data": "demo",
        "scratch": SCRATCH,
        "arms": list(ARMS),
        "tasks": ["wnli"],
        "seeds": [1],
        "pretraining": {"corpus": "demo", "steps": steps, "batch_tokens": 2048, "length": 64, "validations": 1},
        "finetuning": {"learning_rates": [1e-3], "epochs": 1, "max_length": 32},
    }


def fine_tuning(checkpoint: Path, data: str, steps: int) -> dict[str, Any]:
    """RTE and MRPC with two seeds each, by BERT's settings, for so many steps each."""
    return {
        "name": "side_by_side",
        "data": data,
        "checkpoint": str(checkpoint.resolve()),
        "arms": ["add"],
        "tasks": ["rte", "mrpc"],
        "seeds": [1, 2],
        "finetuning": {"learning_rates": [5e-5], "epochs": 1, "max_steps": steps, "batch_size": 32, "max_length": 128},
    }


if __name__ == "__main__":
    typer.run(main)
