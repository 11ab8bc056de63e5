"""Submissions: no zip from data whose label ids have another order, and both files or neither."""

import numpy as np
import pytest

from glue_bench.board.board import open_board
from glue_bench.data.submission import FILES
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.publish.submission import write_submission

SWAPPED = "label ids in another order: 0 is not_entailment, 1 is entailment"


@pytest.fixture
def add_run(bench):
    """A function that adds a run of RTE with test predictions; `data` are facts of the task."""

    def add(**data):
        bench.record(bench.expect("rte"), 0.5, data={"source": "tsv", "digest": "d", **data})
        shape = (FILES["RTE.tsv"].rows, TASKS["rte"].num_labels)
        bench.predict(bench.cells[-1]["cell_id"], {"test": np.zeros(shape)})
        return bench.plan()

    return add


@pytest.mark.parametrize("split", ["train", "validation"])
def test_data_with_label_ids_in_another_order_are_refused(add_run, tmp_path, split):
    folder = add_run(partial=True, differences={split: SWAPPED})
    with pytest.raises(UserError) as refused:
        write_submission(open_board(folder), tmp_path / "add.zip", fill=True)
    assert str(refused.value) == (
        f"RTE: its {split} split has {SWAPPED}; the site would read every prediction by the "
        "official ids; number the labels 0 entailment, 1 not_entailment, and run the experiment "
        "again"
    )
    assert list(tmp_path.glob("add.*")) == []


def test_other_differences_of_the_data_are_not_refused(add_run, tmp_path):
    folder = add_run(partial=True, differences={"validation": "other rows"})
    write_submission(open_board(folder), tmp_path / "add.zip", fill=True)
    assert (tmp_path / "add.zip").exists()


def test_without_its_manifest_a_zip_is_not_written(add_run, tmp_path):
    (tmp_path / "add.json").mkdir()
    with pytest.raises(UserError, match="cannot write to"):
        write_submission(open_board(add_run()), tmp_path / "add.zip", fill=True)
    assert [path.name for path in tmp_path.glob("*add*")] == ["add.json"]
