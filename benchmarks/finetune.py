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
from typing import Annotated

import pandas as pd
import typer

import common
from common import OURS, Rounds, Settings, Worker
from glue_bench.model.variants import VARIANTS
from peers import make_ours, make_peer

PEERS = {
    "padded to the maximum": "fixed",
    "padded to the batch": "dynamic",
    "grouped by length": "grouped",
}
BASE = "add"


def main(
    data: common.Data = "demo",
    task: common.Tasks = None,
    checkpoint: common.Checkpoint = "scratch-tiny",
    batch_size: Annotated[int, typer.Option(help="Examples in a batch.")] = 32,
    rounds: common.Turns = 5,
    steps: common.Steps = 20,
    device: common.Device = "auto",
    precision: common.Precision = "auto",
    threads: common.Threads = None,
    native: Annotated[
        bool, typer.Option("--native", help="Ours trains transformers' own model.")
    ] = False,
    variants: Annotated[
        bool, typer.Option("--variants", help="Every variant against add.")
    ] = False,
    variant: Annotated[
        list[str] | None, typer.Option(help="Of --variants only these, and add.")
    ] = None,
    json: common.Json = None,
) -> None:
    """Print tokens per second, seconds of a cell, peak memory, and ours over each peer; a table a task."""
    theirs = "float32" if precision == "auto" else precision
    where, how = common.settle(device, precision, threads)
    parts: list[str] = []
    measured: dict[str, Rounds] = {}
    # On a GPU every length has to be met before.
    warm_up = max(common.WARM_UP, steps) if where == "cuda" else common.WARM_UP
    for name in task or ["rte"]:
        with tempfile.TemporaryDirectory() as aside:
            folder = common.checkpoint_folder(checkpoint, data, name, Path(aside))
            ours = Settings(data, name, folder, batch_size, device=where, precision=how)
            ours = replace(ours, variant="native" if native else BASE)
            workers = of_variants(ours, variant) if variants else against_trainer(ours, theirs)
            measured[name] = common.timed(workers, rounds, steps, warm_up)
        what = f"{name}, {checkpoint}{', native' * native}, batches of {batch_size}, {rounds} rounds of {steps} steps"
        parts += [
            f"{what}; medians and quartiles",
            (variant_table if variants else common.speed_table)(measured[name]),
        ]
    both = f"glue-bench in {how}, peers in {theirs}"
    common.report(
        [*parts, common.machine(device=where, precision=both, threads=threads)], measured, json
    )


def against_trainer(ours: Settings, precision: str) -> dict[str, Worker]:
    """The three peers in their precision, and ours."""
    peer = replace(ours, precision=precision)
    peers = {
        f"run_glue, {name}": Worker(make_peer, peer, padding) for name, padding in PEERS.items()
    }
    return {**peers, OURS: Worker(make_ours, ours)}


def of_variants(settings: Settings, chosen: list[str] | None) -> dict[str, Worker]:
    """A worker a variant, each grafted from the checkpoint."""
    names = dict.fromkeys([BASE, *(chosen or VARIANTS)])
    return {name: Worker(make_ours, replace(settings, variant=name)) for name in names}


def variant_table(rounds: Rounds) -> str:
    """A row a variant; the ratio is of one round."""
    speed = common.column(rounds, "tokens_per_second")
    of_base = common.with_quartiles(speed.div(speed[BASE], axis=0), 2)
    columns = {"tokens/s": common.with_quartiles(speed, 0), f"of {BASE}": of_base}
    return common.table(pd.DataFrame(columns), "variant")


if __name__ == "__main__":
    typer.run(main)
