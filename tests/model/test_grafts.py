"""From an additive checkpoint to another variant: what is kept exactly, and what is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import transformers
from helpers.tiny_models import (
    ARM_CASES,
    ARMS,
    CONFIGS,
    HEAD_SIZE,
    HIDDEN,
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

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import on_threads
from glue_bench.model.grafts import graft
from glue_bench.model.start import Start
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import Additive, Dimensions, Grafted
from glue_bench.model.variants.options import SEGMENT_PLACES


def additive(folder: Path, family: str = "bert") -> Start:
    """Return a random additive checkpoint of a family."""
    return read_checkpoint(saved(folder, transformers.AutoModel.from_config, family)[1])


def start_states(start: Start) -> list[Tensor]:
    """Return the hidden states of a batch with two segments."""
    ids = tokens()
    return states(
        encoder(start.config, start.weights), ids, None, segments(ids, start.config.type_vocab_size)
    )


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("variant", ["untied", "none"])
def test_nothing_else_changes_where_there_are_no_positions(family, variant, tmp_path):
    """With p = 0 only the wider scale of `untied` remains, and the larger queries undo it."""
    checkpoint = additive(tmp_path, family)
    assert max_error(start_states(graft(checkpoint, variant, {})), start_states(checkpoint)) > 1e-2
    checkpoint.weights["variant.positions.weight"].zero_()
    start = graft(checkpoint, variant, {})
    assert not start.exact
    assert max_error(start_states(start), start_states(checkpoint)) < 1e-5


def test_untied_graft_starts_at_the_position_term_of_the_first_block(tmp_path):
    """Equation 6's last term, p_i W^Q (p_j W^K)^T / sqrt(k), which is all there is without words
    and segments.
    """
    checkpoint = additive(tmp_path)
    for name, tensor in checkpoint.weights.items():
        if (
            "words" in name
            or "segments" in name
            or name == "norm.bias"
            or name.endswith("qkv.bias")
        ):
            tensor.zero_()

    table = checkpoint.weights["variant.positions.weight"]
    table /= table.std(dim=1, keepdim=True)  # then positions are all of the sum

    base, untied = (
        encoder(s.config, s.weights) for s in (checkpoint, graft(checkpoint, "untied", {}))
    )

    with torch.no_grad():
        hidden = base.hidden_states(tokens(1, 9))[0][0]
        query, key, _ = (
            base.blocks[0].attention.qkv(hidden).view(9, 3, 3, HEAD_SIZE).permute(1, 2, 0, 3)
        )
        expected = query @ key.transpose(1, 2) / HEAD_SIZE**0.5
        scores = untied.variant.position_scores(9)[0, :, 1:, 1:]  # position i is row i + 1

    assert float(expected.abs().mean()) > 0.1
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_additive_checkpoints_of_ours_are_grafted(variant):
    model = random_model(EncoderModel, encoder_config(variant, origin="adapted"))
    checkpoint = Start(model.config, model.state_dict(), "adapted", name="mine")
    assert graft(checkpoint, variant, {}) is checkpoint
    for target in VARIANTS.keys() - {variant, "add"}:
        if variant == "add":
            start = graft(checkpoint, target, {})
            assert (start.config.variant, start.origin, start.config.origin) == (
                target,
                "grafted",
                "grafted",
            )
            continue
        with pytest.raises(
            UserError, match=f"variant '{target}' from 'mine', which is '{variant}'; only additive"
        ):
            graft(checkpoint, target, {})


def best_approximation(table: Tensor, rank: int) -> tuple[Tensor, float]:
    """Return the nearest table of a rank (Eckart-Young), and its share of the sum of squares."""
    u, sizes, v = torch.linalg.svd(table.double(), full_matrices=False)
    squares = sizes.square()
    nearest = u[:, :rank] * sizes[:rank] @ v[:rank]
    share = squares[:rank].sum() / squares.sum()
    return nearest, float(share)


@pytest.mark.parametrize("share", [0.125, 0.25, 0.5])
def test_graft_reduces_each_table_by_its_svd_and_says_how_much_is_kept(share, tmp_path):
    checkpoint = additive(tmp_path)
    start = graft(checkpoint, "concat-split", {"position_share": share})
    width = round(HIDDEN * share)
    assert (start.exact, start.origin) == (False, "grafted")
    assert start.variance_kept.keys() == {"tokens", "positions", "segments"}
    for name, table, rank in [
        ("tokens", "words", HIDDEN - width),
        ("positions", "positions", width),
    ]:
        before, after = (
            weights[f"variant.{table}.weight"] for weights in (checkpoint.weights, start.weights)
        )
        nearest, kept = best_approximation(before, rank)
        assert start.variance_kept[name] == pytest.approx(kept, abs=1e-6)
        assert 0.1 < kept < 1
        # No choice of basis changes the products of rows.
        torch.testing.assert_close(
            (after @ after.mT).double(), nearest @ nearest.mT, atol=1e-4, rtol=1e-4
        )


def test_graft_finds_tables_that_are_split_already():
    """What the rotation of the basis is for: the blocks find every coordinate where they look for
    it.
    """
    options = {"position_share": 0.25}
    split = random_model(EncoderModel, encoder_config("concat-split", variant_options=options))
    weights = {}
    for (
        name,
        tensor,
    ) in split.state_dict().items():  # of addition where each table is zero in the other's part
        sides = {
            "variant.positions.weight": (18, 0),
            "variant.words.weight": (0, 6),
            "variant.segments.weight": (0, 6),
        }
        weights[name] = torch.nn.functional.pad(tensor, sides[name]) if name in sides else tensor
    start = graft(Start(encoder_config("add"), weights, "pretrained"), "concat-split", options)
    assert start.variance_kept == pytest.approx({"tokens": 1, "positions": 1, "segments": 1})
    assert (
        max_error(start_states(start), start_states(Start(split.config, split.state_dict(), "")))
        < 1e-4
    )


@pytest.mark.parametrize("variant", ["add", "concat", "gate"])
@pytest.mark.parametrize("after", SEGMENT_PLACES)
@pytest.mark.parametrize("before", SEGMENT_PLACES)
def test_a_graft_is_exact_where_the_segments_stay_and_only_there(before, after, variant):
    model = random_model(EncoderModel, encoder_config("add", variant_options={"segments": before}))
    base = Start(model.config, model.state_dict(), "pretrained")
    start = graft(base, variant, {"segments": after})
    error = max_error(start_states(start), start_states(base))
    assert start.exact == (error < 1e-5)
    assert start.exact == (before == after or (before, after) == ("none", "scores"))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("before", [options for name, options in ARMS if name == "add"])
def test_exact_means_that_nothing_changes_whatever_the_options_of_the_start(before, variant):
    model = random_model(EncoderModel, encoder_config("add", variant_options=before))
    checkpoint = Start(model.config, model.state_dict(), "pretrained")
    start = graft(checkpoint, variant, {})
    error = max_error(start_states(start), start_states(checkpoint))
    assert start.exact == (error < 1e-5)


@pytest.mark.parametrize("variant", ["add", "multiply"])
def test_the_start_of_a_fresh_table_is_refused_from_a_checkpoint(variant):
    model = random_model(EncoderModel, encoder_config("add"))
    checkpoint = Start(model.config, model.state_dict(), "pretrained", name="mine")
    message = f"'position_start' of variant '{variant}' .* changes nothing of 'mine'; leave it out"
    with pytest.raises(UserError, match=message):
        graft(checkpoint, variant, {"position_start": 4.0})


def test_a_checkpoint_with_another_start_of_its_table_is_taken_as_it_is():
    options = {"position_start": 4.0, "position_norm": True}
    config = encoder_config("add", variant_options=options, origin="pretrained")
    model = random_model(EncoderModel, config)
    checkpoint = Start(config, model.state_dict(), "pretrained", name="mine")
    assert graft(checkpoint, "add", options) is checkpoint
    assert graft(checkpoint, "add", {"position_norm": True}) is checkpoint


class Own(Add):
    """A variant with a parameter of its own, which notes the number of threads of its graft."""

    thread_counts: ClassVar[list[int]] = []

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.places = torch.nn.Parameter(torch.randn(dims.max_positions, dims.embedding_size))

    def graft(self, base: Additive) -> Grafted:
        self.thread_counts.append(torch.get_num_threads())
        super().graft(base)
        return Grafted(exact=False)


def test_a_graft_computes_with_one_thread(tmp_path, monkeypatch):
    """The SVD of `concat-split` rounds by the number of threads, on tables of a real size."""
    monkeypatch.setitem(VARIANTS, "own", Own)
    monkeypatch.setattr(Own, "thread_counts", [])
    with on_threads(2):
        graft(additive(tmp_path), "own", {})
        assert (Own.thread_counts, torch.get_num_threads()) == ([1], 2)


@pytest.fixture
def unfilled_memory_is_nan() -> Iterator[None]:
    """Fill new memory with NaN. Otherwise it could hold any number, even the right one."""
    # This mode fills it: torch.utils.deterministic.fill_uninitialized_memory.
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


GRAFTED_CASES = [case for case in ARM_CASES if "position_start" not in case.values[1]]


@pytest.mark.usefixtures("unfilled_memory_is_nan")
@pytest.mark.parametrize("family", ["bert", "electra"])  # BERT has a pooler, ELECTRA has none
@pytest.mark.parametrize(("variant", "options"), [*GRAFTED_CASES, ("own", {})])
def test_every_number_of_a_classifier_is_of_its_start_or_drawn(
    variant, options, family, tmp_path, monkeypatch
):
    """No number is drawn and then replaced, and no number is left without a value."""
    monkeypatch.setitem(VARIANTS, "own", Own)
    start = graft(additive(tmp_path, family), variant, options)
    numbers = []
    for _ in range(2):
        model = start.classifier(("one", "other"), 1)
        numbers.append(
            {
                **model.state_dict(),
                **dict(model.named_buffers()),
                "what is drawn next": torch.rand(1),
            }
        )
        monkeypatch.setattr(
            "glue_bench.model.start.build_unfilled", lambda kind, config: kind(config)
        )
    assert not [name for name, values in numbers[0].items() if not values.isfinite().all()]
    for name, values in numbers[1].items():
        torch.testing.assert_close(numbers[0][name], values, rtol=0, atol=0)
