"""Masked-LM pretraining speed and memory: ours against transformers' Trainer, in turns in one run.

    python benchmarks/pretrain.py --corpus FOLDER_OR_FILE --size scratch-minilm

Both train a BERT of the same shape with fresh weights on the same packed sequences, 15% of the tokens masked, with
equal batch size, dropout and optimiser settings. The peer is BertForMaskedLM under Trainer with
DataCollatorForLanguageModeling, which projects every token to the vocabulary; ours projects the masked ones alone.
Each is a process of its own that waits while the other works. An untimed round comes first.
"""

import tempfile
from typing import Annotated

import typer

import common
from common import OURS, SCRATCH_SIZES, Worker
from peers import Masked, make_masked_ours, make_masked_peer

PEER = "Trainer, BertForMaskedLM"


def main(
    corpus: Annotated[str, typer.Option(help="demo, or English text: a file or folder.")] = "demo",
    size: Annotated[str, typer.Option(help=f"{', '.join(SCRATCH_SIZES)}.")] = "scratch-tiny",
    rows: Annotated[int, typer.Option(help="Sequences in a batch.")] = 32,
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 128,
    rounds: common.Turns = 5,
    steps: common.Steps = 10,
    device: common.Device = "auto",
    precision: common.Precision = "auto",
    threads: common.Threads = None,
    json: common.Json = None,
) -> None:
    """Print tokens per second, peak memory, and ours over the peer."""
    where, how = common.settle(device, precision, threads)
    settings = Masked(corpus, size, rows, length, where, how)
    with tempfile.TemporaryDirectory() as aside:
        # The first one's untimed round trains the tokenizer and packs the text, which the other finds cached.
        workers = {
            PEER: Worker(make_masked_peer, settings),
            OURS: Worker(make_masked_ours, settings, aside),
        }
        measured = common.timed(workers, rounds, steps)
    what = f"{size}, batches of {rows} sequences of up to {length} tokens, {rounds} rounds of {steps} steps"
    speed, machine = (
        common.speed_table(measured),
        common.machine(device=where, precision=how, threads=threads),
    )
    common.report([f"{what}; medians and quartiles", speed, machine], measured, json)


if __name__ == "__main__":
    typer.run(main)
