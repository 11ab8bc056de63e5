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

from common import (
    OURS,
    SCRATCH_SIZES,
    Device,
    Json,
    Precision,
    Threads,
    Worker,
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
from peers import Masked, make_masked_ours, make_masked_peer

PEER = "Trainer, BertForMaskedLM"


def main(
    corpus: Annotated[str, typer.Option(help="demo, or English text: a file or folder.")] = "demo",
    size: Annotated[str, typer.Option(help=f"{', '.join(SCRATCH_SIZES)}.")] = "scratch-tiny",
    rows: Annotated[int, typer.Option(help="Sequences in a batch.")] = 32,
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 128,
    vocab_size: Annotated[int, typer.Option(help="Of the tokenizer trained on the corpus.")] = 8000,
    dropout: Annotated[float, typer.Option(help="Rate of both dropouts.")] = 0.1,
    rounds: Annotated[int, typer.Option(help="How often each is timed.")] = 5,
    steps: Annotated[int, typer.Option(help="Batches in a round.")] = 10,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    json: Json = None,
) -> None:
    """Print tokens per second, peak memory, and ours over the peer."""
    if size not in SCRATCH_SIZES:
        raise typer.BadParameter(f"--size takes {', '.join(SCRATCH_SIZES)}")
    device, precision = settle(device, precision)
    set_environment(device, threads)
    settings = Masked(corpus, size, rows, length, vocab_size, dropout, device, precision)
    with tempfile.TemporaryDirectory() as aside:
        # The first one's untimed round trains the tokenizer and packs the text, which the other finds cached.
        measured = timed(
            {PEER: Worker(make_masked_peer, settings), OURS: Worker(make_masked_ours, settings, aside)}, rounds, steps
        )
    what = (
        f"{size}, vocabulary up to {vocab_size:,}, {rows} sequences of up to {length} tokens a batch, dropout "
        f"{dropout}, {rounds} rounds of {steps} steps; medians and quartiles"
    )
    speed = column(measured, "tokens_per_second")
    columns = {"tokens/s": with_quartiles(speed, 0), "ours / peer": with_quartiles(over_peers(speed), 2)}
    where = machine(device=device, precision=precision, threads=threads)
    report([what, table(columns | {"peak memory (MiB)": peak_memory(measured)}), where, command()], measured, json)


if __name__ == "__main__":
    typer.run(main)
