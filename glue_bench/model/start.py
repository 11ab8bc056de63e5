"""The start of an encoder: a configuration and weights, and the models made of them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import set_seed

from glue_bench.errors import UserError
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import GRAFT_SEED, build_unfilled, fresh, on_meta
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification


@dataclass(frozen=True)
class Start:
    """A configuration, and weights of EncoderModel.

    Attributes:
        config: The configuration.
        weights: The weights; if there are none, all are fresh. A checkpoint may lack the pooler's
            weights.
        origin: The origin of the weights.
        exact: As in `Grafted`.
        variance_kept: As in `Grafted`.
        head: The weights of EncoderForMaskedLM's head, if the checkpoint has a whole head that
            fits.
        name: The name by which the user calls the checkpoint.
        has_unused_head: Whether the checkpoint has a trained classification head.
    """

    config: EncoderConfig
    weights: dict[str, Tensor]
    origin: str
    exact: bool = True
    variance_kept: Mapping[str, float] = field(default_factory=dict)
    head: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = ""
    has_unused_head: bool = False

    @cached_property
    def digest(self) -> str | None:
        """The `weights_digest` of the weights, None if all are fresh."""
        return weights_digest(self.weights) if self.weights else None

    @property
    def positions(self) -> int | None:
        """The longest text in tokens that the encoder takes; None if there is no limit."""
        return self.config.max_position_embeddings

    @property
    def segment_types(self) -> int:
        """The number of segments that the encoder tells apart; 0 if it is given no segments."""
        return self.config.type_vocab_size

    @property
    def hidden_size(self) -> int:
        """The width of the encoder."""
        return self.config.hidden_size

    @property
    def reads_padding(self) -> bool:
        """Whether padding changes the outputs, so that all texts are padded to one length."""
        return False

    def classifier(self, labels: Sequence[str], seed: int) -> nn.Module:
        """Build the encoder under a fresh head with one output per label.

        Equal seeds give equal heads, whatever the variant.
        """
        set_seed(seed)
        config = EncoderConfig.from_dict(self.config.to_dict() | label_settings(labels))
        kind = EncoderForSequenceClassification
        model = build_unfilled(kind, config) if self.weights else kind(config)
        absent = model.base.load_state_dict(self.weights, strict=False).missing_keys
        if self.weights:
            self._check_absent(absent)
        # The parameters of a variant draw random numbers, too. From here on all arms draw the same
        # numbers.
        set_seed(seed)
        if "pooler.dense.weight" not in self.weights:
            model._init_weights(model.base.pooler.dense)
        model._init_weights(model.classifier)
        return model

    def _check_absent(self, absent: Sequence[str]) -> None:
        """Refuse a start that lacks weights: the parameters would be uninitialised memory."""
        missing = [name for name in absent if not name.startswith("pooler.")]
        if missing:
            fault = f"lacks {len(missing)} weights of its encoder, such as {missing[0]}"
            raise UserError(f"checkpoint '{self.name}' {fault}")


def label_settings(labels: Sequence[str]) -> dict[str, Any]:
    """Return the settings for a classifier's labels in a configuration of transformers."""
    return {
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": {name: index for index, name in enumerate(labels)},
    }


def encoder(start: Start) -> EncoderModel:
    """Build the encoder of a start. Parts that the start has no weights for are fresh."""
    model = fresh(EncoderModel, start.config)
    model.load_state_dict(start.weights, strict=False)
    return model


def under_head(start: Start, config: EncoderConfig, seed: int = GRAFT_SEED) -> EncoderForMaskedLM:
    """Build the encoder under a masked-LM head.

    Parts that the start has no weights for are fresh, and `seed` decides them.
    """
    model = fresh(EncoderForMaskedLM, config, seed)
    weights = {f"base.{name}": tensor for name, tensor in start.weights.items()}
    weights.update(start.head)
    model.load_state_dict(weights, strict=False)
    return model


def fitting_head(config: EncoderConfig, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a masked-LM head if it is whole and has this encoder's shapes."""
    if not head:
        return {}
    fitting: dict[str, Tensor] = {}
    for name, expected in on_meta(EncoderForMaskedLM, config).state_dict().items():
        if name.startswith(("base.", "decoder.weight")):
            continue
        if name not in head or head[name].shape != expected.shape:
            return {}
        fitting[name] = head[name]
    return fitting


def with_variant(
    config: EncoderConfig, variant: str, options: Mapping[str, Any], origin: str
) -> EncoderConfig:
    """Return a copy of a configuration for another variant."""
    changes = {"variant": variant, "variant_options": dict(options), "origin": origin}
    return EncoderConfig.from_dict(config.to_dict() | changes)


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors by their names: names, types, shapes and bits.

    The device of the tensors does not count.
    """
    total = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(values.view(torch.uint8).numpy().data)
    return total.hexdigest()
