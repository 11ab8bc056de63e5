"""Peak memory of a stretch of work: of the GPU where there is one, else of the process."""

import contextlib
import ctypes
import gc
from pathlib import Path

import torch
from accelerate.utils import parse_flag_from_env

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def sees_cuda() -> bool:
    """Whether there is a CUDA device, and accelerate has not been told to leave it alone."""
    return torch.cuda.is_available() and not parse_flag_from_env("ACCELERATE_USE_CPU")


def reset_peak() -> None:
    """Start counting anew, as far as the operating system lets us."""
    if sees_cuda():
        torch.cuda.reset_peak_memory_stats()
        return
    return_freed()
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")  # proc(5): resets the peak resident set size


def peak_bytes() -> int | None:
    """Bytes at the peak since `reset_peak`: allocated on the GPU, else resident; None where it is not known."""
    if sees_cuda():
        return torch.cuda.max_memory_allocated()
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
    return sizes[0] if sizes else None


def keep_freed() -> None:
    """Let the C library keep freed memory for the next tensor, as far as it is glibc.

    Else every large tensor is new memory from the system, which clears each page when it is first touched: element-wise
    operations then wait for that more than for arithmetic. 32 MiB is the largest threshold that glibc accepts.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed() -> None:
    """Give the system what `keep_freed` has kept; to get it back takes time at every first touch."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


def release_memory() -> None:
    """Give back what an attempt that ran out of memory has left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
