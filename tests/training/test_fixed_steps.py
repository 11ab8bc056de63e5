"""Steps of fixed shapes compared with ordinary steps. On a CPU they are not captured."""

import threading
import warnings
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count, islice

import numpy as np
import pytest
import torch
from helpers.tiny_pretraining import BF16, CPU, LENGTH, STILL, Tiny, config, packed_of
from torch import Tensor

import glue_bench.training.pretrain as module
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training.device import Compute
from glue_bench.training.fixed_steps import BATCHES_AHEAD, FixedSteps, launches_graphs, make_ahead
from glue_bench.training.loop import update
from glue_bench.training.masked_lm import masked_losses
from glue_bench.training.masking import MaskedBatch, Vocabulary, mask_rows

FIXED = replace(CPU, graph=True)
PLACES = 12
ARMS = ["add", "concat", "untied", "rotary", "none"]


def model_of(variant: str = "add", **changes) -> EncoderForMaskedLM:
    torch.manual_seed(0)
    return EncoderForMaskedLM(config(variant, **changes))


def batch_of(lengths: list[int], *, pairs: bool = False) -> MaskedBatch:
    """Return sequences of these lengths with three of ten tokens to predict."""
    text = packed_of(lengths)
    if pairs:
        text = replace(text, cuts=np.array(lengths) // 2)
    vocabulary = Vocabulary(mask_id=4, padding_id=0, regular=np.arange(5, 65))
    generator = np.random.default_rng(0)
    return mask_rows(text, np.arange(len(lengths)), vocabulary, 0.3, generator)


BATCHES = {
    "full": batch_of([LENGTH] * 3),
    "padded": batch_of([LENGTH, 9, 5]),
    "shorter": batch_of([9, 9, 5]),
    "pairs": batch_of([12, 9, 5], pairs=True),
}


def fixed_loss(model: EncoderForMaskedLM, tensors: dict[str, Tensor]) -> Tensor:
    return masked_losses(model, MaskedBatch(**tensors), CPU, "mean")


def gradients(model: EncoderForMaskedLM, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradients of a loss by the names of parameters."""
    model.zero_grad()
    loss.backward()
    named = dict(model.named_parameters())
    return {name: weight.grad for name, weight in named.items() if weight.grad is not None}


@pytest.mark.parametrize("variant", ARMS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_fixed_shapes_give_the_mean_loss_and_its_gradients(batch, variant):
    model = model_of(variant).double().eval()
    expected = masked_losses(model, batch, CPU, "sum") / len(batch.targets)
    expected_gradients = gradients(model, expected)
    loss = fixed_loss(model, batch.fixed(LENGTH, PLACES))
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    for name, gradient in gradients(model, loss).items():
        torch.testing.assert_close(
            gradient, expected_gradients[name], rtol=1e-4, atol=1e-7, msg=name
        )


def test_no_batch_changes_the_shapes():
    shapes = []
    for name in ("full", "padded", "shorter"):
        tensors = BATCHES[name].fixed(LENGTH, PLACES)
        shapes.append({key: tuple(tensor.shape) for key, tensor in tensors.items()})
    expected = {
        "ids": (3, LENGTH),
        "mask": (3, LENGTH),
        "places": (PLACES,),
        "targets": (PLACES,),
    }
    assert shapes[0] == expected
    assert shapes[1] == shapes[2] == shapes[0]


@pytest.mark.parametrize("compute", [CPU, BF16], ids=["float32", "bf16"])
@pytest.mark.parametrize("variant", ["add", "untied"])
def test_a_pretraining_of_fixed_shapes_is_the_same_but_for_rounding(tmp_path, variant, compute):
    results = []
    for graph in (False, True):
        tiny = Tiny.of(tmp_path / str(graph), variant, scratch=STILL)
        outcome = tiny.finish(replace(compute, graph=graph))
        results.append(outcome.record)
    plain, fixed = results
    assert fixed.stream == plain.stream
    assert fixed.tokens == plain.tokens
    tolerance = 2e-3 if compute.bf16 else 1e-5
    for point, expected in zip(fixed.losses, plain.losses, strict=True):
        assert point.train_loss == pytest.approx(expected.train_loss, rel=tolerance)
    assert fixed.validation_loss == pytest.approx(plain.validation_loss, rel=tolerance)


def test_a_pretraining_in_parts_takes_batches_as_they_are(tmp_path):
    """There is dropout, whose random numbers depend on the shapes."""
    losses = []
    for graph in (False, True):
        tiny = Tiny.of(tmp_path / str(graph), micro_batch_tokens=4 * LENGTH)
        record = tiny.finish(replace(CPU, graph=graph)).record
        losses.append(record.validation_loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("stop", [1, 12])
def test_a_continued_run_of_fixed_shapes_equals_an_uninterrupted_one(tmp_path, monkeypatch, stop):
    """There is dropout, whose random numbers depend on the step alone."""
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    whole = Tiny.of(tmp_path / "whole").finish(FIXED)
    tiny = Tiny.of(tmp_path / "continued")
    tiny.stop_at(stop, FIXED)
    continued = tiny.finish(FIXED)
    assert continued.record.weights == whole.record.weights
    assert continued.record.stream == whole.record.stream


@pytest.mark.parametrize("graphs", [(False, True), (True, False)], ids=["to fixed", "from fixed"])
def test_a_run_can_continue_in_the_other_way(tmp_path, monkeypatch, graphs):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    first, second = (replace(CPU, graph=graph) for graph in graphs)
    whole = Tiny.of(tmp_path / "whole", scratch=STILL).finish()
    tiny = Tiny.of(tmp_path / "continued", scratch=STILL)
    tiny.stop_at(12, first)
    loss = tiny.finish(second).record.validation_loss
    assert loss == pytest.approx(whole.record.validation_loss, rel=1e-5)


def taken_steps(compute: Compute, seeds=(1, 2)) -> tuple[list[float], dict[str, Tensor]]:
    """Return the losses and the weights after fixed steps with dropout."""
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
    steps = FixedSteps(model, optimizer, 1.0, partial(fixed_loss, model), compute)
    tensors = BATCHES["padded"].fixed(LENGTH, PLACES)
    losses = [float(steps.take(tensors, 0.01, seed)) for seed in seeds]
    return losses, model.state_dict()


def test_the_first_steps_equal_the_optimizers():
    """The rehearsal before the first step changes no weight."""
    losses, weights = taken_steps(FIXED)
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tensors = BATCHES["padded"].fixed(LENGTH, PLACES)
    for seed, loss in zip((1, 2), losses, strict=True):
        torch.manual_seed(seed)
        expected = update(model, optimizer, 0.01, 1.0, [fixed_loss(model, tensors)])
        assert loss == float(expected)
    for name, weight in model.state_dict().items():
        assert torch.equal(weights[name], weight), name


class Capturing(Compute):
    """A CPU that claims to capture steps."""

    captures = True


@pytest.fixture
def no_capture_failed(monkeypatch):
    """Forget failed captures, as in a new process."""
    monkeypatch.setattr(FixedSteps, "is_capturable", True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can capture")
@pytest.mark.usefixtures("no_capture_failed")
def test_a_capture_that_fails_says_so_once_and_the_steps_go_on():
    expected, weights = taken_steps(FIXED)
    with pytest.warns(UserWarning, match="a step cannot be captured as a CUDA graph"):
        losses, weights_after = taken_steps(Capturing(CPU.device, bf16=False, threads=1))
    assert losses == expected
    for name, weight in weights.items():
        assert torch.equal(weights_after[name], weight), name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken_steps(Capturing(CPU.device, bf16=False, threads=1))


def test_graphs_are_launched_where_a_step_was_captured():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    steps = FixedSteps(model, optimizer, 1.0, lambda tensors: tensors["ids"].sum(), FIXED)
    assert not launches_graphs(None)
    assert not launches_graphs(steps)
    steps.graphs[torch.Size([1])] = (object(), torch.zeros(()))
    assert launches_graphs(steps)


def test_items_come_in_their_order():
    assert list(make_ahead(iter(range(20)))) == list(range(20))


def test_no_more_items_are_made_than_asked_for_and_some_ahead():
    made: list[int] = []
    source = (made.append(number) or number for number in count())
    with closing(make_ahead(source)) as items:
        assert list(islice(items, 3)) == [0, 1, 2]
    assert len(made) <= 3 + BATCHES_AHEAD


def test_the_thread_ends_with_the_last_item():
    before = threading.active_count()
    with closing(make_ahead(count())) as items:
        next(items)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_an_error_in_the_making_of_an_item_is_raised_in_its_place():
    items = make_ahead(1 // number for number in (1, 1, 0, 1))
    assert [next(items), next(items)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(items)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("variant", ["add", "untied"])
def test_on_a_gpu_a_continued_run_equals_an_uninterrupted_one(tmp_path, monkeypatch, variant):
    """There is dropout, in float32, and steps are captured as graphs."""
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    compute = replace(FIXED, device=torch.device("cuda"))
    whole = Tiny.of(tmp_path / "whole", variant).finish(compute)
    tiny = Tiny.of(tmp_path / "continued", variant)
    tiny.stop_at(12, compute)
    record = tiny.finish(compute).record
    assert record.weights == whole.record.weights
    assert record.environment.graphs is True
    assert FixedSteps.is_capturable


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_run_without_graphs_continues_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    compute = replace(FIXED, device=torch.device("cuda"))
    whole = Tiny.of(tmp_path / "whole", scratch=STILL).finish(compute)
    tiny = Tiny.of(tmp_path / "continued", scratch=STILL)
    tiny.stop_at(12, replace(compute, graph=False))
    loss = tiny.finish(compute).record.validation_loss
    assert loss == pytest.approx(whole.record.validation_loss, rel=1e-4)
    assert FixedSteps.is_capturable
