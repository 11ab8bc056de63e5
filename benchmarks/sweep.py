"""What a cell costs beyond training and scoring: in a sweep, and as a script that starts anew for each.

    python benchmarks/sweep.py --data FOLDER --task rte --checkpoint checkpoints/all-MiniLM-L6-v2

Ours: a fresh process imports the harness and sweeps several cells. A cell's overhead is what lies between the end of
the cell before it (for the first cell: the start of the process) and its own end, less training and the forward
passes of scoring: planning, reading, tokenising, building the model, metrics, writing the record before it.
The peer: fresh processes that import transformers, datasets and evaluate, read the data, load the model and tokenise,
as run_glue does before its first step; the first fills the cache of datasets, the others find it.
Both tokenise train from nothing at first: the caches are folders that are deleted afterwards.
"""

import json as json_format
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from cells import Settings, checkpoint_folder
from finetune import settle
from measure import command, machine, report, row_table
from options import Checkpoint, Data, Json, Task, Threads
from workers import Worker, set_environment

HERE = Path(__file__).parent


def main(
    data: Data = "demo",
    task: Task = "rte",
    checkpoint: Checkpoint = "scratch-tiny",
    cells: Annotated[int, typer.Option(help="Seeds that the sweep trains.", min=2)] = 4,
    processes: Annotated[int, typer.Option(help="How often the peer starts.", min=2)] = 4,
    threads: Threads = None,
    json: Json = None,
) -> None:
    """Print a row a cell of ours, and a row a process of the peer."""
    device, precision = settle("auto", "auto")
    set_environment(device, precision, threads)
    with tempfile.TemporaryDirectory() as name:
        aside = Path(name)
        settings = Settings(data, task, checkpoint_folder(checkpoint, data, task, aside / "checkpoint"))
        peer = fresh_processes(settings, processes, aside)
        ours = swept_cells(settings, cells, aside)
    what = f"{task}, {checkpoint}, one epoch of train a cell; seconds"
    where = machine(device=device, precision=precision, threads=threads)
    tables = [to_table(ours, "glue-bench, cell"), to_table(peer, "run_glue, process")]
    report([what, *tables, after_first(ours, peer), where, command()], {"ours": ours, "peer": peer}, json)


def fresh_processes(settings: Settings, times: int, aside: Path) -> list[dict[str, float]]:
    """Seconds of each start of the peer, by part; `total` is from its start to its end, the interpreter's included."""
    from glue_bench.data.sources import open_source
    from glue_bench.data.tasks import TASKS

    train = aside / "train.csv"
    open_source(settings.data).load(settings.task).splits["train"].to_csv(train, index=False)
    labels = TASKS[settings.task].num_labels
    arguments = [settings.checkpoint, str(train), str(aside / "datasets"), str(labels), str(settings.max_length)]
    found = []
    for _ in range(times):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, HERE / "fresh_process.py", *arguments], capture_output=True, text=True, check=False
        )
        total = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(done.stderr)
        found.append({**json_format.loads(done.stdout.splitlines()[-1]), "total": round(total, 3)})
    return found


def swept_cells(settings: Settings, cells: int, aside: Path) -> list[dict[str, float]]:
    """Seconds of each cell of a sweep in one fresh process."""
    from swept import make_sweep

    os.environ["GLUE_BENCH_CACHE"] = str(aside / "cache")
    worker = Worker(make_sweep, settings, str(aside / "results"), time.time())
    try:
        return worker.round(cells)["cells"]
    finally:
        worker.close()


def to_table(measured: list[dict[str, float]], first: str) -> str:
    """A numbered row a measurement."""
    rows = {f"{number}": {k: f"{v:.2f}" for k, v in row.items()} for number, row in enumerate(measured, 1)}
    return row_table(rows, first)


def after_first(ours: list[dict[str, float]], peer: list[dict[str, float]]) -> str:
    """What each further cell costs, as a sentence."""
    warm, fresh = median(row["overhead"] for row in ours[1:]), median(row["total"] for row in peer[1:])
    return f"Medians after the first: {warm:.2f} s beyond training and scoring a cell of ours, {fresh:.2f} s a process."


if __name__ == "__main__":
    typer.run(main)
