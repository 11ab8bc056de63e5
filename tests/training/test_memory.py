"""The memory that a job takes, and errors that say that it is short."""

import sys

import pytest
import torch

from glue_bench.training.memory import is_out_of_memory, peak_bytes, reset_peak

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 1 byte"),
        RuntimeError("bad_alloc"),
        RuntimeError(
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
        ),
    ],
    ids=repr,
)
def test_an_allocation_that_fails_is_out_of_memory(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm(a)`"),
        RuntimeError("shapes do not fit"),
        ValueError("out of memory"),
        OSError(28, "No space left"),
    ],
    ids=repr,
)
def test_another_error_is_not_out_of_memory(error):
    assert not is_out_of_memory(error)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory")
def test_the_peak_is_that_since_the_reset():
    torch.ones(50_000_000)  # 200 MB, freed at once
    before = peak_bytes(CPU)
    reset_peak(CPU)
    after = peak_bytes(CPU)
    tensor = torch.ones(25_000_000)
    assert after <= before
    assert peak_bytes(CPU) - after > 0.8 * tensor.numel() * 4
