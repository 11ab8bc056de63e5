"""Fine-tuning speed and memory: ours against transformers' Trainer as run_glue.py drives it, in turns in one run.

    python benchmarks/finetune.py --data FOLDER --task rte --task cola --checkpoint checkpoints/all-MiniLM-L6-v2

Contenders: run_glue's default (every example padded to 128), its `--pad_to_max_length False` (to the longest of the
batch), the same with `--train_sampling_strategy group_by_length`, and ours. All train the same weights on the same
random rows of train, with equal batch size, dropout, optimiser settings and precision. Each is a process of its own
that waits while another works. An untimed round comes first; tokenising is not timed. Under `auto` each computes as it
does by itself: run_glue in float32, ours in bf16 where the device is faster in it.

`--native` trains transformers' own model on our side, and `--variants` compares every variant with `add` instead.

- tokens/s: tokens that are not padding, by the seconds of the training loop
- cell: seconds from the checkpoint's folder to the validation scores
- memory: peak beyond the imports, of the process, or as PyTorch allocated it on a GPU
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from common import (
    OURS,
    WARM_UP,
    BatchSize,
    Checkpoint,
    Data,
    Device,
    Json,
    Precision,
    Rounds,
    Settings,
    Threads,
    Worker,
    checkpoint_folder,
    column,
    command,
    machine,
    over_peers,
    peak_memory,
    report,
    set_environment,
    settle,
    table,
    timed,
    with_quartiles,
)

PEERS = {"padded to the maximum": "fixed", "padded to the batch": "dynamic", "grouped by length": "grouped"}
BASE = "add"


def main(
    data: Data = "demo",
    task: Annotated[list[str] | None, typer.Option(help="A GLUE task, rte unless given. May be given again.")] = None,
    checkpoint: Checkpoint = "scratch-tiny",
    batch_size: BatchSize = 32,
    rounds: Annotated[int, typer.Option(help="How often every contender is timed.")] = 5,
    steps: Annotated[int, typer.Option(help="Batches in a round.")] = 20,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    native: Annotated[bool, typer.Option("--native", help="Ours trains transformers' own model.")] = False,
    variants: Annotated[bool, typer.Option("--variants", help="Every variant against add.")] = False,
    variant: Annotated[list[str] | None, typer.Option(help="Of --variants only these, and add.")] = None,
    json: Json = None,
) -> None:
    """Print tokens per second, seconds of a cell, peak memory, and ours over each peer; a table a task."""
    theirs = "float32" if precision == "auto" else precision
    device, precision = settle(device, precision)
    set_environment(device, threads)
    parts, measured = [], {}
    # On a GPU every length has to be met before.
    warm_up = max(WARM_UP, steps) if device == "cuda" else WARM_UP
    for name in task or ["rte"]:
        with tempfile.TemporaryDirectory() as aside:
            folder = checkpoint_folder(checkpoint, data, name, Path(aside))
            ours = Settings(data, name, folder, batch_size=batch_size, device=device, precision=precision)
            ours = replace(ours, variant="native" if native else BASE)
            workers = of_variants(ours, variant) if variants else against_trainer(ours, theirs)
            measured[name] = timed(workers, rounds, steps, warm_up)
        what = f"{name}, {checkpoint}{', native' * native}, batches of {batch_size}, {rounds} rounds of {steps} steps"
        parts += [
            f"{what}; medians and quartiles",
            variant_table(measured[name]) if variants else to_table(measured[name]),
        ]
    where = machine(device=device, precision=f"glue-bench in {precision}, peers in {theirs}", threads=threads)
    report([*parts, where, command()], measured, json)


def against_trainer(ours: Settings, precision: str) -> dict[str, Worker]:
    """The three peers in their precision, and ours."""
    from peers import make_ours, make_peer

    peer = replace(ours, precision=precision)
    return {f"run_glue, {name}": Worker(make_peer, peer, padding) for name, padding in PEERS.items()} | {
        OURS: Worker(make_ours, ours)
    }


def of_variants(settings: Settings, chosen: list[str] | None) -> dict[str, Worker]:
    """A worker a variant, each grafted from the checkpoint."""
    from glue_bench.model.variants import VARIANTS
    from peers import make_ours

    names = dict.fromkeys([BASE, *(chosen or VARIANTS)])
    return {name: Worker(make_ours, replace(settings, variant=name)) for name in names}


def to_table(rounds: Rounds) -> str:
    """A row a contender; a ratio is of one round, above 1 where ours is faster."""
    speed, seconds = column(rounds, "tokens_per_second"), column(rounds, "total_seconds")
    columns: dict[str, Any] = {
        "tokens/s": with_quartiles(speed, 0),
        "ours / peer": with_quartiles(over_peers(speed), 2),
        "cell (s)": with_quartiles(seconds, 2),
        "peer / ours, cell": with_quartiles(over_peers(seconds, inverse=True), 2),
        "peak memory (MiB)": peak_memory(rounds),
    }
    return table(columns)


def variant_table(rounds: Rounds) -> str:
    """A row a variant."""
    speed = column(rounds, "tokens_per_second")
    of_base = with_quartiles(speed.div(speed[BASE], axis=0), 2)
    return table({"tokens/s": with_quartiles(speed, 0), f"of {BASE}": of_base}, "variant")


if __name__ == "__main__":
    typer.run(main)
