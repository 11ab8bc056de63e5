"""Submissions: classes by their names, however data number them, and both files or neither."""

import zipfile
from pathlib import Path

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
        cell = bench.expect("rte")
        bench.record(cell, score=0.5, data={"source": "tsv", "digest": "d", **data})
        shape = (FILES["RTE.tsv"].rows, TASKS["rte"].num_labels)
        bench.predict(cell["cell_id"], {"test": np.zeros(shape)})
        return bench.plan()

    return add


def labels_in(zip_file: Path, name: str) -> set[str]:
    """Return the labels that a file of a submission has."""
    with zipfile.ZipFile(zip_file) as archive:
        lines = archive.read(name).decode().splitlines()
    return {line.partition("\t")[2] for line in lines[1:]}


@pytest.mark.parametrize("split", ["train", "validation"])
def test_classes_are_written_by_names_where_data_number_them_otherwise(add_run, tmp_path, split):
    folder = add_run(partial=True, differences={split: SWAPPED})
    write_submission(open_board(folder), tmp_path / "add.zip", fill=True)
    assert labels_in(tmp_path / "add.zip", "RTE.tsv") == {"not_entailment"}


def test_official_label_ids_are_written_as_they_are(add_run, tmp_path):
    write_submission(open_board(add_run()), tmp_path / "add.zip", fill=True)
    assert labels_in(tmp_path / "add.zip", "RTE.tsv") == {"entailment"}


def test_a_finished_model_predicts_classes_whatever_ids_the_data_have(bench, tmp_path):
    cell = bench.expect("rte", seed=0, arm="clf", variant="finished", origin="finished", rate=0.0)
    facts = {"source": "tsv", "digest": "d", "partial": True, "differences": {"train": SWAPPED}}
    bench.record(cell, score=0.8, data=facts)
    bench.predict(cell["cell_id"], {"test": np.zeros((FILES["RTE.tsv"].rows, 2))})
    arm = {"name": "clf", "variant": "finished", "checkpoint": "org/clf"}
    folder = bench.plan(config={"arms": [arm]})
    write_submission(open_board(folder), tmp_path / "clf.zip", fill=True)
    assert labels_in(tmp_path / "clf.zip", "RTE.tsv") == {"entailment"}


def test_data_with_label_ids_in_two_orders_are_refused(add_run, tmp_path):
    rows = {split: official.rows for split, official in TASKS["rte"].splits.items()}
    folder = add_run(partial=True, rows=rows, differences={"validation": SWAPPED})
    with pytest.raises(UserError) as refused:
        write_submission(open_board(folder), tmp_path / "add.zip", fill=True)
    assert str(refused.value) == (
        "RTE: its splits train and validation number the labels in two orders, so that no "
        "prediction has a meaning; number the labels 0 entailment, 1 not_entailment in both, and "
        "run the experiment again"
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
