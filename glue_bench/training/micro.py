"""A batch in parts that fit into memory, with the gradient of the whole."""

import errno
from collections.abc import Iterator

import torch
from accelerate import Accelerator
from torch import nn

from glue_bench.model.transformers_api import classification_loss
from glue_bench.training.batches import Batch

_SAID = (
    "can't allocate memory",
    "DefaultCPUAllocator",
    "CUDA out of memory",
    "out of memory",
    "bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",  # on a GPU that is all but full
)


def backward(model: nn.Module, batch: Batch, rows: int | None, runtime: Accelerator) -> torch.Tensor:
    """Add the gradients of the batch's mean loss, at most `rows` rows at a time; returns that loss.

    Each part's mean counts by its share of the rows, so that the sum is the whole batch's, up to rounding.
    """
    total = torch.zeros((), device=runtime.device)
    for part in parts(batch, rows):
        part = part.to(runtime.device)
        with runtime.autocast():
            logits = model(part.ids, part.mask, part.segments).logits
        loss = classification_loss(logits, part.labels)
        if len(part.labels) < len(batch.labels):
            loss = loss * (len(part.labels) / len(batch.labels))
        runtime.backward(loss)
        total += loss.detach()
    return total


def parts(batch: Batch, rows: int | None) -> Iterator[Batch]:
    """The batch in parts of at most `rows` rows, in order; None: in one."""
    size = rows or len(batch.labels)
    if size >= len(batch.labels):
        yield batch
        return
    for start in range(0, len(batch.labels), size):
        some = slice(start, start + size)
        mask = None if batch.mask is None else batch.mask[some]
        yield Batch(batch.ids[some], batch.segments[some], mask, batch.labels[some], batch.rows[some])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation has failed, on the device or in the process."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):  # of a file that could not be mapped
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _SAID)
