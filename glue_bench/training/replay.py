"""A step recorded once as a CUDA graph, then replayed: hundreds of kernels for the price of one launch."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

WARM_UPS = 3  # runs before recording: libraries choose algorithms, optimisers make their state, compilers compile
Step = Callable[[], None]


def replayed(step: Step, device: torch.device, pool: Any = None) -> Step:
    """`step` recorded on a GPU; elsewhere, or where it cannot be recorded, `step` itself.

    It reads and writes tensors at fixed addresses only, and waits for nothing. It runs several times in here, so what
    it changes has to be set afterwards. `pool` is memory shared with other recordings, which never run at once.
    """
    if device.type != "cuda":
        return step
    _warm_up(step)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool):
            step()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        warnings.warn(f"training steps run without CUDA graphs, which is slower: {reason}", stacklevel=2)
        torch.cuda.synchronize()
        return step
    return graph.replay


def _warm_up(step: Step) -> None:
    """Beside the stream that is recorded, as CUDA graphs ask for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
