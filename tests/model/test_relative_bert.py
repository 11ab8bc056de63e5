"""BERT checkpoints with relative positions, which transformers 5 cannot compute."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import (
    HEAD_SIZE,
    LAYERS,
    POSITIONS,
    SIZES,
    edit_settings,
    edit_weights,
    encoder,
    max_error,
    pad,
    random_model,
    segments,
    states,
    tokens,
)
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM
from transformers.models.bert import modeling_bert

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.grafts import graft

KINDS = {
    "relative_key": ("shaw", {"max_distance": POSITIONS - 1}),
    "relative_key_query": ("relative-key-query", {}),
}


def add_tables(weights: dict[str, Tensor]) -> None:
    """Give a BERT the tables of distances that transformers 4 saves."""
    generator = torch.Generator().manual_seed(3)
    for block in range(LAYERS):
        table = 0.3 * torch.randn(2 * POSITIONS - 1, HEAD_SIZE, generator=generator)
        name = f"bert.encoder.layer.{block}.attention.self.distance_embedding.weight"
        weights[name] = table


def save_relative(folder: Path, kind: str) -> BertForMaskedLM:
    """Save a random BERT with relative positions, and return it as transformers 5 has it."""
    model = random_model(BertForMaskedLM, BertConfig(**SIZES))
    model.save_pretrained(folder)
    edit_settings(folder, position_embedding_type=kind)
    edit_weights(folder, add_tables)
    return model


def attention_of_transformers_4(kind: str, tables: list[Tensor]) -> Callable[..., Any]:
    """Return BertSelfAttention's eager attention in transformers 4.57, with distance_embedding."""

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any) -> Any:
        table = tables[module.layer_idx]
        length = query.shape[2]
        distance = torch.arange(length).view(-1, 1) - torch.arange(length).view(1, -1)
        rows = table[distance + POSITIONS - 1]
        scores = query @ key.transpose(-1, -2)
        scores = scores + torch.einsum("bhld,lrd->bhlr", query, rows)
        if kind == "relative_key_query":
            scores = scores + torch.einsum("bhrd,lrd->bhlr", key, rows)
        scores = scores / math.sqrt(HEAD_SIZE)
        if mask is not None:
            scores = scores + mask
        probabilities = scores.softmax(-1)
        return (probabilities @ value).transpose(1, 2), probabilities

    return attend


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_states_equal_transformers_4(kind, tmp_path, monkeypatch):
    """Its embeddings have no absolute position, so the table of positions is zero here."""
    reference = save_relative(tmp_path, kind).eval()
    weights: dict[str, Tensor] = {}
    add_tables(weights)
    attend = attention_of_transformers_4(kind, list(weights.values()))
    monkeypatch.setattr(modeling_bert, "eager_attention_forward", attend)
    reference.set_attn_implementation("eager")
    reference.bert.embeddings.position_embeddings.weight.zero_()
    for block, layer in enumerate(reference.bert.encoder.layer):
        layer.attention.self.layer_idx = block
    ids, mask = pad(tokens(), [11, 5, 2])
    inputs = {"attention_mask": mask, "token_type_ids": segments(ids)}
    expected = reference.bert(ids, **inputs, output_hidden_states=True).hidden_states
    start = read_checkpoint(str(tmp_path))
    actual = states(encoder(start.config, start.weights), ids, mask, segments(ids))
    is_real = mask.bool()
    assert max_error([state[is_real] for state in actual], [s[is_real] for s in expected]) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_an_arm_of_its_variant_takes_the_checkpoint_as_it_is(kind, tmp_path):
    save_relative(tmp_path, kind)
    start = read_checkpoint(str(tmp_path))
    assert graft(start, *KINDS[kind]) is start
    assert start.origin == "pretrained"
    assert start.head
    assert "variant.positions.weight" not in start.weights


def drop_a_table(weights: dict[str, Tensor]) -> None:
    del weights["bert.encoder.layer.1.attention.self.distance_embedding.weight"]


def add_a_weight(weights: dict[str, Tensor]) -> None:
    weights["bert.encoder.layer.1.attention.self.gate.weight"] = torch.ones(3)


def untie(weights: dict[str, Tensor]) -> None:
    weights["cls.predictions.decoder.weight"] = torch.ones(
        SIZES["vocab_size"], SIZES["hidden_size"]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_a_table, "lacks 1 weights of its encoder, such as variant.distances.1.weight"),
        (add_a_weight, "has unknown weights, such as bert.encoder.layer.1.attention.self.gate"),
        (untie, "decoder.weight differs from the words, to which it should be tied"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, message, tmp_path):
    save_relative(tmp_path, "relative_key_query")
    edit_weights(tmp_path, change)
    with pytest.raises(UserError, match=message):
        read_checkpoint(str(tmp_path))


def test_a_decoder_is_refused(tmp_path):
    save_relative(tmp_path, "relative_key")
    edit_settings(tmp_path, is_decoder=True)
    with pytest.raises(UserError, match="has is_decoder: true; only encoders are read"):
        read_checkpoint(str(tmp_path))
