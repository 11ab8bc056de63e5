"""What a fine-tuning benchmark trains: one cell, on the same random slice of train for every contender."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glue_bench.config import Arm, Experiment, Finetuning, Hyperparameters

if TYPE_CHECKING:
    from glue_bench.records.values import Cell
    from glue_bench.training.inputs import Inputs

SCRATCH_SIZES = {
    "scratch-tiny": (64, 2, 2),
    "scratch-mini": (256, 4, 4),
    "scratch-minilm": (384, 6, 12),
    "scratch-base": (768, 12, 12),
}
"""Hidden size, blocks and heads of BERTs with random weights."""


@dataclass(frozen=True)
class Settings:
    """One benchmark's cell. `data` is demo, hub or a folder, `checkpoint` a folder.

    Ours is an arm of this `variant`, `add` or `native`. `bf16` is the precision of a peer.
    """

    data: str
    task: str
    checkpoint: str
    batch_size: int = 32
    max_length: int = 128
    learning_rate: float = 5e-5
    seed: int = 1
    bf16: bool = False
    variant: str = "add"

    @property
    def experiment(self) -> Experiment:
        """The cell as an experiment of one."""
        return Experiment(
            name="benchmark",
            data=self.data,
            arms=[Arm(name=self.variant, variant=self.variant, checkpoint=self.checkpoint)],
            tasks=[self.task],
            seeds=[self.seed],
            finetuning=Finetuning(
                learning_rates=[self.learning_rate], epochs=1, batch_size=self.batch_size, max_length=self.max_length
            ),
        )

    @property
    def hyperparameters(self) -> Hyperparameters:
        """What the cell is trained with."""
        return self.experiment.finetuning.hyperparameters(self.task, self.learning_rate)

    def cell(self, inputs: "Inputs") -> "Cell":
        """The one cell; `inputs` are those of `experiment`."""
        from glue_bench.sweep.plan import settle_jobs

        return settle_jobs(inputs.experiment, inputs)[1][0]

    def rows(self, available: int, steps: int) -> np.ndarray:
        """Which rows of train `steps` batches are made of: the first ones of one permutation, drawn anew past its end.

        A sample, not the first rows of the file, whose lengths need not be those of the whole.
        """
        order = np.random.default_rng(self.seed).permutation(available)
        return np.resize(order, steps * self.batch_size)


def checkpoint_folder(name: str, data: str, task: str, aside: Path, tokenizer_of: str | None = None) -> str:
    """The folder `name`, or a BERT of a scratch size with random weights.

    Its tokenizer is that of the folder `tokenizer_of`, if given, or trained on the task's own text.
    """
    if name not in SCRATCH_SIZES:
        return name
    import torch
    from transformers import BertConfig, BertModel

    from glue_bench.data.sources import open_source
    from glue_bench.training.compute import quiet_transformers
    from glue_bench.training.tokenizers import load_tokenizer, train_tokenizer

    quiet_transformers()
    if tokenizer_of is None:
        train = open_source(data).load(task).splits["train"]
        texts = [text for column in train.columns.intersection(["text_a", "text_b"]) for text in train[column]]
        tokenizer = train_tokenizer(texts, 8000)
    else:
        tokenizer = load_tokenizer(tokenizer_of)
    hidden, blocks, heads = SCRATCH_SIZES[name]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        pad_token_id=tokenizer.pad_token_id,
    )
    BertModel(config).save_pretrained(aside)
    tokenizer.save_pretrained(aside)
    return str(aside)
