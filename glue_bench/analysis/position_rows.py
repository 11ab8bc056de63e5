"""The rows of positions as attention reads them, where a variant has one for each position.

Where a variant resets the scores of [CLS] (TUPE-A, TUPE-R), no row is read as place 0: the rows are those from place 1.

Shapes: n positions, e width of the table, h heads, k head size.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from glue_bench.analysis.input_sum import InputSum
from glue_bench.analysis.measured import LeftOut
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants.base import rows_from
from glue_bench.model.variants.diet import DietAbs
from glue_bench.model.variants.untied import FourTerm, Untied, UntiedTieCls

NO_ROWS = "it has no row for each position"
NO_PRODUCT = "its scores have no product of two positions"


@torch.no_grad()
def rows(model: EncoderModel, table: InputSum) -> Float[Tensor, "n e"]:
    """Centred rows: of the table that is added at the input; of untied variants after their LayerNorm; DIET's P_Q, P_K.

    Raises:
        LeftOut: there is none.
    """
    variant, length = model.variant, len(table.positions)
    if table.has_positions:
        found = table.positions
    elif isinstance(variant, Untied) and hasattr(variant, "position_norm"):
        found = _untied(variant, length)
    elif isinstance(variant, DietAbs):
        found = torch.cat(_diet(variant, length), dim=1)
    else:
        raise LeftOut(NO_ROWS)
    return found - found.mean(0)


@torch.no_grad()
def heads(model: EncoderModel, table: InputSum) -> tuple[Float[Tensor, "h n k"], Float[Tensor, "h n k"]]:
    """Queries and keys of positions in the first block; a constant factor is left out.

    Of an additive encoder those of gamma * C(p - p_mean), whose sigma_i is not the position's own.

    Raises:
        LeftOut: no product of two positions is in its scores.
    """
    variant, length = model.variant, len(table.positions)
    if table.has_positions:
        centred = model.norm.weight * (table.positions - table.positions.mean(-1, keepdim=True))
        centred = centred if model.project is None else F.linear(centred, model.project.weight)
        attention = model.blocks[0].attention
        both = F.linear(centred, attention.qkv.weight[: 2 * centred.shape[-1]])  # type: ignore[union-attr,index]
        queries, keys = both.chunk(2, dim=-1)
    elif isinstance(variant, Untied) and (not isinstance(variant, FourTerm) or "position-position" in variant.terms):
        found = _untied(variant, length)
        width = model.config.hidden_size  # of the first block, where each has its own
        queries, keys = variant.position_query(found)[:, :width], variant.position_key(found)[:, :width]
    elif isinstance(variant, DietAbs):
        queries, keys = _diet(variant, length)
    else:
        raise LeftOut(NO_PRODUCT)
    count = {"h": model.config.num_attention_heads}
    return rearrange(queries, "n (h k) -> h n k", **count), rearrange(keys, "n (h k) -> h n k", **count)


def _untied(variant: Untied, length: int) -> Tensor:
    first = 1 if isinstance(variant, UntiedTieCls | FourTerm) else 2  # rows 0 and 1 are the constants of the reset
    return variant.position_norm(rows_from(variant.positions.weight, length, fixed=2)[first:])


def _diet(variant: DietAbs, length: int) -> list[Tensor]:
    return [rows_from(part[0].get_parameter("weight").detach(), length) for part in (variant.queries, variant.keys)]
