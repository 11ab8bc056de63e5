"""The encoder: a variant, then Transformer blocks. No block knows a variant by name.

Shapes: b batch, l length, q queries, d hidden size, h heads, k head size. If tables are narrower
than the blocks, d is the width of the tables before the projection.
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
from glue_bench.model.variants.base import EncoderInput
from glue_bench.model.variants.options import build_variant, segments_enter

Mask = Bool[Tensor, "b l"]
"""True where a key is no padding."""


class BlockScores(NamedTuple):
    """A variant's changes of one block's scores: the attributes of `EncoderInput` for the block.

    `all_queries` says to project the queries of all positions even if only the first rows are
    computed. `scores` needs them, as it returns l x l. With `rotate`, or one bias per block, it is
    needed only to reproduce the gradients bit for bit.
    """

    bias: Float[Tensor, "#b #h l l"] | None
    rotate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None
    scores: Callable[[Tensor, Tensor], Tensor] | None
    all_queries: bool
    infused: Float[Tensor, "#b l d"] | None = None


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
    """Compute softmax(q k^T * scale + bias) v with dropout, without keys that `mask` leaves out."""
    padding = None if mask is None else padding_scores(mask, query.dtype)
    # torch's own attention is slow on a CPU with dropout, with a bias that learns, and for
    # gradients in bf16.
    bias_learns = bias is not None and bias.requires_grad
    has_bf16_gradients = query.dtype == torch.bfloat16 and query.requires_grad
    is_slow = dropout or bias_learns or has_bf16_gradients
    if is_slow and cpu.is_supported(query):
        return cpu.attend_on_cpu(query, key, value, bias, padding, scale=scale, dropout=dropout)
    added = [part.to(query.dtype) for part in (bias, padding) if part is not None]
    extra = sum(added[1:], added[0]) if added else None
    queries, keys, values = (part.transpose(1, 2) for part in (query, key, value))
    mixed = F.scaled_dot_product_attention(queries, keys, values, extra, dropout, scale=scale)
    return mixed.transpose(1, 2)


def padding_scores(mask: Mask, dtype: torch.dtype) -> Float[Tensor, "b 1 1 l"]:
    """Return scores that leave padding keys out: lowest finite values, as rows of -inf are NaN."""
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, torch.finfo(dtype).min)[:, None, None]


class Attention(nn.Module):
    """Multi-head attention; query, key and value in one projection."""

    def __init__(self, config: EncoderConfig, scale: float) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.scale = scale
        self.dropout = float(config.attention_probs_dropout_prob)  # many files have the integer 0
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden: Float[Tensor, "b l d"],
        changes: BlockScores,
        mask: Mask | None = None,
        rows: int | None = None,
    ) -> Float[Tensor, "b q d"]:
        """Return the output of the first `rows` queries, or of all."""
        needed = None if changes.all_queries else rows
        query, key, value = self.project(hidden, needed, changes.infused)
        bias = changes.bias

        if changes.scores or changes.rotate:
            # Variants take heads before length.
            queries = query.transpose(1, 2)
            keys = key.transpose(1, 2)
            if changes.scores:
                extra = changes.scores(queries, keys)
                bias = extra if bias is None else bias + extra
            if changes.rotate:
                queries, keys = changes.rotate(queries, keys)
            # They get the type that they had before: under autocast a variant that turns them would
            # attend in float32, while all other variants attend in bf16.
            query = queries.to(value.dtype).transpose(1, 2)
            key = keys.to(value.dtype).transpose(1, 2)

        if bias is not None:
            bias = bias[:, :, :rows]
        dropout = self.dropout if self.training else 0.0
        mixed = attend(query[:, :rows], key, value, bias, mask, scale=self.scale, dropout=dropout)
        return self.out(mixed.flatten(2))

    def project(
        self,
        hidden: Float[Tensor, "b l d"],
        rows: int | None = None,
        infused: Float[Tensor, "#b l d"] | None = None,
    ) -> tuple[Float[Tensor, "b q h k"], Float[Tensor, "b l h k"], Float[Tensor, "b l h k"]]:
        """Project hidden states.

        Args:
            hidden: The input of attention.
            rows: How many queries are needed; by default all.
            infused: Rows that are added to `hidden` for queries and keys, and not for values.

        Returns:
            Queries of the first `rows` positions or of all, keys and values of all.
        """
        sizes = {"h": self.num_heads, "k": self.head_size}
        split = partial(rearrange, pattern="b l (n h k) -> n b l h k", **sizes)
        width = hidden.shape[-1]
        if rows is None:
            query, key, value = split(self.qkv(hidden))
        else:
            query_weight, key_value_weight = self.qkv.weight.split([width, 2 * width])
            query_bias, key_value_bias = self.qkv.bias.split([width, 2 * width])
            (query,) = split(F.linear(hidden[:, :rows], query_weight, query_bias))
            key, value = split(F.linear(hidden, key_value_weight, key_value_bias))
        if infused is not None:
            # (x + p) W = x W + p W, and p is the same for all sequences.
            added_query, added_key = split(F.linear(infused, self.qkv.weight[: 2 * width]))
            query = query + added_query[:, :rows]
            key = key + added_key
        return query, key, value


class Block(nn.Module):
    """LN(x + attention(x)), then LN(x + feed-forward(x)) (Vaswani et al. 2017; BERT).

    With `norm_first` x + attention(LN(x)), then x + feed-forward(LN(x)) (Xiong et al. 2020); a
    LayerNorm follows the last block. The feed-forward layer is act(x W_1) W_2. If it is `gated`, it
    is (act(x W_1) * (x W_3)) W_2 (GeGLU, Shazeer 2020), with W_1 and W_3 side by side in `up`.
    """

    def __init__(self, config: EncoderConfig, scale: float) -> None:
        super().__init__()
        self.attention = Attention(config, scale)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.norm_first = config.norm_first
        self.gated = config.gated
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
        """Return the first `rows` positions after this block, or all."""
        # The rows are sliced before attention: this decides the order in which the gradients of
        # `hidden` are summed, and so their last bits.
        kept = hidden[:, :rows]
        if self.norm_first:
            mixed = self.attention(self.attention_norm(hidden), changes, mask, rows)
            hidden = self.dropout.add(kept, mixed)
            return self.dropout.add(hidden, self.feed_forward(self.norm(hidden)))
        mixed = self.attention(hidden, changes, mask, rows)
        hidden = self.attention_norm(self.dropout.add(kept, mixed))
        return self.norm(self.dropout.add(hidden, self.feed_forward(hidden)))

    def feed_forward(self, hidden: Float[Tensor, "b q d"]) -> Float[Tensor, "b q d"]:
        """Return what each position adds by itself."""
        up = self.up(hidden)
        if not self.gated:
            return self.down(self.act(up))
        gate, value = up.chunk(2, dim=-1)
        return self.down(self.act(gate) * value)


class SegmentScores(nn.Module):
    """Scores E_S(S(i), S(j)): a learned scalar for each head and ordered pair of segments.

    Chen et al. 2021, equation 2.
    """

    def __init__(self, segment_types: int, num_heads: int) -> None:
        super().__init__()
        self.segment_types = segment_types
        self.table = nn.Embedding(segment_types**2, num_heads)

    def forward(self, segment_ids: Int[Tensor, "b l"]) -> Float[Tensor, "b h l l"]:
        pairs = segment_ids[:, :, None] * self.segment_types + segment_ids[:, None, :]
        return rearrange(self.table(pairs), "b i j h -> b h i j")


class Pooler(nn.Module):
    """BERT's pooler: tanh(dense([CLS]))."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Float[Tensor, "b l d"]) -> Float[Tensor, "b d"]:
        return torch.tanh(self.dense(hidden[:, 0]))


class EncoderPreTrainedModel(PreTrainedModel):
    """The base of our encoders, with transformers' own initialisation.

    A module with a method `fresh_weight` starts with the weight that the method returns.
    """

    config_class = EncoderConfig
    base_model_prefix = "base"
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        fresh_weight = getattr(module, "fresh_weight", None)
        if fresh_weight is not None:  # this `copy_` does not change weights from a checkpoint
            initialization.copy_(module.get_parameter("weight"), fresh_weight())


class EncoderModel(EncoderPreTrainedModel):
    """The encoder: variant, LayerNorm, dropout, blocks, and BERT's pooler.

    With `norm_first` a LayerNorm follows the last block.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.variant = build_variant(config)

        in_scores = segments_enter(config) == "scores"
        heads = config.num_attention_heads
        self.segment_scores = SegmentScores(config.type_vocab_size, heads) if in_scores else None

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
        """Return hidden states (b, l, d) and pooled output (b, d).

        Args:
            input_ids: The tokens.
            attention_mask: 1 for real tokens, 0 for padding; None if nothing is padded, which is
                faster.
            token_type_ids: The segments; by default all tokens are of the first.
            output_hidden_states: Whether to return the hidden states of every block, too.

        Returns:
            The output that models of transformers return.

        Raises:
            ValueError: as `hidden_states`.
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
        """Return the input of the first block, and the output of each block.

        Args:
            input_ids: The tokens.
            attention_mask: 1 for real tokens, 0 for padding; None if nothing is padded.
            token_type_ids: The segments; by default all tokens are of the first.
            last_rows: How many positions of the last block are computed; by default all.

        Returns:
            States (b, l, d), of the last block (b, last_rows, d).

        Raises:
            ValueError: ids are not integers of shape (b, l), or l is larger than the number of
                positions.
        """
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        self._check_ids(input_ids, segments)

        inputs: EncoderInput = self.variant(input_ids, segments)

        # The result gets the precision of the weights. Under autocast a product returns bf16, and
        # LayerNorm on a CPU keeps this type. Then the residual stream of this arm alone would be
        # bf16.
        kind = self.pooler.dense.weight.dtype
        hidden = self.dropout(self.norm(inputs.hidden.to(kind)))
        infused = None if inputs.infused is None else self.norm(inputs.infused.to(kind))
        if self.project is not None:
            hidden = self.project(hidden).to(kind)
            infused = None if infused is None else self.project(infused).to(kind)

        states = [hidden]
        mask = None if attention_mask is None else attention_mask.bool()
        last_block = len(self.blocks) - 1
        changes = self._block_scores(inputs, segments, infused)
        for index, (block, block_changes) in enumerate(zip(self.blocks, changes, strict=True)):
            rows = last_rows if index == last_block else None
            states.append(block(states[-1], block_changes, mask, rows))

        if self.final_norm is not None:
            states[-1] = self.final_norm(states[-1])
        return states

    def _check_ids(self, input_ids: Tensor, segments: Tensor) -> None:
        """Refuse ids that are no batch of sequences that the encoder can read."""
        is_batch = input_ids.ndim == 2 and not input_ids.is_floating_point()
        if not is_batch or segments.shape != input_ids.shape:
            expected = "token ids must be integers of shape (batch, length), and segments alike"
            actual = f"{input_ids.dtype} of shape {tuple(input_ids.shape)}"
            actual += f", with segments {tuple(segments.shape)}"
            raise ValueError(f"{expected}, not {actual}")
        length = input_ids.shape[1]
        positions = self.config.max_position_embeddings
        if length > positions:
            fault = f"sequences of {length} tokens"
            raise ValueError(f"{fault}, but the encoder has {positions} positions")

    def _block_scores(
        self, inputs: EncoderInput, segments: Tensor, infused: Float[Tensor, "#b l d"] | None
    ) -> list[BlockScores]:
        """Return the changes of each block's scores by the variant and by segments."""
        biases = inputs.biases()
        if self.segment_scores is not None:
            added = self.segment_scores(segments)
            biases = [added if bias is None else bias + added for bias in biases]
        one_per_block = isinstance(inputs.bias, Sequence)
        if not one_per_block:
            biases = biases * len(self.blocks)
        rotates = inputs.rotate is not None
        adds_scores = inputs.scores is not None
        changes: list[BlockScores] = []
        for index, bias in enumerate(biases):
            rotate = partial(inputs.rotate, index) if inputs.rotate else None
            scores = partial(inputs.scores, index) if inputs.scores else None
            all_queries = one_per_block or rotates or adds_scores
            changes.append(BlockScores(bias, rotate, scores, all_queries, infused))
        return changes
