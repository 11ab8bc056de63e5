"""Batches in parts: the whole's gradient, and memory that is too short for the whole."""

import pytest
import torch
from torch import nn

from glue_bench.config import Hyperparameters
from glue_bench.model.heads import classification_loss
from glue_bench.training.batches import Batch
from glue_bench.training.loop import backward, train
from glue_bench.training.memory import is_out_of_memory


class Logits:
    def __init__(self, logits):
        self.logits = logits


class Toy(nn.Module):
    """Embeds, averages, classifies; fails like an allocator above `room` rows."""

    def __init__(self, labels: int = 3, room: int = 1000) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head, self.room = nn.Embedding(20, 8), nn.Linear(8, labels), room

    def forward(self, ids, mask, segments):  # noqa: ARG002
        if len(ids) > self.room:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory")
        real = torch.ones(ids.shape, dtype=torch.bool) if mask is None else mask
        hidden = (self.words(ids) * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return Logits(self.head(hidden))


def batch(rows: int = 7, floats: bool = False, padded: bool = True) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(20, (rows, 5), generator=generator)
    labels = torch.rand(rows, generator=generator) if floats else torch.randint(3, (rows,), generator=generator)
    mask = torch.arange(5) < torch.arange(rows)[:, None] % 5 + 1 if padded else None
    return Batch(ids, torch.zeros_like(ids), mask, labels, torch.arange(rows).numpy())


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("floats", [False, True], ids=["classes", "scores"])
@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_the_gradient_is_that_of_the_whole_batch(rows, floats):
    labels = 1 if floats else 3
    whole, parted = Toy(labels), Toy(labels)
    given = batch(floats=floats)
    loss = classification_loss(whole(given.ids, given.mask, given.segments).logits, given.labels)
    loss.backward()
    summed = backward(parted, given, rows)
    torch.testing.assert_close(summed, loss.detach())
    for name, gradient in gradients(whole).items():
        torch.testing.assert_close(gradients(parted)[name], gradient)


@pytest.mark.parametrize("rows", [None, 7, 100])
def test_a_batch_in_one_part_is_the_plain_computation_bit_for_bit(rows):
    plain, ours, given = Toy(), Toy(), batch()
    classification_loss(plain(given.ids, given.mask, given.segments).logits, given.labels).backward()
    backward(ours, given, rows)
    assert all(torch.equal(gradients(ours)[name], gradient) for name, gradient in gradients(plain).items())


@pytest.mark.parametrize("padded", [True, False])
def test_parts_are_the_rows_in_order(padded):
    given = batch(padded=padded)
    found = list(given.parts(3))
    assert [len(part.labels) for part in found] == [3, 3, 1]
    assert torch.equal(torch.cat([part.ids for part in found]), given.ids)
    assert torch.equal(torch.cat([part.labels for part in found]), given.labels)
    assert [part.mask is None for part in found] == [not padded] * 3


def test_training_in_parts_is_training_on_whole_batches():
    settings = Hyperparameters(
        learning_rate=0.1, epochs=3, batch_size=7, max_length=5, warmup_ratio=0, weight_decay=0.01,
        adam_epsilon=1e-3, clip_norm=1.0,
    )  # fmt: skip
    losses = {}
    for rows, room in ((None, 7), (2, 2)):
        model = Toy(room=room)
        losses[rows] = list(train(model, lambda _: [batch(), batch(6)], 2, settings, rows))
    assert losses[2] == pytest.approx(losses[None], rel=1e-5)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        next(train(Toy(room=6), lambda _: [batch()], 1, settings))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 1 byte"),
            True,
        ),
        (RuntimeError("shapes do not fit"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (ValueError("out of memory"), False),
    ],
)
def test_what_is_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected


def test_a_real_allocation_that_cannot_be_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
