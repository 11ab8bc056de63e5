"""An encoder that is taken apart: its weights, what can read text for it, and what it computes of that text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.analysis.checkpoints import fitting_tokenizer
from glue_bench.analysis.deep import Deep, read_deep
from glue_bench.analysis.input_sum import InputSum, input_sum
from glue_bench.analysis.measured import LeftOut
from glue_bench.analysis.reading import Reading
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import encoder, masked_lm
from glue_bench.training.corpus import Corpus

LENGTH = 128  # tokens of a sequence, at most
AT_ONCE = 16  # sequences that go through together
FEW = 64  # sequences of what takes all blocks, or is done several times


@dataclass(frozen=True)
class Asked:
    """What is asked for: `sequences` of text, the first `positions` of each table, and which `layers` (None: all)."""

    corpus: Corpus
    sequences: int
    positions: int | None = None
    layers: Sequence[int] | None = None
    tokenizer: str | None = None
    device: str | torch.device = "cpu"


class Subject:
    """A checkpoint with all that it takes to measure it; `positions` are those that are looked at."""

    def __init__(self, label: str, name: str, trained: int | None, asked: Asked) -> None:
        checkpoint = read_checkpoint(name)
        self.label, self.name, self.asked = label, name, asked
        self.no_head = ""
        self.head: EncoderForMaskedLM | None = None
        try:
            self.head = masked_lm(checkpoint).eval().to(asked.device)
        except UserError as error:
            self.no_head = str(error)
        self.model: EncoderModel = self.head.base if self.head else encoder(checkpoint).eval().to(asked.device)
        there = min(trained or self.model.config.max_position_embeddings, self.model.config.max_position_embeddings)
        self.positions = min(asked.positions or there, there)

    @cached_property
    def sum(self) -> InputSum:
        """Its input as a sum of tables. Raises LeftOut where it is none."""
        return input_sum(self.model, self.positions)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer, or the one that was named. Raises LeftOut where there is none that fits."""
        try:
            return fitting_tokenizer(self.model.config.vocab_size, self.asked.tokenizer or self.name)
        except UserError as error:
            raise LeftOut(f"{error}: the measures of text need one (--tokenizer NAME)") from error

    @cached_property
    def reading(self) -> Reading:
        """The text in its tokens. Raises LeftOut where it is too short."""
        return Reading.of(self.asked.corpus, self.tokenizer, min(LENGTH, self.positions), self.asked.sequences)

    @cached_property
    def deep(self) -> Deep:
        """What all blocks compute of the first sequences. Raises LeftOut where there is no text."""
        return read_deep(self.model, self.tokens[:FEW])

    @property
    def attention(self) -> dict[int, np.ndarray]:
        """The mean attention (h, l, l) of the blocks that are asked for. Raises LeftOut where there is no text."""
        return {block: self.deep.attention[block - 1] for block in self.blocks}

    @property
    def no_masks(self) -> str:
        """Why words cannot be masked and predicted; empty where they can."""
        return self.no_head or ("its tokenizer has no [MASK]" if self.tokenizer.mask_token_id is None else "")

    @property
    def tokens(self) -> Tensor:
        """int64 (sequences, length): the text that is read, on the encoder's device."""
        return torch.from_numpy(self.reading.ids).to(self.model.device)

    @property
    def blocks(self) -> Sequence[int]:
        """The blocks that are asked for, from 1."""
        return self.asked.layers or range(1, len(self.model.blocks) + 1)
