"""The demo with few rows, for what a fixture runs once for many tests.

A single test takes the fixture `small_demo`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from glue_bench.data import demo

FEW_ROWS = {"train": 48, "validation": 24, "test": 12}
"""By the kind of split."""


@contextmanager
def few_rows() -> Iterator[None]:
    """Let the demo have FEW_ROWS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "ROWS", FEW_ROWS)
        demo.generate.cache_clear()
        yield
    demo.generate.cache_clear()
