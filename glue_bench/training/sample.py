"""The few tokens on which a conversion is measured: a fixed text, or random ids where there is no tokenizer.

Shapes: b sequences, l length.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from glue_bench.model.configuration import EncoderConfig

SEED = 1
MASKED_SHARE = 0.15  # as in BERT's pretraining
NOT_MASKED = -100  # the label that the loss leaves out
MAX_LENGTH = 128
RANDOM_SHAPE = (8, 32)
# Two sentences make a pair, so that segments count too.
SENTENCES = (
    "The baker opens her shop at six, long before the first bus leaves the square.",
    "By noon most of the bread is gone, and she begins to clean the oven.",
    "My brother never learned to swim, although we grew up beside the lake.",
    "He says that the water was always too cold, even in the middle of August.",
    "Heavy rain closed the mountain road for three days last spring.",
    "The village could only be reached on foot, or by a small boat across the reservoir.",
    "Scientists measured the height of every tree in the forest with a laser.",
    "The oldest ones were not the tallest, which surprised nobody who worked there.",
    "Did you remember to send the letter that I left on the kitchen table?",
    "It has to arrive before Friday, otherwise we will lose our place on the list.",
    "The orchestra played the second movement so slowly that the audience grew restless.",
    "Afterwards the conductor explained that the composer had asked for exactly that.",
)


@dataclass(frozen=True)
class Sample:
    """Tokens padded on the right, and the same with a part of them masked.

    `kind` is `text` or `random ids`. `mask` is true on real tokens; `labels` has the token wherever one is
    masked, else NOT_MASKED.
    """

    kind: str
    ids: Int[Tensor, "b l"]
    segments: Int[Tensor, "b l"]
    mask: Bool[Tensor, "b l"]
    masked_ids: Int[Tensor, "b l"]
    labels: Int[Tensor, "b l"]

    @property
    def size(self) -> dict[str, int]:
        """Sequences, real tokens and masked tokens."""
        masked = int((self.labels != NOT_MASKED).sum())
        return {"sequences": len(self.ids), "tokens": int(self.mask.sum()), "masked": masked}


def draw_sample(config: EncoderConfig, tokenizer: PreTrainedTokenizerBase | None) -> Sample:
    """The sample for an encoder of these sizes: the same one every time."""
    generator = torch.Generator().manual_seed(SEED)
    if tokenizer is None:
        return _random_sample(config, generator)
    rows = tokenizer(
        list(SENTENCES[::2]),
        list(SENTENCES[1::2]),
        truncation=True,
        max_length=min(config.max_position_embeddings, MAX_LENGTH),
        return_token_type_ids=True,
        return_special_tokens_mask=True,
    )
    ids = _pad(rows["input_ids"], int(tokenizer.pad_token_id))
    # A tokenizer may know more segments than the encoder it was named for.
    segments = _pad(rows["token_type_ids"], 0).clamp(max=max(config.type_vocab_size - 1, 0))
    mask = _pad([[1] * len(row) for row in rows["input_ids"]], 0).bool()
    may_be_masked = mask & (_pad(rows["special_tokens_mask"], 1) == 0)
    masked_ids, labels = _masked(ids, may_be_masked, tokenizer.mask_token_id, config, generator)
    return Sample("text", ids, segments, mask, masked_ids, labels)


def _random_sample(config: EncoderConfig, generator: torch.Generator) -> Sample:
    shape = (RANDOM_SHAPE[0], min(RANDOM_SHAPE[1], config.max_position_embeddings))
    ids = _random_ids(config, shape, generator)
    segments = torch.zeros_like(ids)
    segments[:, shape[1] // 2 :] = max(config.type_vocab_size - 1, 0)
    mask = torch.ones_like(ids, dtype=torch.bool)
    masked_ids, labels = _masked(ids, mask, None, config, generator)
    return Sample("random ids", ids, segments, mask, masked_ids, labels)


def _masked(
    ids: Int[Tensor, "b l"],
    may_be_masked: Bool[Tensor, "b l"],
    mask_id: int | None,
    config: EncoderConfig,
    generator: torch.Generator,
) -> tuple[Int[Tensor, "b l"], Int[Tensor, "b l"]]:
    """Masked ids and labels; where there is no mask token, random ids hide the tokens, as in a tenth of BERT's."""
    places = may_be_masked.nonzero()
    count = max(1, round(MASKED_SHARE * len(places)))
    rows, columns = places[torch.randperm(len(places), generator=generator)[:count]].unbind(1)
    labels = torch.full_like(ids, NOT_MASKED)
    labels[rows, columns] = ids[rows, columns]
    masked_ids = ids.clone()
    hidden = _random_ids(config, (len(rows),), generator) if mask_id is None else torch.tensor(mask_id)
    masked_ids[rows, columns] = hidden
    return masked_ids, labels


def _random_ids(config: EncoderConfig, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Any token but padding, which embeds as zero."""
    ids = torch.randint(config.vocab_size - 1, shape, generator=generator)
    return ids if config.pad_token_id is None else ids + (ids >= config.pad_token_id)


def _pad(rows: list[list[int]], value: int) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)
