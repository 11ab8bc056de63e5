"""What an arm starts from, and the models that are made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from transformers import set_seed

from glue_bench.errors import UserError
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh, on_meta, unfilled
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification


@dataclass(frozen=True)
class Start:
    """A configuration, and weights of EncoderModel (none: all fresh; without a pooler where a checkpoint has none).

    `head` is that of EncoderForMaskedLM, where the checkpoint has a whole one that fits. `exact` and `variance_kept`
    are a graft's (`Grafted`); without one nothing is lost. `name` is what the user called the checkpoint.
    """

    config: EncoderConfig
    weights: dict[str, Tensor]
    origin: str
    exact: bool = True
    variance_kept: Mapping[str, float] = field(default_factory=dict)
    head: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = ""

    @property
    def positions(self) -> int | None:
        """The longest text in tokens that the encoder takes; None where nothing bounds it."""
        return self.config.max_position_embeddings

    @property
    def segment_types(self) -> int:
        """How many segments the encoder tells apart; 0 where it is given none."""
        return self.config.type_vocab_size

    def classifier(self, labels: Sequence[str], seed: int) -> nn.Module:
        """The encoder under a fresh head with an output a label. Equal seeds give equal heads, whatever the variant."""
        set_seed(seed)
        config = EncoderConfig.from_dict(self.config.to_dict() | label_settings(labels))
        kind = EncoderForSequenceClassification
        model = unfilled(kind, config) if self.weights else kind(config)
        model.base.load_state_dict(self.weights, strict=False)
        has_pooler = "pooler.dense.weight" in self.weights
        # A variant's own parameters draw random numbers too; from here on all arms draw the same ones.
        set_seed(seed)
        for module in [model.classifier] if has_pooler else [model.base.pooler.dense, model.classifier]:
            model._init_weights(module)
        return model


def label_settings(labels: Sequence[str]) -> dict[str, Any]:
    """How transformers' configurations have the labels of a classifier."""
    names = dict(enumerate(labels))
    return {"num_labels": len(names), "id2label": names, "label2id": {name: index for index, name in names.items()}}


def encoder(start: Start) -> EncoderModel:
    """The encoder of a start; what it has no weights for, such as a pooler, is fresh."""
    model = fresh(EncoderModel, start.config)
    model.load_state_dict(start.weights, strict=False)
    return model


def masked_lm(start: Start) -> EncoderForMaskedLM:
    """The encoder with its masked-LM head; raises UserError where the start has none."""
    if not start.head:
        said = "has no masked-LM head, or not all of it; give one that was saved with its head"
        raise UserError(f"checkpoint '{start.name}' {said}")
    model = fresh(EncoderForMaskedLM, start.config)
    state = {f"base.{name}": tensor for name, tensor in start.weights.items()} | dict(start.head)
    model.load_state_dict(state, strict=False)
    return model


def fitting_head(config: EncoderConfig, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a masked-LM head if it is whole and of this encoder's shapes, else none."""
    if not head:
        return {}
    expected = on_meta(EncoderForMaskedLM, config).state_dict()
    names = [name for name in expected if not name.startswith(("base.", "decoder.weight"))]
    found = {name: head[name] for name in names if name in head}
    fits = len(found) == len(names) and all(found[name].shape == expected[name].shape for name in names)
    return found if fits else {}
