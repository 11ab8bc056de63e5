"""One long-lived process a contender. Each works when it is told to, so that contenders take turns in time.

A process of its own keeps a contender's peak memory apart from the others'.
"""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Round = Callable[[int], dict[str, Any]]


class Worker:
    """A process that calls `make(*arguments)` once, and the round that this returns whenever it is asked."""

    def __init__(self, make: Callable[..., Round], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share what the others have loaded
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, make, arguments), daemon=True)
        self._process.start()
        end.close()

    def round(self, steps: int) -> dict[str, Any]:
        """One round of `steps` steps: what it returns, and `peak_bytes`, the most memory so far beyond the imports.

        Raises:
            RuntimeError: the round failed, or its process ended.
        """
        self._pipe.send(steps)
        try:
            result, error = self._pipe.recv()
        except EOFError as ended:
            self._process.join()
            raise RuntimeError(f"a worker ended with exit code {self._process.exitcode}") from ended
        if error:
            raise RuntimeError(error)
        return result

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.terminate()


def set_environment(device: str, precision: str, threads: int | None) -> None:
    """What workers inherit; to be called before the first is started."""
    chosen: Mapping[str, str] = {
        "TOKENIZERS_PARALLELISM": "false",
        "ACCELERATE_MIXED_PRECISION": {"fp32": "no"}.get(precision, precision),  # Trainer's
        "GLUE_BENCH_PRECISION": {"fp32": "float32"}.get(precision, precision),
        # One card: transformers' Trainer would spread a batch over all that it sees.
        "CUDA_VISIBLE_DEVICES": "" if device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
        **({"OMP_NUM_THREADS": str(threads)} if threads else {}),
    }
    os.environ.update(chosen)


def _serve(pipe: Connection, make: Callable[..., Round], arguments: tuple[Any, ...]) -> None:
    import torch
    import torch._dynamo  # an optimiser's first use imports it: it belongs to the imports of all contenders

    from glue_bench.training.compute import peak_bytes, reset_peak

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reset_peak(device)
    imports = 0 if torch.cuda.is_available() else _resident_bytes()
    work: Round | None = None
    while (steps := _receive(pipe)) is not None:
        try:
            work = work or make(*arguments)
            result = work(steps)
            peak = peak_bytes(device)
            pipe.send((result | {"peak_bytes": None if peak is None else peak - imports}, None))
        except Exception:
            pipe.send((None, traceback.format_exc()))


def _receive(pipe: Connection) -> int | None:
    try:
        return pipe.recv()
    except EOFError:
        return None


def _resident_bytes() -> int:
    """Resident set size now; 0 where /proc does not tell, and then nothing tells the peak either."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
