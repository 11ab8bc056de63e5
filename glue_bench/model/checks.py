"""The checks of an arm before compute is spent on it: whether it hears order, and what it costs."""

import json
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError, first_line
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fixed_seed, on_meta
from glue_bench.model.native import NativeStart
from glue_bench.model.start import Start, encoder, with_variant
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Variant

ORDER_LENGTH = 16
MIN_ORDER_DIFFERENCE = 1e-8
"""The limit in float64. Among grafts of all-MiniLM-L6-v2, `none` has 3e-15, others 1e-2 to 2."""
TABLE_PREFIXES = ("variant.words.", "variant.positions.", "variant.segments.")
GRADIENT_BATCH = 32
UPDATES = 3
"""A factor of zero learns in the first update, the second factor of its product in the next."""


class OrderEffect(NamedTuple):
    """What the order of tokens does to an encoder.

    Attributes:
        change: By how much permuting tokens changes the output.
        dead: The parts of the variant that get no gradient from the order of tokens, if it may
            learn.
        learns: Whether order gives any part a gradient.
    """

    change: float
    dead: list[str]
    learns: bool


def check_order(start: Start, arm: str) -> None:
    """Refuse an arm that does not hear the order of tokens, or hears it without a position.

    A graft, like fresh weights, may start with positions that change nothing yet, such as a table
    of zeros, as long as each part of the variant learns: a gradient reaches it, in one of the first
    UPDATES updates. (Noise would not tell: a product of two tables of zeros comes alive under
    noise, but never learns.)

    Args:
        start: What the arm starts from.
        arm: The name of the arm.

    Raises:
        UserError: the arm is refused, or its encoder cannot be built or run. The message says the
            arm, the checkpoint, and what to do.
    """
    about = f"arm '{arm}' (variant '{start.config.variant}' from '{start.name}')"
    is_trained = start.origin not in {"grafted", "scratch"}

    try:
        model = encoder(start).double().eval()
        effect = _order_effect(model, start.config, is_trained=is_trained)
    except UserError as error:
        raise UserError(f"arm '{arm}': {error}") from error
    except Exception as error:  # the code of a plugin may raise anything
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{about}: its encoder cannot run: {cause}") from error

    change = effect.change
    if not change < float("inf"):
        fault = "its output is not finite"
        advice = "the checkpoint's weights are damaged, give another"
        raise UserError(f"{about}: {fault}; {advice}")

    is_heard = change > MIN_ORDER_DIFFERENCE
    if not model.variant.uses_position:
        if is_heard:
            fault = f"permuting tokens changes the output by {change:.1e}"
            raise UserError(f"{about}: {fault}, but it has no position")
        return

    if is_trained and not is_heard:
        fault = "position is dead"
        fault += ", permuting tokens does not change the output of these trained weights"
        advice = "give another checkpoint, or take the variant 'none'"
        raise UserError(f"{about}: {fault}; {advice}")

    may_learn = is_heard or effect.learns
    if not is_trained and (effect.dead or not may_learn):
        parts = ", ".join(effect.dead) or "it"
        state = "dead in part" if may_learn else "dead"
        fault = f"position is {state}, no gradient reaches {parts}"
        advice = "let the variant's graft leave positions that are not all zero"
        raise UserError(f"{about}: {fault}; give another checkpoint, or {advice}")


def _order_effect(model: EncoderModel, config: EncoderConfig, *, is_trained: bool) -> OrderEffect:
    """Measure what the order of tokens does to an encoder; changes untrained weights."""
    # The tokens are as different as the vocabulary permits.
    length = min(ORDER_LENGTH, config.max_position_embeddings)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randperm(config.vocab_size, generator=generator)[None, :length]
    change = float(order_difference(model, ids).detach().abs().max())
    if model.variant.uses_position and not is_trained and change < float("inf"):
        dead, learns = dead_parts(model, ids)
        return OrderEffect(change, dead, learns)
    return OrderEffect(change, [], learns=True)


def permutation(length: int) -> Int[Tensor, " l"]:
    """Return the place that each token comes from: the first stays, all others move.

    A reversal would keep distances.
    """
    generator = torch.Generator().manual_seed(0)
    remaining = 1 + torch.randperm(length - 1, generator=generator)
    return torch.cat([torch.zeros(1, dtype=torch.long), remaining])


def order_difference(model: EncoderModel, ids: Int[Tensor, "1 l"]) -> Float[Tensor, "1 l d"]:
    """Subtract from each token's output the output of the same token in its permuted place."""
    order = permutation(ids.shape[1])
    usual = model.hidden_states(ids)[-1]
    permuted = model.hidden_states(ids[:, order])[-1]
    return usual[:, order] - permuted


def dead_parts(model: EncoderModel, ids: Int[Tensor, "1 l"]) -> tuple[list[str], bool]:
    """Find the parts of the variant that get no gradient from the order of tokens.

    A part is a child module or a parameter of the variant. The tables of words and segments do not
    count. The function changes the model's weights.

    Returns:
        The dead parts, and whether order gives any part a gradient.
    """
    weights: dict[str, nn.Parameter] = {}
    parts: list[str] = []
    for name, weight in model.variant.named_parameters():
        if not weight.requires_grad:
            continue
        weights[name] = weight
        part = name.split(".")[0]
        is_content = name.startswith(("words.", "segments."))
        if not is_content and part not in parts:
            parts.append(part)

    alive: set[str] = set()
    for _ in range(UPDATES):
        difference = order_difference(model, ids)
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(difference.shape, generator=generator, dtype=difference.dtype)
        score = (difference * direction).sum()
        gradients = torch.autograd.grad(score, list(weights.values()), allow_unused=True)
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
            largest = 0.0 if gradient is None else float(gradient.abs().max())
            if gradient is not None and largest > MIN_ORDER_DIFFERENCE:
                alive.add(name.split(".")[0])
                weight.data.add_(gradient, alpha=0.01 / largest)

    dead = [part for part in parts if part not in alive]
    return dead, not alive.isdisjoint(parts)


def budget(config: EncoderConfig, length: int) -> dict[str, Any]:
    """Return the sizes of the encoder without heads, and the operations of its training.

    Args:
        config: The encoder.
        length: The length of the sequences in tokens.

    Returns:
        `parameters`; `non_embedding_parameters`, without the token, position and segment tables;
        `added_over_add`, against `add` at the same sizes; `flops_per_token`, matrix products of one
        forward and backward pass over `GRADIENT_BATCH` sequences, counted by PyTorch (a
        multiply-add is two); and `length`.
    """
    settings = config.to_json_string(use_diff=False)
    return dict(_counted(settings, length, VARIANTS.get(config.variant)))


@cache
def _counted(settings: str, length: int, _: type[Variant] | None) -> dict[str, Any]:
    """Count once per process; a plugin that was edited is another class under the same name."""
    config = EncoderConfig.from_dict(json.loads(settings))
    model = on_meta(EncoderModel, config)
    additive = on_meta(EncoderModel, with_variant(config, "add", {}, config.origin))
    total = model.num_parameters()
    in_tables = 0
    for name, weight in model.named_parameters():
        if name.startswith(TABLE_PREFIXES):
            in_tables += weight.numel()
    tokens = torch.zeros(GRADIENT_BATCH, length, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        model(tokens).last_hidden_state.sum().backward()
    return {
        "parameters": total,
        "non_embedding_parameters": total - in_tables,
        "added_over_add": total - additive.num_parameters(),
        "flops_per_token": counter.get_total_flops() // (GRADIENT_BATCH * length),
        "length": length,
    }


def native_budget(
    start: NativeStart, tokenizer: PreTrainedTokenizerBase, length: int, arm: str
) -> dict[str, Any]:
    """Return what `budget` returns, for a native arm. Its model runs on two texts.

    `flops_per_token` is three times the operations of a forward pass, because a backward pass
    computes two products for each product of the forward pass.

    Args:
        start: What the arm starts from.
        tokenizer: Its tokenizer.
        length: The length of the longer text in tokens.
        arm: The name of the arm.

    Returns:
        As `budget`. `non_embedding_parameters` are those outside of embeddings of any kind.
        `added_over_add` is not known.

    Raises:
        UserError: the model cannot run, or its output is not finite.
    """
    encoding = tokenizer(
        ["One of the many. " * length, "A short one."],
        max_length=length,
        truncation=True,
        padding=True,
        padding_side="right",
        return_tensors="pt",
        return_attention_mask=True,
        return_token_type_ids=True,
    )

    ids = encoding["input_ids"]
    mask = encoding["attention_mask"].bool()
    segments = encoding["token_type_ids"]

    # Attention is computed as plain products: torch's counter does not know torch's own attention
    # on a CPU, and counts nothing for it.
    plain_attention = sdpa_kernel(SDPBackend.MATH)
    try:
        with (
            fixed_seed(),
            torch.no_grad(),
            plain_attention,
            FlopCounterMode(display=False) as counter,
        ):
            # No weight has a gradient here: if one had, the counter would expect a gradient in
            # parts of DeBERTa that have none.
            model = start.classifier(("one", "other"), seed=0).eval().requires_grad_(False)
            logits = model(ids, mask, segments).logits
    except Exception as error:  # the code of a family may raise anything
        cause = f"{type(error).__name__}: {first_line(error)}"
        fault = f"its model cannot run on {ids.shape[1]} tokens: {cause}"
        raise UserError(f"arm '{arm}': {fault}") from error

    if logits.ndim != 2 or len(logits) != 2 or not logits.isfinite().all():
        fault = "its model gives no finite logits for two texts"
        raise UserError(f"arm '{arm}': {fault}, but {logits.tolist()}")

    tables = {part.weight for part in model.base.modules() if isinstance(part, nn.Embedding)}
    total = model.base.num_parameters()
    in_tables = sum(table.numel() for table in tables)
    return {
        "parameters": total,
        "non_embedding_parameters": total - in_tables,
        "flops_per_token": 3 * counter.get_total_flops() // ids.numel(),
        "length": ids.shape[1],
    }
