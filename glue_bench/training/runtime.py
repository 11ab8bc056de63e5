"""Where this process computes, and in which precision: settled once, before anything is prepared."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState

from glue_bench.errors import UserError
from glue_bench.training.memory import keep_freed, sees_cuda

AUTO = "auto"
DEVICES = (AUTO, "cpu", "cuda", "mps")
PRECISIONS = {"float32": "no", "bf16": "bf16"}
"""Ours -> accelerate's. bf16 is mixed: weights, moments and losses stay float32."""
# accelerate's own, which worker processes inherit.
PRECISION_VARIABLE, CPU_VARIABLE = "ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU"


@cache
def accelerator() -> Accelerator:
    """The process's accelerator; accelerate keeps its state per process too."""
    keep_freed()
    made = Accelerator(mixed_precision=os.environ.get(PRECISION_VARIABLE) or PRECISIONS[best_precision()])
    if made.device.type == "cuda":
        # Newer GPUs would take cuDNN's attention first. It has no gradient for a bias that learns, and with a mask its
        # backward pass can give NaN at some lengths (pytorch/pytorch#196678).
        torch.backends.cuda.enable_cudnn_sdp(False)
    return made


@cache
def all_threads() -> int:
    """The CPU threads that this process had before a cell or a pretraining was given its own number of them."""
    return torch.get_num_threads()


def best_precision() -> str:
    """bf16 where a GPU computes in it or a CPU has instructions for it, else float32: other CPUs lose by it."""
    if sees_cuda():
        able = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        able = multiplies_bf16() and PartialState().device.type == "cpu"
    return "bf16" if able else "float32"


def multiplies_bf16() -> bool:
    """Whether the CPU has instructions that multiply matrices of bf16 faster than those of float32.

    Tiles (Intel AMX) are several times as fast, vectors (AVX-512 BF16: AMD since Zen 4) twice.
    """
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    able = capabilities.get("amx_bf16") or capabilities.get("avx512_bf16")
    return bool(able) and torch.backends.mkldnn.is_available()


def keeps_kernels() -> bool:
    """Whether products leave kernels in memory, one for every shape: oneDNN's in bf16 on a CPU, of some 0.7 MiB."""
    return not is_float32() and accelerator().device.type == "cpu"


def few_sizes(size: int) -> int:
    """`size`, or where kernels are kept the next of four sizes from each power of two to the next, multiples of 4.

    Without this an epoch of RTE takes 1.4 times the memory. With multiples of 16 instead, much of a batch of short
    texts is padding: CoLA trained at 0.82 times the speed.
    """
    if not keeps_kernels():
        return size
    apart = max(4, 2 ** ((size - 1).bit_length() - 3))
    return -(-size // apart) * apart


@contextmanager
def computing(device: str = AUTO, precision: str = AUTO) -> Iterator[None]:
    """In this block, this process and those that it starts compute there.

    `auto` leaves the choice to what is there, and to accelerate's settings.

    Raises:
        UserError: no such device, no such precision, or a device that is not there.
    """
    variables = _variables(device, precision)
    kept = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(kept)


def describe() -> str:
    """The device and precision of this process, in words."""
    return f"{device_name()} in {precision_name()}"


def device_name() -> str:
    """What computes: the GPU's own name, or the kind of device."""
    device = accelerator().device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def precision_name() -> str:
    """float32, or the format of mixed precision."""
    return {"no": "float32"}.get(accelerator().mixed_precision, accelerator().mixed_precision)


def is_float32() -> bool:
    """Whether this process trains in float32 throughout."""
    return accelerator().mixed_precision == "no"


@contextmanager
def in_float32() -> Iterator[None]:
    """What is prepared in this block trains without autocasting and without a loss scale."""
    runtime = accelerator()
    kept = runtime.native_amp, runtime.scaler
    runtime.native_amp, runtime.scaler = False, None
    try:
        yield
    finally:
        runtime.native_amp, runtime.scaler = kept


def _variables(device: str, precision: str) -> dict[str, str | None]:
    if device not in DEVICES:
        raise UserError(f"device '{device}' is none of {', '.join(DEVICES)}")
    if precision not in (AUTO, *PRECISIONS):
        raise UserError(f"precision '{precision}' is none of {', '.join((AUTO, *PRECISIONS))}")
    there: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device in there and not there[device]():
        raise UserError(f"device '{device}' is not there: PyTorch {torch.__version__} sees none; leave --device out")
    chosen: dict[str, str | None] = {} if precision == AUTO else {PRECISION_VARIABLE: PRECISIONS[precision]}
    return chosen if device == AUTO else chosen | {CPU_VARIABLE: "true" if device == "cpu" else None}


def _set(variables: dict[str, str | None]) -> None:
    """Set or remove environment variables; where one changes, the process's accelerator is settled anew."""
    if all(os.environ.get(name) == value for name, value in variables.items()):
        return
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    settle_anew()


def settle_anew() -> None:
    """Forget what was settled: the next question is answered by the environment as it then is."""
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator.cache_clear()
