"""What an arm costs: parameters as they are, operations as counted by hand, memory as the machine sees it."""

import pytest
import torch

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.cost import budget
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants import VARIANTS

LENGTH = 16
TABLES = ("words", "positions", "segments")


def config(variant="add", **changes):
    sizes = {"vocab_size": 65, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    usual = sizes | {"intermediate_size": 32, "max_position_embeddings": LENGTH}
    return EncoderConfig(**usual | changes, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_the_encoder(variant):
    counted = budget(config(variant), LENGTH)
    sizes = {name: p.numel() for name, p in EncoderModel(config(variant)).named_parameters()}
    base = {name: p.numel() for name, p in EncoderModel(config()).named_parameters()}
    tables = [n for name, n in sizes.items() if name.split(".")[:2] in (["variant", t] for t in TABLES)]
    assert counted["parameters"] == sum(sizes.values())
    assert counted["non_embedding_parameters"] == sum(sizes.values()) - sum(tables)
    assert counted["added_over_add"] == sum(sizes.values()) - sum(base.values())


@pytest.mark.parametrize(("variant", "mixing"), [("add", 0), ("none", 0), ("concat", 2 * 48 * 16)])
def test_operations_are_those_of_the_matrix_products(variant, mixing):
    d, inner, length, layers = 16, 32, LENGTH, 2
    block = 2 * d * 3 * d + 2 * d * d + 2 * 2 * d * inner + 2 * 2 * length * d
    pooler = 2 * d * d // length  # forward alone: masked-LM pretraining does not use it
    counted = budget(config(variant, num_hidden_layers=layers), length)
    assert counted["flops_per_token"] == 3 * (layers * block + mixing) + pooler
    assert counted["length"] == length


def test_a_variant_of_the_same_name_with_other_code_is_counted_anew(monkeypatch):
    sizes = []
    for variant in ("none", "add"):  # as two versions of a plugin would be
        monkeypatch.setitem(VARIANTS, "mine", VARIANTS[variant])
        sizes.append(budget(config("mine"), LENGTH)["parameters"])
    assert sizes == [budget(config(variant), LENGTH)["parameters"] for variant in ("none", "add")]
    assert sizes[0] < sizes[1]


def test_counting_makes_no_numbers():
    state = torch.get_rng_state()
    wide = config(hidden_size=16_384, intermediate_size=65_536, num_hidden_layers=2, vocab_size=100_000)
    assert budget(wide, 8)["parameters"] > 5e9
    assert torch.equal(torch.get_rng_state(), state)
