"""A step recorded once as a CUDA graph, then replayed: hundreds of kernels for the price of one launch."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from glue_bench.training.memory import is_out_of_memory

WARM_UPS = 3  # runs before recording: libraries choose algorithms, optimisers make their state, compilers compile
Step = Callable[[], None]


def replayed(step: Step, device: torch.device, pool: Any = None) -> Step:
    """`step` recorded on a GPU; elsewhere, or where it cannot be recorded, `step` itself.

    It reads and writes tensors at fixed addresses only, and waits for nothing. It runs several times in here, so what
    it changes has to be set afterwards. `pool` is memory shared with other recordings, which never run at once.

    Raises:
        torch.OutOfMemoryError: the device's memory is too short for it.
    """
    if device.type != "cuda":
        return step
    _run_aside(step, WARM_UPS)
    graph = torch.cuda.CUDAGraph()
    try:
        with _refusing_waits():
            _run_aside(step, 1)
        # Around it, because a recording whose end fails leaves the process on the stream that it was made on.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, pool=pool):
            step()
    except RuntimeError as error:
        found: BaseException | None = error
        while found is not None and not is_out_of_memory(found):
            found = found.__context__  # ending a recording may hide the error that says that memory was short
        if found is not None:
            raise found from error
        reason = str(error).splitlines()[0]
        warnings.warn(f"training steps run without CUDA graphs, which is slower: {reason}", stacklevel=2)
        torch.cuda.synchronize()
        return step
    return graph.replay


def _run_aside(step: Step, times: int) -> None:
    """Beside the stream that is recorded, as CUDA graphs ask for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(stream)


@contextmanager
def _refusing_waits() -> Iterator[None]:
    """Inside, an operation that waits for the device raises RuntimeError.

    Such a step cannot be recorded. To try it all the same would leave torch's allocator and its random numbers in the
    middle of a recording, and the next step would fail.
    """
    kept = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(kept)
