"""Where a job computes: device, precision and threads; what memory it takes; and what other libraries print."""

import ctypes
import errno
import gc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from glue_bench.config.machine import AUTO, check_machine
from glue_bench.errors import UserError
from glue_bench.records.environment import Environment, versions

PRECISION_VARIABLE = "GLUE_BENCH_PRECISION"  # of the environment: what `auto` stands for
NARROW = 256
MALLOPT = {
    -1: 2**31 - 1,
    -3: 32 * 2**20,
}  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, as high as it accepts
OUT_OF_MEMORY = ("can't allocate memory", "DefaultCPUAllocator", "out of memory", "bad_alloc",
                 # On a GPU that is all but full; of other calls than cublasCreate the second says something else.
                 "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate")  # fmt: skip


@dataclass(frozen=True)
class Compute:
    """A device, whether products are computed in bf16 (the rest stays float32), and how many threads of the CPU."""

    device: torch.device
    bf16: bool
    threads: int

    @property
    def precision(self) -> str:
        """float32 or bf16."""
        return "bf16" if self.bf16 else "float32"

    @property
    def name(self) -> str:
        """The GPU's own name, or the kind of device."""
        return (
            torch.cuda.get_device_name(self.device)
            if self.device.type == "cuda"
            else self.device.type
        )

    def environment(self) -> Environment:
        """What a record says of where it was made; the threads are those that PyTorch uses now."""
        here = {
            "device": self.name,
            "precision": self.precision,
            "threads": torch.get_num_threads(),
        }
        return versions().model_copy(update=here)

    def autocast(self) -> AbstractContextManager[object]:
        """In this block products are computed in the precision."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext()

    @property
    def keeps_kernels(self) -> bool:
        """Whether products leave kernels in memory, one for every shape: oneDNN's in bf16 on a CPU, of some 0.7 MiB."""
        return self.bf16 and self.device.type == "cpu"

    def round_up_size(self, size: int) -> int:
        """The next of four sizes between two powers of two, where kernels are kept; else `size`.

        Without this an epoch of RTE takes 1.4 times the memory; with multiples of 16 CoLA trains at 0.82 of the speed.
        """
        apart = max(4, 2 ** ((size - 1).bit_length() - 3)) if self.keeps_kernels else 1
        return -(-size // apart) * apart

    def threads_for(self, hidden_size: int) -> int:
        """CPU threads for an encoder of this width; what a narrow one computes ends before a second one joins in."""
        return 1 if hidden_size < NARROW else self.threads


def choose_compute(device: str = AUTO, precision: str = AUTO) -> Compute:
    """Where this process computes; `auto` takes a GPU if there is one, and bf16 where the device is faster in it."""
    if precision == AUTO:
        precision = os.environ.get(PRECISION_VARIABLE, AUTO)
    check_machine(device, precision)
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if not there.get(device, True):
        raise UserError(
            f"device '{device}' is not there: PyTorch {torch.__version__} sees none; leave --device out"
        )
    kind = next(name for name in there if there[name]) if device == AUTO else device
    with suppress(
        OSError, AttributeError
    ):  # freed memory stays for the next tensor: the system clears what is new
        for parameter, value in MALLOPT.items():
            ctypes.CDLL("libc.so.6").mallopt(parameter, value)
    if kind == "cuda":
        # Newer GPUs would take cuDNN's attention first. It has no gradient for a bias that learns, and with a mask its
        # backward pass can give NaN at some lengths (pytorch/pytorch#196678).
        torch.backends.cuda.enable_cudnn_sdp(False)
    if precision == AUTO and kind == "cuda":
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        bf16 = precision == "bf16" or (precision == AUTO and kind == "cpu" and multiplies_bf16())
    return Compute(torch.device(kind), bf16, torch.get_num_threads())


def multiplies_bf16() -> bool:
    """Whether the CPU multiplies matrices faster in bf16: tiles (Intel AMX) several times, AVX-512 BF16 twice."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    able = capabilities.get("amx_bf16") or capabilities.get("avx512_bf16")
    return bool(able) and torch.backends.mkldnn.is_available()


def reset_peak(device: torch.device) -> None:
    """Start counting anew, as far as the operating system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return
    return_freed()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak resident set size


def peak_bytes(device: torch.device) -> int | None:
    """Bytes at the peak since `reset_peak`: allocated on the GPU, else resident; None where it is not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return None


def return_freed() -> None:
    """Give the system what glibc keeps of freed memory; to get it back takes time at every first touch."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation has failed, on the device or in the process."""
    if isinstance(error, OSError):  # of a file that could not be mapped
        return error.errno == errno.ENOMEM
    in_text = isinstance(error, RuntimeError) and any(
        words in str(error) for words in OUT_OF_MEMORY
    )
    return in_text or isinstance(error, MemoryError | torch.OutOfMemoryError)


def release_memory() -> None:
    """Give back what an attempt that ran out of memory has left behind, once its traceback is gone."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def quiet_transformers() -> None:
    """transformers says errors only, and draws no bars, from here on in this process."""
    import transformers
    from huggingface_hub.utils import disable_progress_bars

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()


@contextmanager
def without_output() -> Iterator[None]:
    """Drops all standard output of the process: tokenizers prints names out of a file, control characters too."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # closed
        yield
        return
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
