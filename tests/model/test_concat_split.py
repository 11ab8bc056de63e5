"""`concat-split`: which shares it takes, what it is a special case of, and what its graft keeps."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import (
    HIDDEN,
    NARROW,
    POSITIONS,
    VOCABULARY,
    encoder,
    encoder_config,
    max_error,
    random_model,
    saved,
    segments,
    states,
    tokens,
)
from torch import Tensor
from transformers import BertModel, DistilBertModel

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import Start, masked_lm
from glue_bench.model.variants.base import Grafted
from glue_bench.model.variants.concatenated import position_width, principal_basis, variance_kept

SHARE = 0.25
TOKENS = HIDDEN - HIDDEN // 4


def split_config(share: float = SHARE, **changes: Any) -> Any:
    return encoder_config("concat-split", variant_options={"position_share": share}, **changes)


@pytest.mark.parametrize(
    ("width", "share", "expected"), [(128, 0.5, 64), (128, 1 / 32, 4), (384, 1 / 32, 12), (160, 0.2, 32), (24, 0.2, 5)]
)
def test_positions_have_their_share(width: int, share: float, expected: int) -> None:
    """Whatever the heads are: attention mixes the dimensions of both parts."""
    assert position_width(width, share) == expected


@pytest.mark.parametrize(("share", "parts"), [(0.01, "24 for tokens and 0"), (0.99, "0 for tokens and 24")])
def test_a_share_that_leaves_a_part_nothing_is_refused(share: float, parts: str) -> None:
    message = rf"{parts} for positions; neither may be 0, so give a share from 0\.04167 to 0\.9583"
    with pytest.raises(UserError, match=f"variant 'concat-split' cannot be made .*{message}"):
        EncoderModel(split_config(share))


@pytest.mark.parametrize("share", [0, 1, 1.5])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(UserError, match="option 'position_share' of variant 'concat-split': input should be"):
        EncoderModel(split_config(share))


def test_wider_tables_give_tokens_the_width_of_add_and_are_projected_back() -> None:
    """5/4 of the dimensions with a share of 1/5, as 160 with 0.2 beside 128."""
    wide = fresh(EncoderModel, split_config(0.2, embedding_size=HIDDEN * 5 // 4))
    add = fresh(EncoderModel, encoder_config("add"))
    assert torch.equal(wide.variant.words.weight, add.variant.words.weight)
    assert wide.variant.positions.weight.shape == (POSITIONS, HIDDEN // 4)
    assert wide.project.weight.shape == (HIDDEN, HIDDEN * 5 // 4)
    assert add.project is None


def test_each_part_has_tables_of_its_width() -> None:
    variant = EncoderModel(split_config()).variant
    assert variant.words.weight.shape == (VOCABULARY, TOKENS)
    assert variant.segments.weight.shape == (2, TOKENS)
    assert variant.positions.weight.shape == (POSITIONS, HIDDEN - TOKENS)


@torch.no_grad()
def test_tokens_and_segments_are_in_one_part_and_positions_in_the_other() -> None:
    variant = random_model(EncoderModel, split_config()).variant
    ids = tokens()
    hidden = variant(ids, segments(ids)).hidden
    assert torch.equal(hidden[..., :TOKENS], variant.words(ids) + variant.segments(segments(ids)))
    assert torch.equal(hidden[..., TOKENS:], variant.positions.weight[:11].expand(3, -1, -1))


def padded_to_add(model: EncoderModel) -> EncoderModel:
    """The additive encoder whose tables are zero in the other part's dimensions."""
    weights = model.state_dict()
    share = model.variant.positions.embedding_dim
    for name, (left, right) in {"words": (0, share), "segments": (0, share), "positions": (TOKENS, 0)}.items():
        weights[f"variant.{name}.weight"] = torch.nn.functional.pad(weights[f"variant.{name}.weight"], (left, right))
    return encoder(encoder_config("add"), weights)


def test_it_is_addition_of_tables_that_do_not_overlap() -> None:
    split = random_model(EncoderModel, split_config())
    add = padded_to_add(split)
    ids = tokens()
    assert max_error(states(split, ids, None, segments(ids)), states(add, ids, None, segments(ids))) < 1e-6
    with torch.no_grad():
        add.variant.positions.weight[:, 0] = torch.arange(POSITIONS)
    assert max_error(states(split, ids), states(add, ids)) > 1e-2


@pytest.mark.parametrize(("sizes", "expected"), [({}, TOKENS), ({"embedding_size": NARROW}, 9)])
def test_the_masked_lm_head_has_the_width_of_the_tokens(sizes: dict[str, int], expected: int, tmp_path: Path) -> None:
    model = random_model(EncoderForMaskedLM, split_config(**sizes))
    assert model.dense.weight.shape == (expected, HIDDEN)
    assert model.head_norm.weight.shape == (expected,)
    assert model.decoder.weight is model.base.variant.words.weight
    model.save_pretrained(tmp_path)
    again = masked_lm(read_checkpoint(str(tmp_path))).eval()
    with torch.no_grad():
        assert torch.equal(again(tokens()).logits, model(tokens()).logits)


# The graft


def additive(folder: Path, kind: Any = BertModel, family: str = "bert") -> Start:
    return read_checkpoint(saved(folder, kind, family)[1])


def best_approximation(table: Tensor, rank: int) -> tuple[Tensor, float]:
    """The nearest table of that rank (Eckart-Young), and the share of the sum of squares it has."""
    left, sizes, right = torch.linalg.svd(table.double(), full_matrices=False)
    squares = sizes.square()
    return left[:, :rank] * sizes[:rank] @ right[:rank], float(squares[:rank].sum() / squares.sum())


@pytest.mark.parametrize("share", [0.125, 0.25, 0.5])
def test_graft_reduces_each_table_by_its_svd_and_says_what_is_kept(share: float, tmp_path: Path) -> None:
    checkpoint = additive(tmp_path)
    start = graft(checkpoint, "concat-split", {"position_share": share})
    width = round(HIDDEN * share)
    assert (start.exact, start.origin) == (False, "grafted")
    assert start.variance_kept.keys() == {"tokens", "positions", "segments"}
    for name, table, rank in [("tokens", "words", HIDDEN - width), ("positions", "positions", width)]:
        before, after = (weights[f"variant.{table}.weight"] for weights in (checkpoint.weights, start.weights))
        nearest, kept = best_approximation(before, rank)
        assert start.variance_kept[name] == pytest.approx(kept, abs=1e-6)
        assert 0.1 < kept < 1
        # Products of rows are what no choice of basis changes.
        torch.testing.assert_close((after @ after.mT).double(), nearest @ nearest.mT, atol=1e-4, rtol=1e-4)


def test_graft_reduces_segments_like_the_tokens_they_are_added_to(tmp_path: Path) -> None:
    checkpoint = additive(tmp_path)
    start = graft(checkpoint, "concat-split", {"position_share": SHARE})
    words, table = (checkpoint.weights[f"variant.{name}.weight"].double() for name in ("words", "segments"))
    inside = torch.linalg.svd(words, full_matrices=False)[2][:TOKENS]
    after = [start.weights[f"variant.{name}.weight"].double() for name in ("words", "segments")]
    expected = (words @ inside.mT) @ (table @ inside.mT).mT
    torch.testing.assert_close(after[0] @ after[1].mT, expected, atol=1e-4, rtol=1e-4)
    kept = float((table @ inside.mT).square().sum() / table.square().sum())
    assert start.variance_kept["segments"] == pytest.approx(kept, abs=1e-6)


def test_graft_finds_tables_that_are_split_already(tmp_path: Path) -> None:
    """What the rotation of the basis is for: the blocks find every coordinate where they look for it."""
    split = random_model(EncoderModel, split_config())
    add = padded_to_add(split)
    add.save_pretrained(tmp_path)
    start = graft(read_checkpoint(str(tmp_path)), "concat-split", {"position_share": SHARE})
    assert start.variance_kept == pytest.approx({"tokens": 1, "positions": 1, "segments": 1})
    ids = tokens()
    again = states(encoder(start.config, start.weights), ids, None, segments(ids))
    assert max_error(again, states(split, ids, None, segments(ids))) < 1e-4


@pytest.mark.parametrize("place", [slice(9), slice(9, None)])
def test_no_rotation_of_the_basis_is_nearer_to_the_coordinates_it_replaces(place: slice) -> None:
    table = torch.randn(40, 20)
    basis = principal_basis(table, place)
    width = basis.shape[1]
    torch.testing.assert_close(basis.mT @ basis, torch.eye(width), atol=1e-5, rtol=0)
    nearest = float((table @ basis - table[:, place]).square().sum())
    for _ in range(50):
        turn = 0.05 * torch.randn(width, width)
        rotation = torch.linalg.matrix_exp(turn - turn.mT)
        assert float((table @ basis @ rotation - table[:, place]).square().sum()) > nearest


def test_fewer_rows_than_dimensions_lose_nothing() -> None:
    table = torch.randn(5, 24)
    assert variance_kept(table, principal_basis(table, slice(12))) == pytest.approx(1, abs=1e-6)


def test_a_table_of_zeros_loses_nothing(tmp_path: Path) -> None:
    """As the segment table of released RoBERTa checkpoints."""
    checkpoint = additive(tmp_path)
    for name in ("segments", "positions"):
        checkpoint.weights[f"variant.{name}.weight"].zero_()
    kept = graft(checkpoint, "concat-split", {}).variance_kept
    assert (kept["segments"], kept["positions"]) == (1, 1)
    assert kept["tokens"] < 1


def test_graft_without_segments_speaks_of_none(tmp_path: Path) -> None:
    start = graft(additive(tmp_path, DistilBertModel, "distilbert"), "concat-split", {})
    assert start.variance_kept.keys() == {"tokens", "positions"}
    start = graft(additive(tmp_path), "concat-split", {"segments": "none"})
    assert start.variance_kept.keys() == {"tokens", "positions"}


def test_other_grafts_reduce_no_table(tmp_path: Path) -> None:
    assert graft(additive(tmp_path), "concat", {}).variance_kept == {}
    assert Grafted(exact=True).variance_kept == {}
