"""Full precision for a while, for cells that left the numbers in a lower one."""

from collections.abc import Iterator
from contextlib import contextmanager

from glue_bench.training.loop import accelerator


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
