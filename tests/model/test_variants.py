"""The contract over all of VARIANTS, what else holds for every variant, and what each costs."""

from pathlib import Path
from typing import Any

import pytest
from option_sets import ARMS, OPTIONS
from tiny_models import (
    NARROW,
    POSITIONS,
    encoder_config,
    random_model,
    tokens,
)
from transformers import AutoModelForMaskedLM

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.cost import budget
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.variants import VARIANTS
from glue_bench.testing import CLAUSES, check_clause, check_contract

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
@pytest.mark.parametrize("clause", [clause for clause in CLAUSES if clause != "gradients"])  # which follows
def test_every_variant_meets_the_contract(clause: str, variant: str) -> None:
    check_clause(clause, variant)


LAST = [(variant, sets[-1]) for variant, sets in OPTIONS.items()]


@pytest.mark.parametrize(
    ("variant", "options"),
    [pytest.param(*arm, marks=() if arm in LAST else pytest.mark.slow) for arm in ARMS if arm[1]],
    ids=str,
)
def test_options_keep_the_contract(variant: str, options: dict[str, Any]) -> None:
    check_contract(variant, options)


@pytest.mark.parametrize(("variant", "options"), ARMS, ids=str)
def test_every_parameter_learns_under_every_option(variant: str, options: dict[str, Any]) -> None:
    check_clause("gradients", variant, options)


def without_dropout(variant: str, **sizes: Any) -> EncoderConfig:
    return encoder_config(variant, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)


def test_which_rows_of_the_untied_table_learn() -> None:
    """Row 0 makes theta_1, one constant for the whole row of scores of [CLS], which softmax ignores.

    So p_theta1 does nothing in TUPE-A, by equation 9 as by the official code. Row 1 (theta_2) and the rows of
    positions 1 to l - 1 learn; rows past the sequence do not.
    """
    model = random_model(EncoderForMaskedLM, without_dropout("untied")).double()
    model(tokens(3, 9), labels=tokens(3, 9)).loss.backward()
    size = model.base.variant.positions.weight.grad.abs().amax(dim=1)
    assert size[0] < 1e-12
    assert (size[1:10] > 1e-6).all()
    assert not size[10:].any()


@every_variant
@pytest.mark.parametrize("sizes", [{}, {"embedding_size": NARROW}], ids=["wide", "narrow"])
def test_decoder_is_tied_to_the_words(variant: str, sizes: dict[str, int], tmp_path: Path) -> None:
    model = EncoderForMaskedLM(encoder_config(variant, **sizes))
    model.save_pretrained(tmp_path)
    for candidate in (model, AutoModelForMaskedLM.from_pretrained(tmp_path)):
        assert candidate.decoder.weight is candidate.base.variant.words.weight


TABLES = ("words", "positions", "segments")


def config(variant="add", **changes):
    sizes = {"vocab_size": 65, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    usual = sizes | {"intermediate_size": 32, "max_position_embeddings": POSITIONS}
    return EncoderConfig(**usual | changes, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_the_encoder(variant):
    counted = budget(config(variant), POSITIONS)
    sizes = {name: p.numel() for name, p in EncoderModel(config(variant)).named_parameters()}
    base = {name: p.numel() for name, p in EncoderModel(config()).named_parameters()}
    tables = [n for name, n in sizes.items() if name.split(".")[:2] in (["variant", t] for t in TABLES)]
    assert counted["parameters"] == sum(sizes.values())
    assert counted["non_embedding_parameters"] == sum(sizes.values()) - sum(tables)
    assert counted["added_over_add"] == sum(sizes.values()) - sum(base.values())


@pytest.mark.parametrize(("variant", "mixing"), [("add", 0), ("none", 0), ("concat", 2 * 48 * 16)])
def test_operations_are_those_of_the_matrix_products(variant, mixing):
    d, inner, length, layers = 16, 32, POSITIONS, 2
    block = 2 * d * 3 * d + 2 * d * d + 2 * 2 * d * inner + 2 * 2 * length * d
    pooler = 2 * d * d // length  # forward alone: masked-LM pretraining does not use it
    counted = budget(config(variant, num_hidden_layers=layers), length)
    assert counted["flops_per_token"] == 3 * (layers * block + mixing) + pooler
    assert counted["length"] == length


def test_a_variant_of_the_same_name_with_other_code_is_counted_anew(monkeypatch):
    sizes = []
    for variant in ("none", "add"):  # as two versions of a plugin would be
        monkeypatch.setitem(VARIANTS, "mine", VARIANTS[variant])
        sizes.append(budget(config("mine"), POSITIONS)["parameters"])
    assert sizes == [budget(config(variant), POSITIONS)["parameters"] for variant in ("none", "add")]
    assert sizes[0] < sizes[1]
