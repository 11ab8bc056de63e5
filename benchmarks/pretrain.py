"""Masked-LM pretraining speed and memory: ours against transformers' Trainer, in turns in one run.

    python benchmarks/pretrain.py --corpus FOLDER_OR_FILE --size scratch-minilm

Both train a BERT of the same shape with fresh weights on the same packed sequences, 15% of the tokens masked, with
equal batch size, dropout and optimiser settings. The peer is BertForMaskedLM under Trainer with
DataCollatorForLanguageModeling, which projects every token to the vocabulary; ours projects the masked ones alone.
Each is a process of its own that waits while the other works. An untimed round of WARM_UP steps comes first.
"""

import tempfile
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cells import SCRATCH_SIZES
from finetune import WARM_UP, bound, settle
from glue_bench.config import Arm, Experiment, PretrainingSettings, ScratchEncoder
from measure import OURS, Rounds, column, command, in_turns, machine, over_peers, report, table, with_quartiles
from options import Device, Json, Precision, Threads
from workers import Worker, set_environment

PEER = "Trainer, BertForMaskedLM"


@dataclass(frozen=True)
class Settings:
    """One pretraining: `corpus` is demo, a file or a folder, `size` one of SCRATCH_SIZES."""

    corpus: str
    size: str
    rows: int
    length: int
    vocab_size: int
    dropout: float
    bf16: bool

    def experiment(self, steps: int) -> Experiment:
        """The pretraining as an experiment whose one arm is `add`."""
        hidden, blocks, heads = SCRATCH_SIZES[self.size]
        return Experiment(
            name="benchmark",
            data="demo",
            arms=[Arm(name="add", variant="add", checkpoint="scratch")],
            scratch=ScratchEncoder(
                vocab_size=self.vocab_size,
                hidden_size=hidden,
                num_hidden_layers=blocks,
                num_attention_heads=heads,
                intermediate_size=4 * hidden,
                max_position_embeddings=self.length,
                hidden_dropout_prob=self.dropout,
                attention_probs_dropout_prob=self.dropout,
            ),
            pretraining=PretrainingSettings(
                corpus=[self.corpus],
                steps=steps,
                batch_tokens=self.rows * self.length,
                length=self.length,
                validations=1,
            ),
        )


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
    set_environment(device, precision, threads)
    settings = Settings(corpus, size, rows, length, vocab_size, dropout, precision == "bf16")
    measured = measure(settings, rounds, steps)
    what = (
        f"{size}, vocabulary up to {vocab_size:,}, {rows} sequences of up to {length} tokens a batch, dropout "
        f"{dropout}, {rounds} rounds of {steps} steps; medians and quartiles"
    )
    where = machine(device=device, precision=precision, threads=threads)
    report([what, to_table(measured), where, command()], measured, json)


def measure(settings: Settings, rounds: int, steps: int) -> Rounds:
    """All rounds of both, after an untimed one."""
    with tempfile.TemporaryDirectory() as aside:
        from masked import make_ours, make_peer

        workers = {PEER: Worker(make_peer, settings), OURS: Worker(make_ours, settings, aside)}
        try:
            # One after the other: the first trains the tokenizer and packs the text, which the other finds cached.
            in_turns({name: bound(worker, WARM_UP) for name, worker in workers.items()}, 1)
            return in_turns({name: bound(worker, steps) for name, worker in workers.items()}, rounds)
        finally:
            for worker in workers.values():
                worker.close()


def to_table(measured: Rounds) -> str:
    """A row each."""
    speed, memory = column(measured, "tokens_per_second"), column(measured, "peak_bytes").tail(1) / 2**20
    columns: dict[str, Any] = {
        "tokens/s": with_quartiles(speed, 0),
        "ours / peer": with_quartiles(over_peers(speed), 2),
        "peak memory (MiB)": {name: f"{memory[name].iloc[0]:,.0f}" for name in memory},
    }
    return table(columns)


if __name__ == "__main__":
    typer.run(main)
