"""Where a job computes: on which device, in which precision, with how many CPU threads."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from glue_bench.errors import UserError
from glue_bench.model.fresh import on_threads
from glue_bench.records.environment import Environment, versions
from glue_bench.training.memory import keep_freed

__all__ = ["AUTO", "DEVICES", "Compute", "choose_compute", "multiplies_bf16", "on_threads"]

AUTO = "auto"
DEVICES = (AUTO, "cpu", "cuda", "mps")
PRECISIONS = (AUTO, "float32", "bf16")
PRECISION_VARIABLE = "GLUE_BENCH_PRECISION"
"""The environment variable that says what `auto` stands for, on all machines that inherit it."""
NARROW = 256


@dataclass(frozen=True)
class Compute:
    """A device, and whether products are computed in bf16: weights, moments and losses stay float32.

    `threads` are those of the CPU that an encoder of some width uses; a narrow one takes a single thread.
    """

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
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

    def environment(self) -> Environment:
        """What a record says of where it was made; the threads are those that PyTorch uses now."""
        made = versions().document() | {"device": self.name, "precision": self.precision}
        return Environment(**made, threads=torch.get_num_threads())

    def autocast(self) -> AbstractContextManager[object]:
        """In this block products are computed in the precision."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext()

    @property
    def keeps_kernels(self) -> bool:
        """Whether products leave kernels in memory, one for every shape: oneDNN's in bf16 on a CPU, of some 0.7 MiB."""
        return self.bf16 and self.device.type == "cpu"

    def few_sizes(self, size: int) -> int:
        """`size`, or where kernels are kept the next of four sizes from each power of two to the next, multiples of 4.

        Without this an epoch of RTE takes 1.4 times the memory. With multiples of 16 instead, much of a batch of short
        texts is padding: CoLA trained at 0.82 times the speed.
        """
        if not self.keeps_kernels:
            return size
        apart = max(4, 2 ** ((size - 1).bit_length() - 3))
        return -(-size // apart) * apart

    @property
    def evaluation_tokens(self) -> int:
        """Tokens of a batch of which only logits are wanted."""
        return 65_536 if self.device.type == "cuda" else 4_096

    def threads_for(self, hidden_size: int) -> int:
        """CPU threads for an encoder of this width.

        The operations of a narrow one end before a second thread has joined in, and on a busy machine every one of
        them waits for it: a demo cell took 7 s instead of 1.
        """
        return 1 if hidden_size < NARROW else self.threads


def choose_compute(device: str = AUTO, precision: str = AUTO) -> Compute:
    """Where this process computes; `auto` takes a GPU if there is one, and bf16 where the device is faster in it.

    Raises:
        UserError: no such device, no such precision, or a device that is not there.
    """
    if device not in DEVICES:
        raise UserError(f"device '{device}' is none of {', '.join(DEVICES)}")
    if precision == AUTO:
        precision = os.environ.get(PRECISION_VARIABLE, AUTO)
    if precision not in PRECISIONS:
        raise UserError(f"precision '{precision}' is none of {', '.join(PRECISIONS)}")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if not there.get(device, True):
        raise UserError(f"device '{device}' is not there: PyTorch {torch.__version__} sees none; leave --device out")
    kind = next(name for name in there if there[name]) if device == AUTO else device
    keep_freed()
    if kind == "cuda":
        # Newer GPUs would take cuDNN's attention first. It has no gradient for a bias that learns, and with a mask its
        # backward pass can give NaN at some lengths (pytorch/pytorch#196678).
        torch.backends.cuda.enable_cudnn_sdp(False)
    bf16 = _is_faster_in_bf16(kind) if precision == AUTO else precision == "bf16"
    return Compute(torch.device(kind), bf16, torch.get_num_threads())


def _is_faster_in_bf16(kind: str) -> bool:
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return kind == "cpu" and multiplies_bf16()


def multiplies_bf16() -> bool:
    """Whether the CPU has instructions that multiply matrices of bf16 faster than those of float32.

    Tiles (Intel AMX) are several times as fast, vectors (AVX-512 BF16: AMD since Zen 4) twice.
    """
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    able = capabilities.get("amx_bf16") or capabilities.get("avx512_bf16")
    return bool(able) and torch.backends.mkldnn.is_available()
