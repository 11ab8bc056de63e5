"""Arrays on disk: as few bytes as hold them exactly, and 64 bits again where they are read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from glue_bench.records.disk import shrunk, widened

WIDE = [np.float64, np.int64]


@pytest.mark.parametrize("wide", WIDE)
def test_no_value_changes(wide):
    @given(arrays(wide, (2, 3)))
    def same(values):
        back = widened(shrunk({"x": values}))["x"]
        assert back.dtype == wide
        np.testing.assert_array_equal(back, values)
        known = values == values  # NaN is not itself, and its sign says nothing
        np.testing.assert_array_equal(np.signbit(back[known]), np.signbit(values[known]))

    same()


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([0.0, 0.5, 1.0], np.float16),
        ([0.0, 1 / 3], np.float64),
        ([0.0, 2.0**100], np.float32),
        ([1e300], np.float64),
        ([np.nan, 1.0], np.float16),
        ([127, -128], np.int8),
        ([128], np.int16),
        ([2**40], np.int64),
    ],
)
def test_the_smallest_type_that_holds_all(values, kept):
    assert shrunk({"x": np.array(values)})["x"].dtype == kept
