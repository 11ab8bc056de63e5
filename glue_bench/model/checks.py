"""What is asked of an arm before compute is spent on it: does order reach its output, and what does it cost?"""

import json
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError, first_line
from glue_bench.model.checkpoints import Start, encoder, with_variant
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import drawing, on_meta
from glue_bench.model.native import NativeStart
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Variant

ORDER_LENGTH = 16
HEARD = 1e-8  # float64, variants grafted from all-MiniLM-L6-v2: `none` differs by 3e-15, the others by 1e-2 to 2
TABLES = ("variant.words.", "variant.positions.", "variant.segments.")
BATCH = 32
UPDATES = 3  # a factor of zero learns in the first, its other factor in the second


def check_order(start: Start, arm: str) -> None:
    """Refuse an arm whose output does not change when tokens change places, or has a position where there is none.

    A graft, like fresh weights, may start with positions that change nothing yet, such as a table of zeros, as long as
    each part of the variant learns: a gradient reaches it, in one of the first UPDATES updates. (Noise would not
    tell: a product of two tables of zeros comes alive under noise, but never learns.)
    The error says the arm, the checkpoint, and what to do; it is one, too, where the encoder cannot be built or run.
    """
    about = f"arm '{arm}' (variant '{start.config.variant}' from '{start.name}')"
    trained, dead, learns = start.origin not in {"grafted", "scratch"}, list[str](), True
    try:
        model = encoder(start).double().eval()
        generator = torch.Generator().manual_seed(0)
        # As different as the vocabulary permits.
        length = min(ORDER_LENGTH, start.config.max_position_embeddings)
        ids = torch.randperm(start.config.vocab_size, generator=generator)[None, :length]
        change = float(order_difference(model, ids).detach().abs().max())
        if model.variant.uses_position and not trained and change < float("inf"):
            dead, learns = dead_parts(model, ids)
    except UserError as error:
        raise UserError(f"arm '{arm}': {error}") from error
    except Exception as error:  # what the code of a plugin raises is anything
        raise UserError(
            f"{about}: its encoder cannot run: {type(error).__name__}: {first_line(error)}"
        ) from error
    heard = change > HEARD
    if not change < float("inf"):
        raise UserError(
            f"{about}: its output is not finite; the checkpoint's weights are damaged, give another"
        )
    if not model.variant.uses_position:
        if heard:
            raise UserError(
                f"{about}: permuting tokens changes the output by {change:.1e}, but it has no position"
            )
    elif trained and not heard:
        fault = (
            "position is dead, permuting tokens does not change the output of these trained weights"
        )
        raise UserError(f"{about}: {fault}; give another checkpoint, or take the variant 'none'")
    elif dead or not (heard or learns):
        fault = f"position is dead{' in part' * (heard or learns)}, no gradient reaches {', '.join(dead) or 'it'}"
        advice = "give another checkpoint, or let the variant's graft leave positions that are not all zero"
        raise UserError(f"{about}: {fault}; {advice}")


def permutation(length: int) -> Int[Tensor, " l"]:
    """Where each token comes from: the first stays, others change places (a reversal would keep distances)."""
    others = torch.randperm(length - 1, generator=torch.Generator().manual_seed(0))
    return torch.cat([torch.zeros(1, dtype=torch.long), 1 + others])


def order_difference(model: EncoderModel, ids: Int[Tensor, "1 l"]) -> Float[Tensor, "1 l d"]:
    """What the order changes: each token's output against the same token's in its other place."""
    order = permutation(ids.shape[1])
    return model.hidden_states(ids)[-1][:, order] - model.hidden_states(ids[:, order])[-1]


def dead_parts(model: EncoderModel, ids: Int[Tensor, "1 l"]) -> tuple[list[str], bool]:
    """The parts of the variant, without words and segments, that the order gives no gradient; whether it gives any one.

    A part is a child of the variant or a parameter of its own. Changes the model's weights.
    """
    named = {
        name: weight for name, weight in model.variant.named_parameters() if weight.requires_grad
    }
    parts = dict.fromkeys(
        name.split(".")[0] for name in named if not name.startswith(("words.", "segments."))
    )
    alive: set[str] = set()
    for _ in range(UPDATES):
        difference = order_difference(model, ids)
        direction = torch.randn(
            difference.shape, generator=torch.Generator().manual_seed(0), dtype=difference.dtype
        )
        gradients = torch.autograd.grad(
            (difference * direction).sum(), list(named.values()), allow_unused=True
        )
        for (name, weight), gradient in zip(named.items(), gradients, strict=True):
            if gradient is not None and (largest := float(gradient.abs().max())) > HEARD:
                alive.add(name.split(".")[0])
                weight.data.add_(gradient, alpha=0.01 / largest)
    return [part for part in parts if part not in alive], bool(alive & parts.keys())


def budget(config: EncoderConfig, length: int) -> dict[str, Any]:
    """Sizes of the encoder without heads, and operations of its training.

    `parameters`; `non_embedding_parameters`, without the token, position and segment tables; `added_over_add`,
    against `add` at the same sizes; `flops_per_token`, matrix products of one forward and backward pass over
    `BATCH` sequences of `length` tokens, counted by PyTorch (a multiply-add is two).
    """
    return dict(
        _counted(config.to_json_string(use_diff=False), length, VARIANTS.get(config.variant))
    )


@cache
def _counted(settings: str, length: int, _: type[Variant] | None) -> dict[str, Any]:
    """Counted once per process; a plugin that was edited is another class under the same name."""
    config = EncoderConfig.from_dict(json.loads(settings))
    encoder, add = (
        on_meta(EncoderModel, each)
        for each in (config, with_variant(config, "add", {}, config.origin))
    )
    total = encoder.num_parameters()
    tables = sum(p.numel() for name, p in encoder.named_parameters() if name.startswith(TABLES))
    tokens = torch.zeros(BATCH, length, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        encoder(tokens).last_hidden_state.sum().backward()
    return {
        "parameters": total,
        "non_embedding_parameters": total - tables,
        "added_over_add": total - add.num_parameters(),
        "flops_per_token": counter.get_total_flops() // (BATCH * length),
        "length": length,
    }


def native_budget(
    start: NativeStart, tokenizer: PreTrainedTokenizerBase, length: int, arm: str
) -> dict[str, Any]:
    """The same of a native arm, found by running its model on a text of `length` tokens beside a shorter one.

    `non_embedding_parameters` are those outside of embeddings of any kind. `flops_per_token` are three times those of a
    forward pass, because a backward pass computes two products for each of its products. `added_over_add` is not known.
    Raises UserError where the model cannot run, or its output is not finite.
    """
    how: dict[str, Any] = {
        "max_length": length,
        "truncation": True,
        "padding": True,
        "padding_side": "right",
    }
    how |= {"return_tensors": "pt", "return_attention_mask": True, "return_token_type_ids": True}
    encoding = tokenizer(["One of the many. " * length, "A short one."], **how)
    ids, mask, segments = (
        encoding["input_ids"],
        encoding["attention_mask"].bool(),
        encoding["token_type_ids"],
    )
    # As plain products: torch's counter does not know its own attention on a CPU, and counts nothing for it.
    plain_attention = sdpa_kernel(SDPBackend.MATH)
    try:
        with drawing(), torch.no_grad(), plain_attention, FlopCounterMode(display=False) as counter:
            # Without a gradient anywhere, else the counter expects some of what DeBERTa computes to have one.
            model = start.classifier(("one", "other"), seed=0).eval().requires_grad_(False)
            logits = model(ids, mask, segments).logits
    except Exception as error:  # what some family's code raises is anything
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(
            f"arm '{arm}': its model cannot run on {ids.shape[1]} tokens: {cause}"
        ) from error
    if logits.shape != (2, 2) or not logits.isfinite().all():
        raise UserError(
            f"arm '{arm}': its model gives no finite logits for two texts, but {logits.tolist()}"
        )
    tables = {part.weight for part in model.base.modules() if isinstance(part, nn.Embedding)}
    total = model.base.num_parameters()
    return {
        "parameters": total,
        "non_embedding_parameters": total - sum(table.numel() for table in tables),
        "flops_per_token": 3 * counter.get_total_flops() // ids.numel(),
        "length": ids.shape[1],
    }
