"""The measures of any masked-LM checkpoint on any text."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from transformers import PreTrainedTokenizerBase

from glue_bench.analysis.intrinsic import intrinsic_sums
from glue_bench.analysis.sources import last_checkpoint, trained_positions
from glue_bench.analysis.text import TOKENS, HeldOut
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import masked_lm
from glue_bench.training.compute import choose_compute
from glue_bench.training.corpus import Corpus, open_corpus
from glue_bench.training.packing import pack_beginning
from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.tokenizers import load_tokenizer, vocabulary_size

COLUMNS = ("checkpoint", "measure", "value", "standard_error", "n")
LENGTH = 128


def intrinsic(
    checkpoints: str | Path | Sequence[str | Path],
    corpus: str | Path | Sequence[str | Path],
    *,
    length: int = LENGTH,
    tokens: int = TOKENS,
    tokenizer: str | None = None,
    device: str = "auto",
) -> pd.DataFrame:
    """Measures of masked-LM checkpoints on the beginning of a text, which they should not have been trained on.

    One row per checkpoint and measure, with the columns checkpoint, measure, value, standard_error and n. `value` is a
    loss or its rise in nats, or for `swap_` a share from 0 to 1; `standard_error` is over the `n` sequences that count.
    `checkpoints` are hub ids or folders, a pretraining's folder standing for its last checkpoint; `corpus` is as for
    `run`. So many sequences of at most `length` tokens are read as have `tokens`. `tokenizer` is only needed where a
    checkpoint has none. All is computed in float32.

    Example:
        >>> glue_bench.intrinsic("google-bert/bert-base-uncased", "held-out.txt", tokens=4096)  # doctest: +SKIP

    Raises:
        UserError: before anything is measured, a text or a checkpoint that cannot be read, no masked-LM head, or a
            tokenizer that does not fit.
    """
    names = [str(name) for name in ([checkpoints] if isinstance(checkpoints, str | Path) else checkpoints)]
    texts = [str(name) for name in ([corpus] if isinstance(corpus, str | Path) else corpus)]
    compute = choose_compute(device, "float32")
    quiet_transformers()
    opened = open_corpus(texts)
    ready = [_Measurable(name, opened, length, tokens, tokenizer, compute.device) for name in names]
    rows = [
        (one.name, measure, sums.value, sums.standard_error, sums.n)
        for one in ready
        for measure, sums in intrinsic_sums(one.model, one.text, one.positions).items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


class _Measurable:
    """A checkpoint with all that it takes to measure it. `positions` are those that it was trained on."""

    def __init__(
        self, name: str, corpus: Corpus, length: int, tokens: int, tokenizer: str | None, device: torch.device
    ) -> None:
        folder = last_checkpoint(name)
        self.name = name
        self.model = open_masked_lm(folder, device)
        self.positions = trained_positions(folder) or int(self.model.config.max_position_embeddings)
        loaded = fitting_tokenizer(self.model.config.vocab_size, tokenizer or folder)
        self.text = HeldOut(pack_beginning(corpus, loaded, min(length, self.positions), tokens), loaded, tokens=tokens)


def open_masked_lm(name: str, device: torch.device) -> EncoderForMaskedLM:
    """A checkpoint with its masked-LM head, on a device.

    Raises:
        UserError: it cannot be read, or has no such head.
    """
    return masked_lm(read_checkpoint(name)).eval().to(device)


def fitting_tokenizer(rows: int, name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of this name, for a checkpoint that embeds so many tokens.

    Raises:
        UserError: there is none, or it has more tokens.
    """
    tokenizer = load_tokenizer(name)
    if vocabulary_size(tokenizer) > rows:
        raise UserError(
            f"the tokenizer of '{name}' has {vocabulary_size(tokenizer)} tokens but the checkpoint embeds "
            f"{rows}; give the tokenizer it was trained with as --tokenizer"
        )
    return tokenizer
