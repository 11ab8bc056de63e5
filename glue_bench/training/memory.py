"""The memory that a job takes, how it is given back, and the errors of short memory."""

import ctypes
import errno
import gc
from contextlib import suppress
from pathlib import Path

import torch

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MALLOC_LIMITS = {M_TRIM_THRESHOLD: 2**31 - 1, M_MMAP_THRESHOLD: 32 * 2**20}
"""glibc's parameters of `mallopt`, as high as it accepts them."""
OUT_OF_MEMORY_TEXTS = (
    "can't allocate memory",
    "DefaultCPUAllocator",
    "out of memory",
    "bad_alloc",
    # A GPU that is almost full gives these errors. In other calls the second error means something
    # else.
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next tensor. The system would clear new memory."""
    with suppress(OSError, AttributeError):
        for parameter, value in MALLOC_LIMITS.items():
            ctypes.CDLL("libc.so.6").mallopt(parameter, value)


def return_freed() -> None:
    """Give the system the freed memory that glibc keeps.

    It takes time to get the memory back from the system.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def reset_peak(device: torch.device) -> None:
    """Restart the measurement of the peak, if the operating system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return
    return_freed()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak resident set size


def peak_bytes(device: torch.device) -> int | None:
    """Return the largest number of bytes since `reset_peak`, or None if it is not known.

    On a GPU it counts allocated bytes, and elsewhere resident ones.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation has failed, on the device or in the process."""
    if isinstance(error, OSError):  # a file could not be mapped
        return error.errno == errno.ENOMEM
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        text in str(error) for text in OUT_OF_MEMORY_TEXTS
    )


def release_memory() -> None:
    """Give back the memory of an attempt that ran out of it, once its traceback is gone."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
