"""The encoder: a variant, then Transformer blocks, which know no variant by name.

Shapes: b batch, l length, q queries, d hidden size, h heads, k head size. Where tables are narrower
than the blocks, d is their width up to the projection.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from glue_bench.model import cpu
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.cpu import Dropout
from glue_bench.model.variants.options import build_variant, segments_enter

Mask = Bool[Tensor, "b l"]
"""True where a key is no padding."""


class BlockScores(NamedTuple):
    """What a variant changes in the scores of one block: the attributes of `EncoderInput`, of this block alone.

    `whole`: project the queries of all positions, although only the first rows are wanted. `scores` needs them all,
    as it returns l x l; with `rotate` or a bias for each block they only keep the last bits of the gradients.
    """

    bias: Float[Tensor, "#b #h l l"] | None
    rotate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None
    scores: Callable[[Tensor, Tensor], Tensor] | None
    whole: bool


def attend(
    query: Float[Tensor, "b q h k"],
    key: Float[Tensor, "b l h k"],
    value: Float[Tensor, "b l h k"],
    bias: Float[Tensor, "#b #h #q l"] | None,
    mask: Mask | None,
    *,
    scale: float,
    dropout: float,
) -> Float[Tensor, "b q h k"]:
    """softmax(q k^T * scale + bias), without the keys that `mask` leaves out, with dropout, times v."""
    padding, dtype = None, query.dtype
    if mask is not None:  # padding keys at the lowest finite value: a row of -inf would be NaN
        padding = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(
            ~mask, torch.finfo(dtype).min
        )
        padding = padding[:, None, None]
    # Where torch's own is slow on a CPU: with dropout, with a bias that learns, and for the gradients of bfloat16.
    is_slow = (
        dropout
        or (bias is not None and bias.requires_grad)
        or (dtype == torch.bfloat16 and query.requires_grad)
    )
    if is_slow and cpu.trains_here(query):
        return cpu.attend(query, key, value, bias, padding, scale=scale, dropout=dropout)
    added = [part.to(dtype) for part in (bias, padding) if part is not None]
    extra = sum(added[1:], added[0]) if added else None
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, extra, dropout, scale=scale).transpose(
        1, 2
    )


class Attention(nn.Module):
    """Multi-head attention; query, key and value in one projection."""

    def __init__(self, config: EncoderConfig, scale: float) -> None:
        super().__init__()
        self.num_heads, self.head_size = (
            config.num_attention_heads,
            config.hidden_size // config.num_attention_heads,
        )
        self.scale, self.dropout = (
            scale,
            float(config.attention_probs_dropout_prob),
        )  # many files say 0
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden: Float[Tensor, "b l d"],
        changes: BlockScores,
        mask: Mask | None = None,
        rows: int | None = None,
    ) -> Float[Tensor, "b q d"]:
        """Output of the first `rows` queries, or of all."""
        query, key, value = self.project(hidden, None if changes.whole else rows)
        bias = changes.bias
        if changes.scores or changes.rotate:
            queries, keys = (
                query.transpose(1, 2),
                key.transpose(1, 2),
            )  # variants take heads before length
            if changes.scores:
                extra = changes.scores(queries, keys)
                bias = extra if bias is None else bias + extra
            if changes.rotate:
                queries, keys = changes.rotate(queries, keys)
            # As they came: under autocast a variant that turns them would attend in float32, where others do in bf16.
            query, key = (part.to(value.dtype).transpose(1, 2) for part in (queries, keys))
        bias = None if bias is None else bias[:, :, :rows]
        dropout = self.dropout if self.training else 0.0
        mixed = attend(query[:, :rows], key, value, bias, mask, scale=self.scale, dropout=dropout)
        return self.out(mixed.flatten(2))

    def project(
        self, hidden: Float[Tensor, "b l d"], rows: int | None = None
    ) -> tuple[Float[Tensor, "b q h k"], Float[Tensor, "b l h k"], Float[Tensor, "b l h k"]]:
        """Queries of the first `rows` positions or of all, keys and values of all."""
        split = partial(
            rearrange, pattern="b l (n h k) -> n b l h k", h=self.num_heads, k=self.head_size
        )
        if rows is None:
            query, key, value = split(self.qkv(hidden))
            return query, key, value
        width = hidden.shape[-1]
        weight, bias = (
            self.qkv.weight.split([width, 2 * width]),
            self.qkv.bias.split([width, 2 * width]),
        )
        (query,) = split(F.linear(hidden[:, :rows], weight[0], bias[0]))
        key, value = split(F.linear(hidden, weight[1], bias[1]))
        return query, key, value


class Block(nn.Module):
    """LN(x + attention(x)), then LN(x + feed-forward(x)) (Vaswani et al. 2017; BERT).

    With `norm_first` x + attention(LN(x)), then x + feed-forward(LN(x)) (Xiong et al. 2020); a LayerNorm follows the
    last block. The feed-forward layer is act(x W_1) W_2; `gated` it is (act(x W_1) * (x W_3)) W_2 (GeGLU, Shazeer
    2020), with W_1 and W_3 side by side in `up`.
    """

    def __init__(self, config: EncoderConfig, scale: float) -> None:
        super().__init__()
        self.attention = Attention(config, scale)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.norm_first, self.gated = config.norm_first, config.gated
        self.up = nn.Linear(config.hidden_size, (1 + config.gated) * config.intermediate_size)
        self.act = ACT2FN[config.hidden_act]
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(float(config.hidden_dropout_prob))

    def forward(
        self,
        hidden: Float[Tensor, "b l d"],
        changes: BlockScores,
        mask: Mask | None = None,
        rows: int | None = None,
    ) -> Float[Tensor, "b q d"]:
        """The first `rows` positions after this block, or all."""
        # Sliced before: this order decides in which order the gradients of `hidden` are summed, hence their last bits.
        kept = hidden[:, :rows]
        if self.norm_first:
            hidden = self.dropout.add(
                kept, self.attention(self.attention_norm(hidden), changes, mask, rows)
            )
            return self.dropout.add(hidden, self.feed_forward(self.norm(hidden)))
        hidden = self.attention_norm(
            self.dropout.add(kept, self.attention(hidden, changes, mask, rows))
        )
        return self.norm(self.dropout.add(hidden, self.feed_forward(hidden)))

    def feed_forward(self, hidden: Float[Tensor, "b q d"]) -> Float[Tensor, "b q d"]:
        """What each position adds, by itself."""
        up = self.up(hidden)
        if not self.gated:
            return self.down(self.act(up))
        gate, value = up.chunk(2, dim=-1)
        return self.down(self.act(gate) * value)


class SegmentScores(nn.Module):
    """E_S(S(i), S(j)), a learned scalar a head and ordered pair of segments (Chen et al. 2021, equation 2)."""

    def __init__(self, segment_types: int, num_heads: int) -> None:
        super().__init__()
        self.segment_types = segment_types
        self.table = nn.Embedding(segment_types**2, num_heads)

    def forward(self, segment_ids: Int[Tensor, "b l"]) -> Float[Tensor, "b h l l"]:
        pairs = segment_ids[:, :, None] * self.segment_types + segment_ids[:, None, :]
        return rearrange(self.table(pairs), "b i j h -> b h i j")


class Pooler(nn.Module):
    """tanh(dense([CLS])), as BERT's."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Float[Tensor, "b l d"]) -> Float[Tensor, "b d"]:
        return torch.tanh(self.dense(hidden[:, 0]))


class EncoderPreTrainedModel(PreTrainedModel):
    """transformers' own initialisation; a module with a method `fresh_weight` starts with the weight that it gives."""

    config_class = EncoderConfig
    base_model_prefix = "base"
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        fresh_weight = getattr(module, "fresh_weight", None)
        if fresh_weight is not None:  # what a checkpoint has loaded is left alone by this `copy_`
            initialization.copy_(module.get_parameter("weight"), fresh_weight())


class EncoderModel(EncoderPreTrainedModel):
    """Variant, LayerNorm, dropout, blocks (after the last a LayerNorm where they have none there), BERT's pooler."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.variant = build_variant(config)
        in_scores = segments_enter(config) == "scores"
        self.segment_scores = (
            SegmentScores(config.type_vocab_size, config.num_attention_heads) if in_scores else None
        )
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        if not config.embedding_norm:
            self.norm = nn.Identity()  # type: ignore[assignment]
        self.dropout = Dropout(float(config.hidden_dropout_prob))
        narrow = config.embedding_size != config.hidden_size
        self.project = nn.Linear(config.embedding_size, config.hidden_size) if narrow else None
        self.blocks = nn.ModuleList(
            Block(config, self.variant.score_scale) for _ in range(config.num_hidden_layers)
        )
        self.final_norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            if config.norm_first
            else None
        )
        self.pooler = Pooler(config.hidden_size)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.variant.words

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.variant.words = value  # type: ignore[assignment]

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        output_hidden_states: bool = False,
    ) -> BaseModelOutputWithPooling:
        """Hidden states (b, l, d) and pooled output (b, d).

        `attention_mask` is 1 on real tokens; leave it out where nothing is padded, attention is faster then. Raises
        ValueError as `hidden_states`.
        """
        states = self.hidden_states(input_ids, attention_mask, token_type_ids)
        return BaseModelOutputWithPooling(
            last_hidden_state=states[-1],
            pooler_output=self.pooler(states[-1]),
            hidden_states=tuple(states) if output_hidden_states else None,
        )

    def hidden_states(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        *,
        last_rows: int | None = None,
    ) -> list[Float[Tensor, "b _ d"]]:
        """Return what enters the first block, and the output of each block.

        Of the last block only the first `last_rows` positions are computed, if that is given. Raises ValueError for
        ids that are not integers of shape (b, l), or more of them than there are positions.
        """
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        if (
            input_ids.ndim != 2
            or input_ids.is_floating_point()
            or segments.shape != input_ids.shape
        ):
            got = f"{input_ids.dtype} of shape {tuple(input_ids.shape)}, with segments {tuple(segments.shape)}"
            raise ValueError(
                f"token ids must be integers of shape (batch, length), and segments alike, not {got}"
            )
        length, positions = input_ids.shape[1], self.config.max_position_embeddings
        if length > positions:
            raise ValueError(
                f"sequences of {length} tokens, but the encoder has {positions} positions"
            )
        inputs = self.variant(input_ids, segments)  # an EncoderInput
        # In the precision of the weights: under autocast a product returns bf16, and would leave the residual stream of
        # this arm alone in it, as LayerNorm keeps what it is given on a CPU.
        kind = self.pooler.dense.weight.dtype
        hidden = self.dropout(self.norm(inputs.hidden.to(kind)))
        states = [hidden if self.project is None else self.project(hidden).to(kind)]
        biases = inputs.biases()
        if self.segment_scores is not None:
            added = self.segment_scores(segments)
            biases = [added if bias is None else bias + added for bias in biases]
        of_each = isinstance(inputs.bias, Sequence)
        biases = biases if of_each else biases * len(self.blocks)
        mask = None if attention_mask is None else attention_mask.bool()
        whole = of_each or inputs.rotate is not None or inputs.scores is not None
        for index, (block, bias) in enumerate(zip(self.blocks, biases, strict=True)):
            rotate = partial(inputs.rotate, index) if inputs.rotate else None
            scores = partial(inputs.scores, index) if inputs.scores else None
            rows = last_rows if index == len(self.blocks) - 1 else None
            states.append(block(states[-1], BlockScores(bias, rotate, scores, whole), mask, rows))
        if self.final_norm is not None:
            states[-1] = self.final_norm(states[-1])
        return states
