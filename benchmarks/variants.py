"""Pretraining speed of every variant against `add`, and of transformers' BERT, in alternation in one run.

    python benchmarks/variants.py [--rounds 7] [--output variants.md]

One step is forward, backward, clipping and AdamW on a batch of random tokens, 15% of them to predict, with the
vocabulary projection on those alone. Tiny by default: 2 blocks, hidden 128, 2 heads, vocabulary 8,000, length 128,
dropout 0.1. Every round times every variant once; a ratio is the median over rounds of variant / add in that round.
"""

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from transformers import BertConfig, BertForMaskedLM

from glue_bench.config import Pretraining
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.variants import VARIANTS
from glue_bench.sweep.environment import environment
from glue_bench.training.loop import make_optimizer

PEER = "transformers' BertForMaskedLM"
SIZES = {
    "vocab_size": 8000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 128,
}
SETTINGS = Pretraining(corpus=["random"], steps=1000)
Step = Callable[[], None]


def main(
    rounds: Annotated[int, typer.Option(help="How often every variant is timed.")] = 7,
    steps: Annotated[int, typer.Option(help="Steps of one timing.")] = 4,
    rows: Annotated[int, typer.Option(help="Sequences in a batch.")] = 32,
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 128,
    dropout: Annotated[float, typer.Option(help="Rate of both dropouts.")] = 0.1,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the table to a file, too.")] = None,
) -> None:
    """Print tokens per second and the ratio to `add`, a row a variant."""
    torch.manual_seed(0)
    batch = make_batch(rows, length)
    runs = {name: our_step(name, batch, dropout) for name in VARIANTS} | {PEER: peer_step(batch, dropout)}
    seconds = time_in_turns(runs, rounds, steps)
    table = to_table(seconds, steps * rows * length)
    text = f"{describe(rows, length, dropout, rounds, steps)}\n\n{to_markdown(table)}\n"
    print(text)
    if output is not None:
        output.write_text(text)


def make_batch(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Random tokens, and which of them to predict."""
    ids = torch.randint(5, SIZES["vocab_size"], (rows, length))
    places = torch.randperm(rows * length)[: round(SETTINGS.mask_probability * rows * length)].msort()
    return {"ids": ids, "places": places, "targets": ids.flatten()[places]}


def our_step(variant: str, batch: dict[str, torch.Tensor], dropout: float) -> Step:
    """One update of our encoder with this variant."""
    config = EncoderConfig(**SIZES, variant=variant, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    model = EncoderForMaskedLM(config).train()
    model.base.pooler.requires_grad_(False)
    return updating(model, lambda: model(batch["ids"], places=batch["places"]).logits, batch["targets"])


def peer_step(batch: dict[str, torch.Tensor], dropout: float) -> Step:
    """One update of transformers' own model, its head on the same places alone."""
    config = BertConfig(**SIZES, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    model = BertForMaskedLM(config).train()

    def logits() -> torch.Tensor:
        hidden = model.bert(batch["ids"]).last_hidden_state
        return model.cls(hidden.flatten(0, 1)[batch["places"]])

    return updating(model, logits, batch["targets"])


def updating(model: torch.nn.Module, logits: Callable[[], torch.Tensor], targets: torch.Tensor) -> Step:
    """Loss, backward, clipping, AdamW."""
    optimizer = make_optimizer(model, SETTINGS)

    def step() -> None:
        torch.nn.functional.cross_entropy(logits(), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def time_in_turns(runs: dict[str, Step], rounds: int, steps: int) -> pd.DataFrame:
    """Seconds of `steps` steps: a row a round, a column a run; a first, untimed round warms up."""
    seconds = []
    for number in range(rounds + 1):
        turn = {}
        for name, step in runs.items():
            began = time.perf_counter()
            for _ in range(steps):
                step()
            turn[name] = time.perf_counter() - began
        seconds += [turn] if number else []
    return pd.DataFrame(seconds)


def to_table(seconds: pd.DataFrame, tokens: int) -> pd.DataFrame:
    """Median tokens per second, and ratio to `add`: median and range over rounds."""
    ratios = seconds[["add"]].to_numpy() / seconds
    return pd.DataFrame(
        {
            "tokens/s": (tokens / seconds).median(),
            "of add": ratios.median(),
            "lowest": ratios.min(),
            "highest": ratios.max(),
        }
    )


def to_markdown(table: pd.DataFrame) -> str:
    """The table as Markdown."""
    lines = ["| variant | tokens/s | of add | over rounds |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {row['tokens/s']:,.0f} | {row['of add']:.2f} | {row['lowest']:.2f} to {row['highest']:.2f} |"
        for name, row in table.iterrows()
    ]
    return "\n".join(lines)


def describe(rows: int, length: int, dropout: float, rounds: int, steps: int) -> str:
    """What was measured, and on what."""
    made = environment()
    return (
        f"{rows} x {length} random tokens a step, dropout {dropout}, float32, {rounds} rounds of {steps} steps; "
        f"{made.processor}, {torch.get_num_threads()} threads, torch {made.packages['torch']}, "
        f"transformers {made.packages['transformers']}, numpy {np.__version__}, {platform.system()}"
    )


if __name__ == "__main__":
    typer.run(main)
