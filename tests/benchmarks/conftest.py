"""The benchmarks are scripts: what they share is found beside them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))


@pytest.fixture(autouse=True)
def _own_accelerator() -> Iterator[None]:
    """Trainer sets accelerate's state of the process; other tests' cells want their own."""
    yield
    from glue_bench.training.runtime import settle_anew

    settle_anew()
