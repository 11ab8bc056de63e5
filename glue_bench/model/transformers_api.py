"""The encoder as transformers models: base, sequence classification, masked language modelling."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    initialization,
)
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from glue_bench.model.build import build_variant, segments_enter
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.cpu.attention import attend, reads_in_place
from glue_bench.model.cpu.dropout import Dropout
from glue_bench.model.encoder import Attention, Block, Kernel, attend_by_torch, padding_scores, together
from glue_bench.model.variants.base import EncoderInput, check_positions
from glue_bench.model.variants.segments import SegmentScores

# Arguments of transformers' encoders that are here only to be refused, where they ask for something.
_NOT_HERE = ("position_ids", "inputs_embeds", "output_attentions")


class EncoderPreTrainedModel(PreTrainedModel):
    """Weight initialisation is transformers' own: N(0, initializer_range), biases 0, LayerNorm 1 and 0.

    A module that has a method `fresh_weight` starts with the weight that it returns.

    Every forward takes `output_hidden_states` and `return_dict` (False: a tuple), whose defaults are those of the
    configuration, as transformers' models do. `position_ids`, `inputs_embeds` and `output_attentions` raise ValueError
    unless they are None or False; an argument that no encoder knows raises TypeError.
    """

    config_class = EncoderConfig
    base_model_prefix = "base"
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        fresh_weight = getattr(module, "fresh_weight", None)
        if fresh_weight is not None:  # what a checkpoint has loaded is left alone by this `copy_`
            initialization.copy_(module.get_parameter("weight"), fresh_weight())

    def _wants_states(self, asked: bool | None, others: Mapping[str, Any]) -> bool:
        """Whether hidden states are to be returned. Refuses `others`: nothing that was asked for is left undone."""
        for name, value in {"output_attentions": self.config.output_attentions, **others}.items():
            if name not in _NOT_HERE:
                raise TypeError(f"{type(self).__name__}.forward() got an unexpected keyword argument '{name}'")
            if value is not None and value is not False:
                raise ValueError(f"{type(self).__name__} does not support {name}")
        return bool(self.config.output_hidden_states if asked is None else asked)


class Pooler(nn.Module):
    """tanh(dense([CLS])), as BERT's."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Float[Tensor, "b l d"]) -> Float[Tensor, "b d"]:
        return torch.tanh(self.dense(hidden[:, 0]))


class EncoderModel(EncoderPreTrainedModel):
    """Variant, LayerNorm, dropout, blocks, and BERT's pooler."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.variant = build_variant(config)
        in_scores = segments_enter(config) == "scores"
        self.segment_scores = SegmentScores(config.type_vocab_size, config.num_attention_heads) if in_scores else None
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(float(config.hidden_dropout_prob))
        self.drops_attention = config.attention_probs_dropout_prob > 0
        narrow = config.embedding_size != config.hidden_size
        self.project = nn.Linear(config.embedding_size, config.hidden_size) if narrow else None
        score_terms = self.variant.score_terms
        self.blocks = nn.ModuleList(_block(config, score_terms) for _ in range(config.num_hidden_layers))
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
        output_hidden_states: bool | None = None,
        **others: Any,
    ) -> BaseModelOutputWithPooling:
        """Hidden states (b, l, d) and pooled output (b, d).

        `attention_mask` is 1 on real tokens; leave it out where nothing is padded, attention is faster then.

        Raises:
            ValueError: ids that are not integers of that shape, more of them than there are positions, or an argument
                of transformers' encoders that is not supported.
            TypeError: an unknown argument.
        """
        wants_states = self._wants_states(output_hidden_states, others)
        states = self.hidden_states(input_ids, attention_mask, token_type_ids)
        return BaseModelOutputWithPooling(
            last_hidden_state=states[-1],
            pooler_output=self.pooler(states[-1]),
            hidden_states=tuple(states) if wants_states else None,
        )

    def hidden_states(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        start: int = 0,
        last_rows: int | None = None,
    ) -> list[Float[Tensor, "b _ d"]]:
        """What enters the first block, and the output of each block. `start` is that of `Variant.forward`.

        Of the last block only the first `last_rows` positions are computed, if that is given.
        """
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        _check_ids(input_ids, segments, start, self.config.max_position_embeddings)
        given = self.variant(input_ids, segments, *([start] if start else []))
        # In the precision of the weights: under autocast a product returns bf16, and would leave the residual stream of
        # this arm alone in it, as LayerNorm keeps what it is given on a CPU.
        kind = self.norm.weight.dtype
        hidden = self.dropout(self.norm(given.hidden.to(kind)))
        states = [hidden if self.project is None else self.project(hidden).to(kind)]
        kernel, biases, padding = self._attention_parts(given, segments, attention_mask, hidden)
        rotate_in = given.rotate or (_unturned if isinstance(given.bias, Sequence) else None)
        for index, (block, bias) in enumerate(zip(self.blocks, biases, strict=True)):
            rotate = None if rotate_in is None else partial(rotate_in, index)
            scores = None if given.scores is None else partial(given.scores, index)
            rows = last_rows if index == len(self.blocks) - 1 else None
            states.append(block(states[-1], kernel, bias, padding, rotate, scores, rows))
        return states

    def pooled(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        start: int = 0,
    ) -> Float[Tensor, "b d"]:
        """The pooled output alone: of the last block only [CLS] is computed, the one position that is read."""
        return self.pooler(self.hidden_states(input_ids, attention_mask, token_type_ids, start, last_rows=1)[-1])

    def _attention_parts(
        self, given: EncoderInput, segments: Int[Tensor, "b l"], attention_mask: Tensor | None, hidden: Tensor
    ) -> tuple[Kernel, Sequence[Tensor | None], Tensor | None]:
        """The kernel of all blocks, the bias of each, and padding where the kernel takes it apart.

        Attention on a CPU is ours where torch's would be slow: where there is dropout, or a bias that learns.
        """
        own = isinstance(given.bias, Sequence)
        biases = given.biases()
        if self.segment_scores is not None:
            added = self.segment_scores(segments)
            biases = [added if bias is None else bias + added for bias in biases]
        device = hidden.device.type
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        kind = torch.get_autocast_dtype(device) if autocast else hidden.dtype
        padding = padding_scores(None if attention_mask is None else attention_mask.bool(), kind)

        drops = self.training and self.drops_attention
        learns = torch.is_grad_enabled() and given.scores is not None
        learns = learns or any(bias is not None and bias.requires_grad for bias in biases)
        kernel = attend if (drops or learns) and reads_in_place(hidden) else attend_by_torch
        if kernel is attend_by_torch:  # It takes one mask, which is made once for all blocks that share it.
            biases, padding = [together(bias, padding, kind) for bias in biases], None
        return kernel, biases if own else biases * len(self.blocks), padding


class EncoderForSequenceClassification(EncoderPreTrainedModel):
    """Linear classifier over the pooled [CLS], with dropout before it."""

    accepts_loss_kwargs = True  # Trainer does not divide the loss by the batches that it accumulates

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = int(config.num_labels or 1)
        self.base = EncoderModel(config)
        rate = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = Dropout(float(rate))
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **others: Any,
    ) -> SequenceClassifierOutput:
        """Logits (b, num_labels); with labels also the loss: cross-entropy, or squared error for one label.

        The loss is a mean over the labels, or their sum divided by `num_items_in_batch`, with which Trainer says how
        many labels there are in all batches whose gradients are accumulated. Raises as EncoderModel's forward.
        """
        inputs, states = (input_ids, attention_mask, token_type_ids), None
        if self._wants_states(output_hidden_states, others):
            states = tuple(self.base.hidden_states(*inputs))
        pooled = self.base.pooled(*inputs) if states is None else self.base.pooler(states[-1])
        logits = self.classifier(self.dropout(pooled))
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=states)


class EncoderForMaskedLM(EncoderPreTrainedModel):
    """BERT's masked-LM head: dense, activation, LayerNorm, then the tied token table with a bias.

    The dense layer maps to the width of that table, which may be less than the hidden size.
    """

    _tied_weights_keys = {"decoder.weight": "base.variant.words.weight"}  # noqa: RUF012
    accepts_loss_kwargs = True  # Trainer does not divide the loss by the batches that it accumulates

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.base = EncoderModel(config)
        width = self.base.variant.words.embedding_dim
        self.dense = nn.Linear(config.hidden_size, width)
        self.act = ACT2FN[config.head_act or config.hidden_act]
        # Not `norm`: where a name exists with and without the prefix `base.`, transformers loads one for the other.
        self.head_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(width, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.decoder

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.decoder = value  # type: ignore[assignment]

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        labels: Int[Tensor, "b l"] | None = None,
        places: Int[Tensor, " n"] | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **others: Any,
    ) -> MaskedLMOutput:
        """Logits (b, l, vocabulary); with labels (-100 where nothing was masked) also the mean cross-entropy.

        With `places`, flat indices into (b, l), the head runs there alone: logits (n, vocabulary), no loss.
        `num_items_in_batch` is that of EncoderForSequenceClassification. Raises as EncoderModel's forward.
        """
        wants_states = self._wants_states(output_hidden_states, others)
        states = self.base.hidden_states(input_ids, attention_mask, token_type_ids)
        kept = tuple(states) if wants_states else None
        if places is not None:
            return MaskedLMOutput(logits=self.predict(states[-1].flatten(0, 1)[places]), hidden_states=kept)
        logits = self.predict(states[-1])
        loss = None if labels is None else _cross_entropy(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=kept)

    def predict(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n vocab"]:
        """Logits of what stands at each of some hidden states."""
        return self.decoder(self.head_norm(self.act(self.dense(hidden))))


def classification_loss(
    logits: Float[Tensor, "b c"], labels: Tensor, num_items: Tensor | int | None = None
) -> Float[Tensor, ""]:
    """Cross-entropy over classes; squared error where there is one output (STS-B). `num_items` as for the models."""
    if logits.shape[1] > 1:
        return _cross_entropy(logits, labels, num_items)
    scores = logits[:, 0].float()
    expected = labels.float().view_as(scores)
    return F.mse_loss(scores, expected) if num_items is None else (scores - expected).square().sum() / num_items


def _cross_entropy(
    logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"], num_items: Tensor | int | None
) -> Float[Tensor, ""]:
    if num_items is None:
        return F.cross_entropy(logits.float(), labels)
    return F.cross_entropy(logits.float(), labels, reduction="sum") / num_items


def _check_ids(token_ids: Tensor, segment_ids: Tensor, start: int, positions: int) -> None:
    """Refuse what would broadcast, or fail far from here; the annotated shapes are only checked in the tests."""
    if token_ids.ndim != 2 or token_ids.is_floating_point():
        found = f"{token_ids.dtype} of shape {tuple(token_ids.shape)}"
        raise ValueError(f"token ids must be integers of shape (batch, length), not {found}")
    if segment_ids.shape != token_ids.shape:
        shapes = f"{tuple(segment_ids.shape)}, token ids {tuple(token_ids.shape)}"
        raise ValueError(f"segment ids have shape {shapes}; they must be the same")
    check_positions(token_ids.shape[1], start, positions)


def _unturned(_: int, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """For blocks with biases of their own: they compute all queries, which keeps the last bits of earlier trainings."""
    return queries, keys


def _block(config: EncoderConfig, score_terms: int) -> Block:
    attention = Attention(
        hidden_size=config.hidden_size,
        num_heads=config.num_attention_heads,
        score_terms=score_terms,
        dropout=float(config.attention_probs_dropout_prob),  # many files say 0
    )
    return Block(
        attention=attention,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        act=config.hidden_act,
        dropout=float(config.hidden_dropout_prob),
        eps=config.layer_norm_eps,
    )


AutoModel.register(EncoderConfig, EncoderModel, exist_ok=True)
AutoModelForSequenceClassification.register(EncoderConfig, EncoderForSequenceClassification, exist_ok=True)
AutoModelForMaskedLM.register(EncoderConfig, EncoderForMaskedLM, exist_ok=True)
