"""Files of records that cannot be read: only what is damaged is to be deleted."""

import numpy as np
import pytest

from glue_bench.errors import UserError
from glue_bench.records.disk import dump_arrays, load_arrays
from glue_bench.records.predicted import PredictedTests


@pytest.mark.parametrize("reading", ["arrays", "test predictions"])
def test_arrays_that_may_not_be_read_are_not_to_be_deleted(tmp_path, monkeypatch, reading):
    def denied(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "a.safetensors").write_bytes(dump_arrays({"test": np.zeros((2, 2), dtype=np.float32)}))
    monkeypatch.setattr("safetensors.numpy.load_file", denied)
    monkeypatch.setattr("safetensors.safe_open", denied)
    with pytest.raises(UserError, match=r"a\.safetensors: .*Permission denied") as caught:
        load_arrays(tmp_path / "a.safetensors") if reading == "arrays" else PredictedTests(tmp_path).read("a")
    assert "delete" not in str(caught.value)
