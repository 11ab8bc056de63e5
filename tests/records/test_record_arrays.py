"""Arrays on disk: a narrow type changes no value, and the digest covers everything."""

import numpy as np
import pytest
from helpers.store_content import is_same
from helpers.stored import DATA, cell_with, plan_with, pretrained_of, pretraining_with, record_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glue_bench.records.arrays import arrays_digest, shrink, widen
from glue_bench.records.store import Store

CELL = cell_with()
PRETRAINING = pretraining_with()


@pytest.mark.parametrize("wide", [np.float64, np.int64])
def test_no_value_of_shrunk_arrays_changes(wide):
    @given(arrays(wide, (2, 3)))
    def stays(values):
        back = widen(shrink({"x": values}))["x"]
        assert back.dtype == wide
        np.testing.assert_array_equal(back, values)
        is_number = values == values  # NaN does not equal itself, and its sign has no meaning
        np.testing.assert_array_equal(np.signbit(back[is_number]), np.signbit(values[is_number]))

    stays()


A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.zeros((0, 2), np.int8)
OTHER_ARRAYS = {
    "another name": {"a": A, "c": B},
    "one array": {"a": A},
    "another shape": {"a": A.reshape(3, 2), "b": B},
    "another type": {"a": A.view(np.int32), "b": B},
    "other values": {"a": A + np.float32(1e-45), "b": B},
}


@pytest.mark.parametrize("change", OTHER_ARRAYS)
def test_names_types_shapes_and_values_are_in_the_digest(change):
    assert arrays_digest(OTHER_ARRAYS[change]) != arrays_digest({"a": A, "b": B})


def test_the_order_of_names_is_not_in_the_digest():
    assert arrays_digest({"b": B, "a": A}) == arrays_digest({"a": A, "b": B})


def read_all(store: Store) -> dict[str, np.ndarray]:
    """Read every array of the cell, of the pretraining, and of the labels of RTE."""
    record = store.record(CELL.id)
    pretrained = store.pretraining(PRETRAINING.id)
    groups = {
        "logits": store.logits(record),
        "tests": store.logits(record, test=True),
        "losses": store.losses(pretrained),
        "sums": store.measure_sums(pretrained),
        **store.labels.read("rte", DATA),
    }
    flat = {}
    for group, arrays_of_group in groups.items():
        for name, values in arrays_of_group.items():
            flat[f"{group}/{name}"] = values
    return flat


INTEGERS = arrays(np.int64, 3, elements=st.integers(-(2**63), 2**63 - 1))
HALVES = st.integers(-2000, 2000).map(lambda number: number / 2)  # exact in float16


@given(
    counts=INTEGERS,
    scores=arrays(np.float64, 3, elements=HALVES),
    outputs=st.sampled_from([np.float16, np.float32]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_array_is_read_in_a_type_to_compute_in_with_the_values_that_were_written(
    store, counts, scores, outputs
):
    """A narrow type saves room on the disk, but a sum or a mean in it would be wrong."""
    logits = {"validation": scores.astype(outputs)}
    tests = {"test": scores.astype(outputs)}
    losses = {"loss_sum": scores, "count": counts, "document": counts}
    labels = {"gold": {"validation": scores}, "bag of words": {"validation": counts}}
    store.write_plan(plan_with(CELL), {"rte": labels})
    store.write(record_of(CELL), logits=logits, tests=tests)
    store.write(pretrained_of(PRETRAINING), losses=losses, sums={"swap_1": scores})
    written = {
        "logits/validation": scores.astype(np.float32),
        "tests/test": scores.astype(np.float32),
        "losses/loss_sum": scores,
        "losses/count": counts,
        "losses/document": counts,
        "sums/swap_1": scores,
        "gold/validation": scores,
        "bag of words/validation": counts,
    }
    assert is_same(read_all(store), written)
