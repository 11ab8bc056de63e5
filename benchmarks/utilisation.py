"""How much of the machine's arithmetic training uses: model FLOPs utilisation (Chowdhery et al. 2022, appendix B)."""

import time

import torch

from cells import Settings
from glue_bench.config import NATIVE
from glue_bench.model.cost import budget
from glue_bench.training.inputs import Inputs

SIZES = {"cpu": 1024, "cuda": 8192}
TRIES = 5


def peak_flops(device: str, precision: str, threads: int | None = None) -> float:
    """FLOPs a second of one large matrix product here: the best of TRIES. A data sheet's figure is never reached."""
    if threads:
        torch.set_num_threads(threads)
    size, dtype = SIZES[device], torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.randn(2, size, size, device=device, dtype=dtype)
    return max(2 * size**3 / _seconds(left, right) for _ in range(TRIES))


def flops_per_token(settings: Settings, length: float) -> int:
    """Matrix products of a forward and backward pass for one real token, in sequences of this mean length.

    Whatever is computed on padding, or computed twice, or left out, does not change it.
    """
    inputs = Inputs(settings.experiment)
    (arm,) = inputs.experiment.arms
    if settings.variant == NATIVE:
        return int(inputs.native_budget(arm, round(length))["flops_per_token"])
    config = inputs.initial(arm).config
    return int(budget(config, round(length))["flops_per_token"])


def _seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    _wait(left)
    began = time.perf_counter()
    left @ right
    _wait(left)
    return time.perf_counter() - began


def _wait(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()
