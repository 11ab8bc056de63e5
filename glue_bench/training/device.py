"""Where a job computes: its device, its precision, and its threads."""

import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from glue_bench.config.machine import AUTO, check_machine
from glue_bench.errors import UserError
from glue_bench.records.environment import Environment, versions
from glue_bench.training.memory import keep_freed_memory

MEASURED_GPUS: frozenset[str] = frozenset()
"""The names of the GPUs that launch a step as one graph.

`benchmarks/gpu.py` has to show that the numbers stay the same on a GPU, and that steps get faster.
No GPU has been measured yet.
"""
PRECISION_VARIABLE = "GLUE_BENCH_PRECISION"  # the environment variable that says what `auto` means
NARROW_HIDDEN_SIZE = 256  # narrower encoders gain nothing from a second thread
MIN_SHARED_WORK = 2**18  # from this hidden size x batch tokens on, threads share a step


@dataclass(frozen=True)
class Compute:
    """Where a job computes.

    - `device`: the device.
    - `bf16`: whether products are computed in bf16; the rest stays float32.
    - `threads`: how many threads of the CPU the job may use.
    - `graph`: whether steps have fixed shapes, and a GPU launches each as one graph.
    """

    device: torch.device
    bf16: bool
    threads: int
    graph: bool = False

    @property
    def precision(self) -> str:
        """The precision of matrix products: float32 or bf16."""
        return "bf16" if self.bf16 else "float32"

    @property
    def name(self) -> str:
        """The GPU's own name, or the kind of device."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return self.device.type

    def environment(self, *, graphs: bool | None = None) -> Environment:
        """Return the environment for a record, with the threads that PyTorch uses now.

        Args:
            graphs: whether training steps were launched as CUDA graphs; None without training.
        """
        machine = {
            "device": self.name,
            "precision": self.precision,
            "threads": torch.get_num_threads(),
            "graphs": graphs,
        }
        return versions().model_copy(update=machine)

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context in which products are computed in the precision."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext()

    @property
    def captures(self) -> bool:
        """Whether a step of fixed shapes is captured as a CUDA graph."""
        return self.graph and self.device.type == "cuda"

    @property
    def keeps_kernels(self) -> bool:
        """Whether each shape of a matrix product leaves a kernel in memory.

        oneDNN's kernels for bf16 on a CPU stay in memory, about 0.7 MiB each.
        """
        return self.bf16 and self.device.type == "cpu"

    def round_up_size(self, size: int) -> int:
        """Round a size up to the next of four sizes between two powers of two, if kernels are kept.

        Without this an epoch of RTE takes 1.4 times the memory. With multiples of 16 CoLA trains at
        0.82 of the speed.
        """
        if not self.keeps_kernels:
            return size
        step = max(4, 2 ** ((size - 1).bit_length() - 3))
        return math.ceil(size / step) * step

    def round_up_length(self, length: int) -> int:
        """Round the length of a batch up. For graphs there are only a few lengths, from 16 on."""
        if not self.graph:
            return self.round_up_size(length)
        step = max(16, 2 ** ((length - 1).bit_length() - 2))
        return math.ceil(length / step) * step

    def threads_for(self, hidden_size: int) -> int:
        """Return how many threads of the CPU an encoder of this width uses.

        The operations of a narrow encoder end before a second thread joins in.
        """
        return 1 if hidden_size < NARROW_HIDDEN_SIZE else self.threads

    def threads_for_batch(self, hidden_size: int, tokens: int) -> int:
        """Return how many threads of the CPU a step of pretraining uses.

        One takes steps too small to share: their operations end before a second thread joins in.
        """
        return 1 if hidden_size * tokens < MIN_SHARED_WORK else self.threads


def choose_compute(device: str = AUTO, precision: str = AUTO, graph: str = AUTO) -> Compute:
    """Choose where this process computes.

    Args:
        device: cuda, mps, cpu, or auto for the first of these that this machine has.
        precision: float32, bf16, or auto for bf16 where the device is faster in it.
        graph: off, or auto for one graph a step on the GPUs of MEASURED_GPUS.

    Raises:
        UserError: the device is not there, or a name is not known.
    """
    if precision == AUTO:
        precision = os.environ.get(PRECISION_VARIABLE, AUTO)
    check_machine(device, precision, graph)

    is_available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if not is_available.get(device, True):
        raise UserError(
            f"device '{device}' is not there: PyTorch {torch.__version__} sees none; "
            "leave --device out"
        )

    kind = device
    if device == AUTO:
        kind = next(name for name in is_available if is_available[name])

    keep_freed_memory()
    if kind == "cuda":
        # Newer GPUs would take cuDNN's attention first. It has no gradient for a bias that learns,
        # and with a mask its backward pass can give NaN at some lengths (pytorch/pytorch#196678).
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)

    bf16 = precision == "bf16" or (precision == AUTO and is_faster_in_bf16(kind))
    compute = Compute(torch.device(kind), bf16, torch.get_num_threads())
    return replace(compute, graph=graph == AUTO and compute.name in MEASURED_GPUS)


def is_faster_in_bf16(kind: str) -> bool:
    """Return whether a kind of device multiplies matrices faster in bf16.

    A CPU is several times faster in bf16 with tiles (Intel AMX), and twice as fast with AVX-512
    BF16.
    """
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    has_instructions = capabilities.get("amx_bf16") or capabilities.get("avx512_bf16")
    return bool(has_instructions) and torch.backends.mkldnn.is_available()
