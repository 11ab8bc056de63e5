"""The comparison of a checkpoint's hidden states and logits with transformers' own."""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from jaxtyping import Int
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM
from transformers import __version__ as TRANSFORMERS

from glue_bench.errors import UserError, first_line
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.fresh import fixed_seed
from glue_bench.model.start import Start, encoder, under_head

DAMAGE_ERRORS = (SafetensorError, UnpicklingError, EOFError)
"""The errors that a damaged file of weights raises."""
DAMAGE_TEXT = "PytorchStreamReader"
"""The name in torch's message for the same damage."""
PARITY_TOLERANCE = 1e-4
"""A share of the largest value. In 24 random blocks of width 256 rounding makes 2e-6 of it."""
PARITY_LENGTH = 32
MASKED_LM_HEAD = "the masked-LM head"


@torch.no_grad()
def check_parity(folder: Path, start: Start) -> None:
    """Compare the outputs of a start for random tokens with those of transformers' own model.

    Hidden states are compared, and the logits where there is a head. Raises UserError if they
    differ by more than PARITY_TOLERANCE, if they are not finite, or if transformers cannot compute
    them.
    """
    ids, segments, mask = random_tokens(start.config)
    with fixed_seed():
        model = under_head(start, start.config) if start.head else encoder(start)
        expected = _transformers_output(folder, start, ids, segments, mask)
    actual = model.eval()(ids, mask, segments, output_hidden_states=True)
    is_real = mask.bool()
    states = zip(actual.hidden_states, expected.hidden_states, strict=True)
    for block, (our_state, their_state) in enumerate(states):
        part = f"block {block}" if block else "the input"
        _check_equal(start, part, our_state[is_real], their_state[is_real])
    if start.head:
        _check_equal(start, MASKED_LM_HEAD, actual.logits[is_real], expected.logits[is_real])


def _transformers_output(
    folder: Path, start: Start, ids: Tensor, segments: Tensor, mask: Tensor
) -> Any:
    """Return the outputs of transformers' model of a folder; UserError if it has none."""
    kind = AutoModelForMaskedLM if start.head else AutoModel
    # Computing the feed-forward layer in chunks changes only the order, and not every length can be
    # divided.
    options = {
        "dtype": torch.float32,
        "attn_implementation": "eager",
        "chunk_size_feed_forward": 0,
    }
    extra = {"token_type_ids": segments} if start.config.type_vocab_size else {}
    try:
        model = kind.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, **options
        )
        return model.eval()(ids, mask, **extra, output_hidden_states=True, return_dict=True)
    except Exception as error:
        raise cannot_compute(start.name, error) from error


def _check_equal(start: Start, part: str, our_values: Tensor, their_values: Tensor) -> None:
    """Refuse a start if one of its parts differs from transformers."""
    about = f"checkpoint '{start.name}'"
    largest = float(their_values.abs().max())
    error = float((our_values - their_values).abs().max())
    if not largest < float("inf"):
        raise UserError(f"{about}: hidden states are not finite; its weights are damaged")
    if error <= PARITY_TOLERANCE * largest:
        return
    fault = f"does not compute what transformers {TRANSFORMERS} computes (off by {error:.2g})"
    advice = "Save its encoder alone, or use it" if part == MASKED_LM_HEAD else "Use it"
    raise UserError(f"{about}: {part} {fault}. {advice} as a `native` arm.")


def random_tokens(
    config: EncoderConfig,
) -> tuple[Int[Tensor, "2 l"], Int[Tensor, "2 l"], Int[Tensor, "2 l"]]:
    """Draw two sequences of any tokens but padding.

    Returns:
        Ids, two segments, and a mask that leaves out half of the last sequence.
    """
    length = min(PARITY_LENGTH, config.max_position_embeddings)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(config.vocab_size, (2, length), generator=generator)
    if config.pad_token_id is not None:
        ids[ids == config.pad_token_id] = (config.pad_token_id + 1) % config.vocab_size
    segments = torch.zeros_like(ids)
    segments[:, length // 3 :] = max(config.type_vocab_size - 1, 0)
    mask = torch.ones_like(ids)
    mask[-1, (length + 1) // 2 :] = 0
    return ids, segments, mask


def cannot_compute(name: str, error: Exception) -> UserError:
    """Return a UserError for an error of transformers, safetensors or torch, in one line."""
    cause = f"{type(error).__name__}: {first_line(error)}"
    # transformers also raises OSErrors for reasons other than the disk; they have no number.
    is_from_disk = isinstance(error, OSError) and error.errno is not None
    if is_from_disk or isinstance(error, DAMAGE_ERRORS) or DAMAGE_TEXT in str(error):
        advice = "a file may be cut short, copy it again"
    else:
        advice = f"its files may not fit together, or not transformers {TRANSFORMERS}"
        advice += "; give another checkpoint"
    return UserError(f"checkpoint '{name}': transformers cannot compute it ({cause}); {advice}")
