"""From an additive checkpoint to another variant: what is kept exactly, and what is lost."""

from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import (
    CONFIGS,
    HEAD_SIZE,
    encoder,
    encoder_config,
    max_error,
    pad,
    random_model,
    saved,
    segments,
    shuffled,
    states,
    tokens,
)
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.encoder import BlockScores, EncoderModel
from glue_bench.model.start import Start
from glue_bench.model.variants import VARIANTS

MODELS = {
    "bert": transformers.BertModel,
    "roberta": transformers.RobertaModel,
    "electra": transformers.ElectraModel,
    "distilbert": transformers.DistilBertModel,
}
every_family = pytest.mark.parametrize("family", CONFIGS)


def additive(folder: Path, family: str = "bert") -> Start:
    """A random additive checkpoint of a family."""
    return read_checkpoint(saved(folder, MODELS[family], family)[1])


def start_states(start: Start, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Hidden states of a padded batch with two segments."""
    ids, _ = pad(tokens(), [11, 7, 2], start.config.pad_token_id)
    model = encoder(start.config, start.weights).to(dtype)
    return states(model, ids, None, segments(ids, start.config.type_vocab_size))


@every_family
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_family_starts_every_variant(family: str, variant: str, tmp_path: Path) -> None:
    checkpoint = additive(tmp_path, family)
    before = {name: tensor.clone() for name, tensor in checkpoint.weights.items()}
    start = graft(checkpoint, variant, {})
    assert (start.config.variant, start.exact) == (variant, variant in {"add", "add-relative", "concat", "gate"})
    assert start.origin == start.config.origin == ("pretrained" if variant == "add" else "grafted")
    assert all(state.isfinite().all() for state in start_states(start))
    assert all(torch.equal(tensor, checkpoint.weights[name]) for name, tensor in before.items())


@every_family
def test_concat_computes_what_add_computes(family: str, tmp_path: Path) -> None:
    checkpoint = additive(tmp_path, family)
    start = graft(checkpoint, "concat", {})
    assert start.exact
    assert max_error(start_states(start), start_states(checkpoint)) < 1e-5
    assert max_error(start_states(start, torch.float64), start_states(checkpoint, torch.float64)) < 1e-12


@every_family
@pytest.mark.parametrize("variant", ["untied", "none"])
def test_nothing_else_changes_where_there_are_no_positions(family: str, variant: str, tmp_path: Path) -> None:
    """With p = 0 all that is left of `untied` is the wider scale, which the grown queries undo."""
    checkpoint = additive(tmp_path, family)
    assert max_error(start_states(graft(checkpoint, variant, {})), start_states(checkpoint)) > 1e-2
    checkpoint.weights["variant.positions.weight"].zero_()
    start = graft(checkpoint, variant, {})
    assert not start.exact
    assert max_error(start_states(start), start_states(checkpoint)) < 1e-5


def test_untied_graft_grows_queries_and_leaves_keys_and_values(tmp_path: Path) -> None:
    checkpoint = additive(tmp_path)
    name = "blocks.1.attention.qkv.weight"
    before, after = checkpoint.weights[name].chunk(3), graft(checkpoint, "untied", {}).weights[name].chunk(3)
    torch.testing.assert_close(after[0], before[0] * 2**0.5)
    assert torch.equal(after[1], before[1])
    assert torch.equal(after[2], before[2])


def test_untied_graft_starts_at_the_position_term_of_the_first_block(tmp_path: Path) -> None:
    """Equation 6's last term, p_i W^Q (p_j W^K)^T / sqrt(k), which is all there is without words and segments."""
    checkpoint = additive(tmp_path)
    for name, tensor in checkpoint.weights.items():
        if "words" in name or "segments" in name or name == "norm.bias" or name.endswith("qkv.bias"):
            tensor.zero_()
    table = checkpoint.weights["variant.positions.weight"]
    table /= table.std(dim=1, keepdim=True)  # so that the share of positions in the sum is 1
    base, untied = (encoder(s.config, s.weights) for s in (checkpoint, graft(checkpoint, "untied", {})))
    with torch.no_grad():
        hidden = base.hidden_states(tokens(1, 9))[0][0]
        query, key, _ = base.blocks[0].attention.qkv(hidden).view(9, 3, 3, HEAD_SIZE).permute(1, 2, 0, 3)
        expected = query @ key.transpose(1, 2) / HEAD_SIZE**0.5
        scores = untied.variant.position_scores(9)[0, :, 1:, 1:]  # row i + 1 is position i
    assert float(expected.abs().mean()) > 0.1
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)


def test_untied_graft_shrinks_positions_to_their_share_of_the_sum(tmp_path: Path) -> None:
    """Where w = 3 p and s = 0, BERT's LayerNorm sees p as a quarter of the sum; on p alone it would see all."""
    checkpoint = additive(tmp_path)
    position = checkpoint.weights["variant.positions.weight"][0].clone()
    checkpoint.weights["variant.positions.weight"][:] = position
    checkpoint.weights["variant.words.weight"][:] = 3 * position
    checkpoint.weights["variant.segments.weight"].zero_()
    scale = graft(checkpoint, "untied", {}).weights["variant.position_norm.weight"]
    torch.testing.assert_close(scale, checkpoint.weights["norm.weight"] / 4)


@torch.no_grad()
def test_none_graft_is_a_bag_of_words(tmp_path: Path) -> None:
    start = graft(additive(tmp_path), "none", {})
    model = encoder(start.config, start.weights).double()
    assert float((model(tokens()).pooler_output - model(shuffled(tokens())).pooler_output).abs().max()) < 1e-12


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_scaled_by_the_number_of_terms(variant: str) -> None:
    terms = {"four-term": 4, "disentangled": 3}.get(variant, 2 if variant.startswith("untied") else 1)
    scales = {block.attention.scale for block in EncoderModel(encoder_config(variant)).blocks}
    assert scales == {(terms * HEAD_SIZE) ** -0.5}


def explicit_reset(model: EncoderModel, length: int) -> Tensor:
    """TUPE-A's score bias (1, h, l, l) by equations 9 and 10, one entry at a time.

    Row 0 of the table is p_theta1, row 1 p_theta2, row i + 1 the position i.
    """
    variant = model.variant
    rows, heads = variant.position_norm(variant.positions.weight), variant.dims.num_heads
    bias = torch.empty(1, heads, length, length)
    for head in range(heads):
        part = slice(head * HEAD_SIZE, (head + 1) * HEAD_SIZE)

        def score(i: int, j: int, part: slice = part) -> Tensor:
            query = variant.position_query.weight[part] @ rows[i] + variant.position_query.bias[part]
            key = variant.position_key.weight[part] @ rows[j] + variant.position_key.bias[part]
            return (query * key).sum() / (2 * HEAD_SIZE) ** 0.5

        for i in range(length):
            for j in range(length):
                bias[0, head, i, j] = score(0, 0) if i == 0 else score(1, 1) if j == 0 else score(i + 1, j + 1)
    return bias


@torch.no_grad()
def test_untied_bias_is_equation_10() -> None:
    model = random_model(EncoderModel, encoder_config("untied"))
    ids = tokens(2, 5)
    start = model.variant(ids, segments(ids))
    expected = explicit_reset(model, 5)
    torch.testing.assert_close(start.bias, expected, atol=1e-5, rtol=1e-5)
    assert float((expected - expected.transpose(2, 3)).abs().max()) > 0.1
    assert float(expected.std()) > 0.1
    assert torch.equal(start.hidden, model.variant.words_and_segments(ids, segments(ids)))


@torch.no_grad()
def test_untied_attention_is_equation_10() -> None:
    """The first block's attention, written out: softmax(x W^Q (x W^K)^T / sqrt(2k) + bias) x W^V."""
    model = random_model(EncoderModel, encoder_config("untied"))
    hidden = states(model, tokens(1, 5))[0]
    bias = explicit_reset(model, 5)
    query, key, value = model.blocks[0].attention.qkv(hidden).view(5, 3, 3, HEAD_SIZE).permute(1, 2, 0, 3)
    weights = (query @ key.transpose(1, 2) / (2 * HEAD_SIZE) ** 0.5 + bias[0]).softmax(-1)
    mixed = model.blocks[0].attention.out((weights @ value).permute(1, 0, 2).reshape(1, 5, -1))
    found = model.blocks[0].attention(hidden, BlockScores(bias, None, None, whole=False))
    torch.testing.assert_close(found, mixed, atol=1e-5, rtol=1e-5)


def test_untied_bias_is_computed_once_for_all_blocks() -> None:
    model = random_model(EncoderModel, encoder_config("untied", num_hidden_layers=3))
    calls = []
    model.variant.position_query.register_forward_hook(lambda *_: calls.append("query"))
    model.variant.position_key.register_forward_hook(lambda *_: calls.append("key"))
    states(model, tokens())
    assert sorted(calls) == ["key", "query"]


def our_checkpoint(folder: Path, variant: str) -> Start:
    random_model(EncoderModel, encoder_config(variant, origin="adapted")).save_pretrained(folder)
    return read_checkpoint(str(folder))


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_additive_checkpoints_of_ours_are_grafted(variant: str, tmp_path: Path) -> None:
    checkpoint = our_checkpoint(tmp_path, variant)
    for other in VARIANTS.keys() - {variant}:
        if variant == "add":
            assert graft(checkpoint, other, {}).config.variant == other
        else:
            with pytest.raises(
                UserError, match=f"cannot start variant '{other}'.* which is '{variant}'.*only additive"
            ):
                graft(checkpoint, other, {})


@pytest.mark.parametrize("variant", VARIANTS)
def test_our_checkpoint_of_the_same_variant_starts_as_it_is(variant: str, tmp_path: Path) -> None:
    checkpoint = our_checkpoint(tmp_path, variant)
    start = graft(checkpoint, variant, {})
    assert (start.exact, start.origin, start.config.origin) == (True, "adapted", "adapted")
    assert max_error(start_states(start), start_states(checkpoint)) == 0
