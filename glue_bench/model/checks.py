"""Two questions to weights before compute is spent on them: are they read right, and does position reach the output?"""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM
from transformers import __version__ as TRANSFORMERS

from glue_bench.errors import UserError, first_line
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import drawing
from glue_bench.model.start import Start, encoder, masked_lm

TOLERANCE = 1e-4  # of the largest value; rounding alone makes 2e-6 of it in 24 random blocks of width 256
LENGTH = 32
ORDER_LENGTH = 16
HEARD = 1e-8  # float64, variants grafted from all-MiniLM-L6-v2: `none` differs by 3e-15, the others by 1e-2 to 2
UPDATES = 3  # a factor of zero learns in the first, its other factor in the second


@torch.no_grad()
def check_parity(folder: Path, start: Start) -> None:
    """Compare hidden states, and the logits where there is a masked-LM head, with those of transformers' own model.

    Both read the same random tokens in float32, of which one sequence is padded. Draws nothing from torch's global
    generator.

    Raises:
        UserError: they differ by more than TOLERANCE, are not finite, or transformers cannot compute the checkpoint.
    """
    name, positions = f"checkpoint '{start.name}'", start.config.max_position_embeddings
    with drawing():
        theirs = _transformers_model(folder, start)
        ours = (masked_lm(start) if start.head else encoder(start)).eval()
    ids, segments, mask = _tokens(start, min(LENGTH, positions))
    given: dict[str, Any] = {"token_type_ids": segments} if start.config.type_vocab_size else {}
    try:
        expected = theirs(ids, mask, **given, output_hidden_states=True, return_dict=True)
    except Exception as error:
        raise cannot_compute(start.name, error) from error
    found = ours(ids, mask, segments, output_hidden_states=True)
    pairs = list(zip(expected.hidden_states, found.hidden_states, strict=True))
    pairs += [(expected.logits, found.logits)] if start.head else []
    for place, pair in enumerate(pairs):
        their, our = (each[mask.bool()] for each in pair)
        largest, apart = float(their.abs().max()), float((our - their).abs().max())
        if not largest < float("inf"):
            raise UserError(f"{name}: hidden states are not finite; its weights are damaged")
        if not apart <= TOLERANCE * largest:
            head = place == len(found.hidden_states)
            part = "the masked-LM head" if head else f"block {place}" if place else "the input"
            advice = "Save its encoder alone, or use it" if head else "Use it"
            raise UserError(
                f"{name}: {part} does not compute what transformers {TRANSFORMERS} computes (off by {apart:.2g}). "
                f"{advice} as a `native` arm."
            )


def _transformers_model(folder: Path, start: Start) -> Any:
    """transformers' own model of the folder, with its masked-LM head if it has one."""
    try:
        model, found = (AutoModelForMaskedLM if start.head else AutoModel).from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=False,
            dtype=torch.float32,
            attn_implementation="eager",
            chunk_size_feed_forward=0,  # another order of the same work, which not every length permits
            output_loading_info=True,
        )
    except Exception as error:
        raise cannot_compute(start.name, error) from error
    lacking = [key for key in sorted(found["missing_keys"]) if "pooler." not in key]
    if lacking:
        raise UserError(f"checkpoint '{start.name}': transformers finds no weights for {lacking[0]} in '{folder}'")
    return model.eval()


def cannot_compute(name: str, error: Exception) -> UserError:
    """Whatever transformers, safetensors or torch raise, which have no common base, in one line."""
    reason = f"({type(error).__name__}: {first_line(error)})"
    return UserError(f"checkpoint '{name}': transformers itself cannot compute it {reason}")


def _tokens(start: Start, length: int) -> tuple[Int[Tensor, "2 l"], Int[Tensor, "2 l"], Int[Tensor, "2 l"]]:
    """Any tokens but padding, in two segments, and a mask that leaves out half of the last sequence."""
    config, generator = start.config, torch.Generator().manual_seed(1)
    ids = torch.randint(config.vocab_size, (2, length), generator=generator)
    if config.pad_token_id is not None:
        ids[ids == config.pad_token_id] = (config.pad_token_id + 1) % config.vocab_size
    segments = torch.zeros_like(ids)
    segments[:, length // 3 :] = max(config.type_vocab_size - 1, 0)
    mask = torch.ones_like(ids)
    mask[-1, (length + 1) // 2 :] = 0
    return ids, segments, mask


def check_order(start: Start, arm: str) -> None:
    """Refuse an arm whose positions are dead, or alive although its variant has none.

    Random tokens are permuted, the first excepted, and every token's output in float64 is compared with the same
    token's before. Weights that were trained with the variant have had their chance. A graft, like fresh weights, may
    start with positions that change nothing yet, such as a table of zeros, as long as each part of the variant learns:
    a gradient reaches it, in one of the first UPDATES updates. (Noise on the parameters would not tell: a product of
    two tables of zeros comes alive under noise, but its gradient is zero and it never learns.)

    Raises:
        UserError: with the arm, the checkpoint, and what to do; also where the encoder cannot be built or run.
    """
    about = f"arm '{arm}' (variant '{start.config.variant}' from '{start.name}')"
    config, generator = start.config, torch.Generator().manual_seed(0)
    # As different as the vocabulary permits.
    length = min(ORDER_LENGTH, config.max_position_embeddings)
    ids = torch.randperm(config.vocab_size, generator=generator)[None, :length]
    try:
        model = encoder(start).double().eval()
        with torch.no_grad():
            change = float(_order_difference(model, ids).abs().max())
    except UserError as error:
        raise UserError(f"arm '{arm}': {error}") from error
    except Exception as error:  # what the code of a plugin raises is anything
        raise UserError(f"{about}: its encoder cannot run: {type(error).__name__}: {first_line(error)}") from error
    if not change < float("inf"):
        raise UserError(f"{about}: its output is not finite; the checkpoint's weights are damaged, give another")
    if not model.variant.uses_position:
        if change > HEARD:
            raise UserError(f"{about}: permuting tokens changes the output by {change:.1e}, but it has no position")
        return
    if start.origin not in {"grafted", "scratch"}:
        if change <= HEARD:
            raise UserError(
                f"{about}: position is dead, permuting tokens does not change the output of these trained weights; "
                "give another checkpoint, or take the variant 'none'"
            )
        return
    dead, learns = _dead_parts(model, ids)
    if dead or not (learns or change > HEARD):
        raise UserError(
            f"{about}: position is dead{' in part' if change > HEARD or learns else ''}, no gradient reaches "
            f"{', '.join(dead) or 'it'}; give another checkpoint, or let the variant's graft leave positions that are "
            "not all zero"
        )


def permutation(length: int, seed: int = 0) -> Int[Tensor, " l"]:
    """Where each token of a sequence comes from: the first stays, the others change places.

    Not a reversal, which keeps the distances between all but the first and so can hide a relative position.
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(length - 1, generator=generator)])


def _order_difference(model: EncoderModel, ids: Int[Tensor, "1 l"]) -> Float[Tensor, "1 l d"]:
    """What the order changes: each token's output against the same token's in its other place."""
    order = permutation(ids.shape[1])
    return model.hidden_states(ids)[-1][:, order] - model.hidden_states(ids[:, order])[-1]


def _dead_parts(model: EncoderModel, ids: Int[Tensor, "1 l"]) -> tuple[list[str], bool]:
    """The parts of the variant, without words and segments, that the order gives no gradient; whether it gives any one.

    A part is a child of the variant or a parameter of its own. Changes the model's weights.
    """
    named = {name: weight for name, weight in model.variant.named_parameters() if weight.requires_grad}
    part_of = {name: name.split(".")[0] for name in named}
    parts = dict.fromkeys(part for part in part_of.values() if part not in ("words", "segments"))
    alive: set[str] = set()
    for _ in range(UPDATES):
        difference = _order_difference(model, ids)
        direction = torch.randn(difference.shape, generator=torch.Generator().manual_seed(0), dtype=difference.dtype)
        found = torch.autograd.grad((difference * direction).sum(), list(named.values()), allow_unused=True)
        for (name, weight), gradient in zip(named.items(), found, strict=True):
            largest = 0.0 if gradient is None else float(gradient.abs().max())
            if gradient is not None and largest > HEARD:
                alive.add(part_of[name])
                weight.data.add_(gradient, alpha=0.01 / largest)
    return [part for part in parts if part not in alive], bool(alive & parts.keys())
