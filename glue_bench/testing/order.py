"""Does the order of tokens reach an arm's output? Asked of its actual weights, before a sweep spends compute."""

import torch
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import Start, encoder
from glue_bench.model.encoder import EncoderModel
from glue_bench.testing.tiny import permutation

LENGTH = 16
HEARD = 1e-8  # float64, variants grafted from all-MiniLM-L6-v2: `none` differs by 3e-15, the others by 1e-2 to 2


def check_order(start: Start, arm: str, checkpoint: str) -> None:
    """Refuse an arm whose positions are dead, or alive although its variant has none.

    Random tokens are permuted, the first excepted, and every token's output in float64 is compared with the same
    token's before.

    A graft, like fresh weights, may start with positions that change nothing yet, such as a table of zeros. Those
    are let through if a gradient reaches them, that is if the difference between the two outputs, in a random
    direction, has a derivative. (Noise on the parameters would not tell: a product of two tables of zeros comes
    alive under noise, but its gradient is zero and it never learns.) Weights that were trained with the variant
    have had their chance.

    Raises:
        UserError: with the arm, the checkpoint, and what to do; also where the encoder cannot be built or run.
    """
    said = f"arm '{arm}' (variant '{start.config.variant}' from '{checkpoint}')"
    config, generator = start.config, torch.Generator().manual_seed(0)
    # As different as the vocabulary permits.
    ids = torch.randperm(config.vocab_size, generator=generator)[None, : min(LENGTH, config.max_position_embeddings)]
    order = permutation(ids.shape[1])
    try:
        model = encoder(start).double().eval()
        with torch.no_grad():
            change = float(_difference(model, ids, order).abs().max())
    except UserError as error:
        raise UserError(f"arm '{arm}': {error}") from error
    except Exception as error:  # what the code of a plugin raises is anything
        raise UserError(
            f"{said}: its encoder cannot run: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if not change < float("inf"):
        raise UserError(f"{said}: its output is not finite; the checkpoint's weights are damaged, give another")
    if not model.variant.uses_position and change > HEARD:
        raise UserError(f"{said}: permuting tokens changes the output by {change:.1e}, but the variant has no position")
    if not model.variant.uses_position or change > HEARD:
        return
    if start.origin not in {"grafted", "scratch"}:
        raise UserError(
            f"{said}: position is dead, permuting tokens does not change the output of these trained weights; "
            "give another checkpoint, or take the variant 'none'"
        )
    if not _can_learn(model, ids, order):
        raise UserError(
            f"{said}: position is dead, permuting tokens does not change the output and no gradient can make it; "
            "give another checkpoint, or let the variant's graft leave positions that are not all zero"
        )


def _difference(model: EncoderModel, ids: Tensor, order: Tensor) -> Tensor:
    """What the order changes: (1, l, d), each token's output against the same token's in its other place."""
    return model.hidden_states(ids)[-1][:, order] - model.hidden_states(ids[:, order])[-1]


def _can_learn(model: EncoderModel, ids: Tensor, order: Tensor) -> bool:
    difference = _difference(model, ids, order)
    direction = torch.randn(difference.shape, generator=torch.Generator().manual_seed(0), dtype=difference.dtype)
    gradients = torch.autograd.grad((difference * direction).sum(), list(model.parameters()), allow_unused=True)
    return any(gradient is not None and bool((gradient.abs() > HEARD).any()) for gradient in gradients)
