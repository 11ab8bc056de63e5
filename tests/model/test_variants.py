"""The contract over all of VARIANTS, what each costs, where segments enter, and where a sequence
may start.
"""

import pytest
import torch
from helpers.tiny_models import (
    ARM_CASES,
    ARMS,
    HIDDEN,
    POSITIONS,
    encoder_config,
    max_error,
    random_model,
    segments,
    states,
    tokens,
)

from glue_bench.errors import UserError
from glue_bench.model.checks import budget
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import SEGMENT_PLACES
from glue_bench.testing import CLAUSES, check_contract

every_variant = pytest.mark.parametrize("variant", VARIANTS)


OTHER_CLAUSES = [clause for clause in CLAUSES if clause != "gradients"]
"""All clauses but `gradients`, which has a test of its own for all options."""


@every_variant
@pytest.mark.parametrize("clause", OTHER_CLAUSES)
def test_every_variant_meets_the_contract(clause, variant):
    check_contract(variant, clauses=[clause])


@pytest.mark.parametrize(("variant", "options"), [case for case in ARM_CASES if case.values[1]])
def test_options_keep_the_contract(variant, options):
    check_contract(variant, options, OTHER_CLAUSES)


@pytest.mark.usefixtures("checked_shapes")
@pytest.mark.parametrize(("variant", "options"), ARMS)
def test_every_parameter_learns_under_every_option(variant, options):
    check_contract(variant, options, ["gradients"])


@every_variant
def test_parameters_count_the_encoder(variant):
    counted = budget(encoder_config(variant), POSITIONS)
    sizes = {
        name: p.numel() for name, p in EncoderModel(encoder_config(variant)).named_parameters()
    }
    base = sum(p.numel() for p in EncoderModel(encoder_config()).parameters())
    tables = [f"variant.{table}." for table in ("words", "positions", "segments")]
    assert counted["parameters"] == sum(sizes.values())
    expected = sum(sizes.values()) - base
    assert counted["added_over_add"] == expected
    inside = [size for name, size in sizes.items() if not name.startswith(tuple(tables))]
    assert counted["non_embedding_parameters"] == sum(inside)


@pytest.mark.parametrize(
    ("variant", "mixing"), [("add", 0), ("none", 0), ("concat", 2 * 3 * HIDDEN * HIDDEN)]
)
def test_operations_count_the_matrix_products(variant, mixing):
    d, inner, length, layers = HIDDEN, 40, POSITIONS, 2
    block = 2 * d * 3 * d + 2 * d * d + 2 * 2 * d * inner + 2 * 2 * length * d
    pooler = 2 * d * d // length  # only forward: masked-LM pretraining does not use it
    assert (
        budget(encoder_config(variant), length)["flops_per_token"]
        == 3 * (layers * block + mixing) + pooler
    )


def test_a_variant_of_the_same_name_with_other_code_is_counted_anew(monkeypatch):
    sizes = []
    for variant in ("none", "add"):  # like two versions of a plugin
        monkeypatch.setitem(VARIANTS, "mine", VARIANTS[variant])
        sizes.append(budget(encoder_config("mine"), POSITIONS)["parameters"])
    assert sizes[0] < sizes[1]


def with_segments(variant: str, place: str) -> EncoderModel:
    return random_model(EncoderModel, encoder_config(variant, variant_options={"segments": place}))


@every_variant
@pytest.mark.parametrize("place", SEGMENT_PLACES)
def test_segments_matter_unless_they_enter_nowhere(variant, place):
    model = with_segments(variant, place)
    ids = tokens()
    segmented = states(model, ids, None, segments(ids))
    change = max_error(segmented, states(model, ids))
    assert change == 0 if place == "none" else change > 1e-2


def test_scores_hold_a_scalar_a_head_and_pair():
    model = with_segments("add", "scores")
    scores = model.segment_scores(torch.tensor([[0, 1]]))
    table = model.segment_scores.table.weight
    assert torch.equal(scores[0, :, 0, 1], table[1])
    assert torch.equal(scores[0, :, 1, 0], table[2])


START, LENGTH = 5, 11
# The tables of absolute positions, and their rows that stay: that of [CLS], and in TUPE's p_theta1
# before it.
TABLES = {
    **dict.fromkeys(
        (
            "add",
            "add-relative",
            "multiply",
            "gate",
            "concat",
            "concat-split",
            "concat-heads",
            "position-infused",
        ),
        (["positions"], 1),
    ),
    **dict.fromkeys(
        ("untied", "untied-tie-cls", "untied-relative", "four-term"), (["positions"], 2)
    ),
    "diet-abs": (["queries.0", "keys.0"], 1),
}


@pytest.mark.parametrize("variant", TABLES)
def test_an_absolute_variant_reads_the_rows_from_there_on(variant):
    model = random_model(EncoderModel, encoder_config(variant))
    ids = tokens(3, LENGTH)
    names, fixed = TABLES[variant]
    still = states(model, ids)
    with model.variant.starting_at(START):
        from_there = states(model, ids)
    for name in names:
        table = model.get_submodule(f"variant.{name}").weight.data
        table.copy_(
            torch.cat([table[:fixed], table[START + fixed :], table[fixed : START + fixed]])
        )
    assert max_error(from_there, states(model, ids)) == 0
    assert max_error(from_there, still) > 1e-2


@pytest.mark.parametrize("variant", TABLES)
def test_the_start_is_0_again_afterwards(variant):
    model = random_model(EncoderModel, encoder_config(variant))
    ids = tokens(3, LENGTH)
    before = states(model, ids)
    with model.variant.starting_at(START):
        pass
    assert max_error(states(model, ids), before) == 0
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert frozen == []


@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - TABLES.keys() - {"add-sinusoidal"}))
def test_where_only_distances_count_the_start_changes_nothing(variant):
    model = random_model(EncoderModel, encoder_config(variant))
    ids = tokens(3, LENGTH)
    before = states(model, ids)
    with model.variant.starting_at(START):
        assert max_error(states(model, ids), before) == 0


def test_fixed_sinusoids_start_at_the_given_position():
    variant = random_model(EncoderModel, encoder_config("add-sinusoidal")).variant
    ids = tokens(3, POSITIONS)
    still = variant(ids, segments(ids)).hidden - variant.words_and_segments(ids, segments(ids))
    short = ids[:, :LENGTH]
    with variant.starting_at(START):
        moved = variant(short, segments(short)).hidden - variant.words_and_segments(
            short, segments(short)
        )
    expected = torch.cat([still[:, :1], still[:, START + 1 : START + LENGTH]], dim=1)
    assert max_error([moved], [expected]) < 1e-6


@pytest.mark.parametrize("variant", VARIANTS)
def test_positions_that_do_not_exist_are_refused(variant):
    model = random_model(EncoderModel, encoder_config(variant))
    ids = tokens(3, POSITIONS + 1)
    with pytest.raises(
        ValueError, match=f"{POSITIONS + 1} tokens, but the encoder has {POSITIONS} positions"
    ):
        model.hidden_states(ids, None, segments(ids))


@pytest.mark.parametrize(
    ("variant", "options", "types", "message"),
    [
        (
            "concat-split",
            {"position_share": 0.01},
            2,
            "24 for tokens and 0 for positions; neither may be 0, so give a",
        ),
        ("concat-split", {"position_share": 0.99}, 2, r"a share from 0\.04167 to 0\.9583"),
        (
            "add",
            {"segments": "scores"},
            0,
            "segments cannot enter the scores, the encoder has none",
        ),
        (
            "add",
            {"segments": "scores"},
            1,
            "segments cannot enter the scores, the encoder has only one",
        ),
    ],
)
def test_options_that_the_encoders_sizes_do_not_permit_are_refused(
    variant, options, types, message
):
    with pytest.raises(UserError, match=message):
        EncoderModel(encoder_config(variant, variant_options=options, type_vocab_size=types))
