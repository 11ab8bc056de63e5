"""Fine-tuning speed and memory: ours against transformers' Trainer as run_glue.py drives it, in turns in one run.

    python benchmarks/finetune.py --data FOLDER --task rte --checkpoint checkpoints/all-MiniLM-L6-v2

Contenders: run_glue's default (every example padded to 128), its `--pad_to_max_length False` (to the longest of the
batch), the same with `--train_sampling_strategy group_by_length`, and ours. All train the same weights on the same
random rows of train, with equal batch size, dropout and optimiser settings. Each is a process of its own that waits
while another works. An untimed round comes first; tokenising is not timed. Of the threads given ours takes as many as
in a sweep: one for an encoder as narrow as scratch-tiny.

All compute in the precision given. Under `auto` each computes as it does by itself: run_glue in float32, ours in bf16
where the device is faster in it; then there is one peer more, run_glue in bf16 and grouped by length.

- tokens/s: tokens that are not padding, by the seconds of the training loop
- of peak: operations that the model needs for these tokens, padding not counted, by those of a large matrix product
  in the contender's precision
- cell: seconds from the checkpoint's folder to the validation scores
- memory: peak beyond the imports, of the process, or as PyTorch allocated it on a GPU
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from cells import Settings, checkpoint_folder
from measure import OURS, Rounds, column, command, in_turns, machine, over_peers, report, table, with_quartiles
from options import BatchSize, Checkpoint, Data, Device, Json, Precision, Task, Threads
from utilisation import flops_per_token, peak_flops
from workers import Worker, set_environment

WARM_UP = 3
PEERS = {
    "run_glue, padded to the maximum": "fixed",
    "run_glue, padded to the batch": "dynamic",
    "run_glue, grouped by length": "grouped",
}
LOWER_PEER = {"run_glue, grouped by length, bf16": "grouped"}


def main(
    data: Data = "demo",
    task: Task = "rte",
    checkpoint: Checkpoint = "scratch-tiny",
    batch_size: BatchSize = 32,
    rounds: Annotated[int, typer.Option(help="How often every contender is timed.")] = 5,
    steps: Annotated[int, typer.Option(help="Batches in a round.")] = 20,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    native: Annotated[bool, typer.Option("--native", help="Ours trains transformers' own model.")] = False,
    json: Json = None,
) -> None:
    """Print tokens per second, seconds of a cell, peak memory, and ours over each peer."""
    peers = dict.fromkeys(PEERS, "fp32" if precision == "auto" else precision)
    device, precision = settle(device, precision)
    if precision == "bf16" and "fp32" in peers.values():
        peers |= dict.fromkeys(LOWER_PEER, precision)
    set_environment(device, precision, threads)
    with tempfile.TemporaryDirectory() as aside:
        folder = checkpoint_folder(checkpoint, data, task, Path(aside))
        settings = Settings(data, task, folder, batch_size=batch_size, variant="native" if native else "add")
        measured = measure(settings, peers, rounds, warm_up(device, steps), steps)
        precisions = peers | {OURS: precision}
        peaks = {each: peak_flops(device, each, threads) for each in set(precisions.values())}
        used = model_flops(settings, measured, steps) / pd.Series(precisions).map(peaks)
    what = (
        f"{task}, {checkpoint}{', native' * native}, batches of {batch_size}, {rounds} rounds of {steps} steps; "
        "medians and quartiles; ratios are of one round each, above 1 where ours is faster or smaller"
    )
    where = machine(device=device, precision=f"glue-bench in {precision}", threads=threads)
    report([what, to_table(measured, used), where, command()], measured, json)


def settle(device: str, precision: str) -> tuple[str, str]:
    """What `auto` stands for on this machine."""
    import torch

    from glue_bench.training.compute import multiplies_bf16

    if device not in ("auto", "cpu", "cuda") or precision not in ("auto", "fp32", "bf16"):
        raise typer.BadParameter("--device takes auto, cpu or cuda; --precision takes auto, fp32 or bf16")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "auto":
        precision = "bf16" if device == "cuda" or multiplies_bf16() else "fp32"
    return device, precision


def warm_up(device: str, steps: int) -> int:
    """Steps of the untimed round: on a GPU as many as are timed, so that every length has been met."""
    return max(WARM_UP, steps) if device == "cuda" else WARM_UP


def measure(settings: Settings, peers: Mapping[str, str], rounds: int, warm_up: int, steps: int) -> Rounds:
    """All rounds of ours and of `peers` in their precisions, after an untimed one of `warm_up` steps."""
    from ours import make_ours
    from peer import make_peer

    paddings = PEERS | LOWER_PEER
    workers = {
        name: Worker(make_peer, replace(settings, bf16=precision == "bf16"), paddings[name])
        for name, precision in peers.items()
    }
    workers[OURS] = Worker(make_ours, settings)
    try:
        in_turns({name: bound(worker, warm_up) for name, worker in workers.items()}, 1)
        return in_turns({name: bound(worker, steps) for name, worker in workers.items()}, rounds)
    finally:
        for worker in workers.values():
            worker.close()


def bound(worker: Worker, steps: int) -> Any:
    """A round of `steps` steps, with its tokens per second."""

    def run() -> dict[str, Any]:
        result = worker.round(steps)
        return result | {"tokens_per_second": result["tokens"] / result["training_seconds"]}

    return run


def model_flops(settings: Settings, rounds: Rounds, steps: int) -> pd.Series:
    """FLOPs a second that the model needs for what each contender trained on: the median over rounds."""
    length = rounds[0][OURS]["tokens"] / (steps * settings.batch_size)
    return column(rounds, "tokens_per_second").median() * flops_per_token(settings, length)


def to_table(rounds: Rounds, used: pd.Series) -> str:
    """A row a contender; `used` is its share of the machine's arithmetic."""
    speed, seconds = column(rounds, "tokens_per_second"), column(rounds, "total_seconds")
    memory = column(rounds, "peak_bytes").tail(1) / 2**20
    times_faster, times_sooner = over_peers(speed), over_peers(seconds, inverse=True)
    return table(
        {
            "tokens/s": with_quartiles(speed, 0),
            "ours / peer": with_quartiles(times_faster, 2),
            "of peak": {name: f"{share:.0%}" for name, share in used.items()},
            "cell (s)": with_quartiles(seconds, 2),
            "peer / ours, cell": with_quartiles(times_sooner, 2),
            "peak memory (MiB)": {name: f"{memory[name].iloc[0]:,.0f}" for name in memory},
        }
    )


if __name__ == "__main__":
    typer.run(main)
