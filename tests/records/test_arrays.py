"""Arrays on disk: as few bytes as hold them exactly, 64 bits again where they are read, and a digest of all of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from glue_bench.records.arrays import arrays_digest, dump_arrays, read_arrays, shrunk, widened

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


ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 2), np.int8)}


def test_arrays_are_read_as_they_were_written_with_what_is_said_of_them(tmp_path):
    (tmp_path / "a").write_bytes(dump_arrays({**ARRAYS, "turned": ARRAYS["a"].T}, record="r"))
    found, said = read_arrays(tmp_path / "a")
    assert said == {"record": "r"}
    np.testing.assert_array_equal(found.pop("turned"), ARRAYS["a"].T)
    assert arrays_digest(found) == arrays_digest(ARRAYS)


@pytest.mark.parametrize(
    "other",
    [
        {"a": ARRAYS["a"], "c": ARRAYS["b"]},
        {"a": ARRAYS["a"]},
        ARRAYS | {"a": ARRAYS["a"].reshape(3, 2)},
        ARRAYS | {"a": ARRAYS["a"].astype(np.float64)},
        ARRAYS | {"a": ARRAYS["a"].view(np.int32)},
        ARRAYS | {"a": -ARRAYS["a"] * -1 + np.float32(1e-45)},
        {},
    ],
)
def test_names_types_shapes_and_values_are_in_the_digest(other):
    assert arrays_digest(other) != arrays_digest(ARRAYS) == arrays_digest(dict(reversed(ARRAYS.items())))


@pytest.mark.parametrize("content", [b"", b"{}", bytes(8), b"\xff" * 100, dump_arrays({"a": np.array([True])})])
def test_what_holds_no_numbers_is_refused(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_arrays(tmp_path / "a")
