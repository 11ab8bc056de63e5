"""Predictions in half of the room: what is stored is what was scored."""

import io

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file

from glue_bench.api import run
from glue_bench.audit.verify import verify
from glue_bench.data.metrics import score_logits
from glue_bench.records.store import Store


@pytest.mark.usefixtures("small_demo")
def test_scores_are_those_of_the_rounded_predictions(tiny, tmp_path):
    experiment = tiny(tasks=["stsb"], arms=["add"], seeds=[1])
    halved = tiny(tasks=["stsb"], arms=["add"], seeds=[1], finetuning={"predictions": "float16"})
    stores = []
    for name, each in (("whole", experiment), ("half", halved)):
        run(each, results=tmp_path / name, console=Console(file=io.StringIO()))
        stores.append(Store(tmp_path / name / experiment["name"]))
    whole, half = ((store, store.scan_records()[0][0]) for store in stores)
    assert whole[1].cell_id != half[1].cell_id

    (path,) = (half[0].folder / "predictions").glob("*.safetensors")
    assert {values.dtype for values in load_file(path).values()} == {np.dtype("float16")}
    exact, rounded = (store.read_predictions(record.cell_id)["validation"] for store, record in (whole, half))
    assert rounded.dtype == np.float32
    np.testing.assert_array_equal(rounded, exact.astype(np.float16).astype(np.float32))

    labels = half[0].read_labels("stsb", half[1].data.digest)["validation"]
    assert half[1].scores["validation"] == score_logits("stsb", rounded, labels)
    assert half[1].scores != whole[1].scores
    assert [each.faults for each in verify(half[0].folder)] == [[]]
