"""Memory: its peak, what freed memory is kept for, and errors that say that there was too little."""

import contextlib
import ctypes
import errno
import gc
import os
from pathlib import Path

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST_THRESHOLD = 32 * 2**20  # bytes; glibc accepts no larger one for memory that is mapped
SAID = (
    "can't allocate memory",
    "DefaultCPUAllocator",
    "CUDA out of memory",
    "out of memory",
    "bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",  # on a GPU that is all but full
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",  # the same; of other calls it says something else
)
GROUPS, LIMITS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def reset_peak(device: torch.device) -> None:
    """Start counting anew, as far as the operating system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return
    return_freed()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak resident set size


def peak_bytes(device: torch.device) -> int | None:
    """Bytes at the peak since `reset_peak`: allocated on the GPU, else resident; None where it is not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return None


def most_bytes(groups: Path = GROUPS, limits: Path = LIMITS) -> int | None:
    """Bytes of memory that this process may ever have: the machine's, or its control group's; None if not known."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        # The groups that it is in, of version 1 or 2, and those around them.
        for line in groups.read_text().splitlines() if groups.exists() else []:
            _, controllers, name = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            root, file = limits / controllers, "memory.limit_in_bytes" if controllers else "memory.max"
            folder = root / name.lstrip("/")
            places = [place / file for place in (folder, *folder.parents) if place.is_relative_to(root)]
            said = [place.read_text().strip() for place in places if place.is_file()]
            found += [int(limit) for limit in said if limit.isdecimal()]
        return min(found)
    return None


def keep_freed() -> None:
    """Let the C library keep freed memory for the next tensor, as far as it is glibc.

    Else every large tensor is new memory from the system, which clears each page when it is first touched: element-wise
    operations then wait for that more than for arithmetic.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_THRESHOLD)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed() -> None:
    """Give the system what `keep_freed` has kept; to get it back takes time at every first touch."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def release_memory() -> None:
    """Give back what an attempt that ran out of memory has left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation has failed, on the device or in the process."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):  # of a file that could not be mapped
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAID)
