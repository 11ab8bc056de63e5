"""GLUE's dataset repository is read from the hub and from a clone, like the same content as TSV."""

import errno
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import datasets
import numpy as np
import pandas as pd
import pytest
from helpers.hubs import point_to, silent_hub, slow_hub
from huggingface_hub.errors import OfflineModeIsEnabled

from glue_bench.data import hub
from glue_bench.data.sources import open_source
from glue_bench.data.task_data import TaskData
from glue_bench.errors import DiskError, UserError

RTE_ROWS = {
    "sentence1": ["a", "c "],
    "sentence2": ['"b', "d\u2028"],
    "label": [0, 1],
    "idx": [0, 1],
}
RTE_TSV = (
    'index\tsentence1\tsentence2\tlabel\n0\ta\t"b\tentailment\n1\tc \td\u2028\tnot_entailment\n'
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Give each test a cache of its own."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


def load(folder: Path, task: str) -> TaskData:
    return open_source(str(folder)).load(task)


def clone(
    folder: Path, task: str = "rte", split: str = "train", label_names=None, **columns
) -> Path:
    """Write a split as a file of a clone of the repository, and return the clone.

    With `label_names` the labels are a ClassLabel of these names, as in the repository.
    """
    path = folder / task / f"{split}-00000-of-00001.parquet"
    dataset = datasets.Dataset.from_dict(columns)
    if label_names:
        dataset = dataset.cast_column("label", datasets.ClassLabel(names=label_names))
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.to_parquet(path)
    return folder


def check_equal(from_parquet: TaskData, from_tsv: TaskData) -> None:
    """Check that two sources have the same digest and the same rows."""
    assert from_parquet.digest == from_tsv.digest
    assert from_parquet.splits.keys() == from_tsv.splits.keys()
    for split, frame in from_tsv.splits.items():
        pd.testing.assert_frame_equal(from_parquet.splits[split], frame, check_exact=True)


def test_a_clone_with_labels_of_other_ids_has_the_digest_of_the_same_rows_as_tsv(tmp_path, write):
    """Labels are mapped by their names."""
    copy = clone(
        tmp_path / "clone",
        label_names=["not_entailment", "entailment"],
        **RTE_ROWS | {"label": [1, 0]},
    )
    # GLUE does not publish the labels of its test splits.
    clone(copy, split="test", sentence1=["e"], sentence2=["f"], label=[1], idx=[0])
    test = "index\tsentence1\tsentence2\n0\te\tf\n"
    folder = write({"RTE/train.tsv": RTE_TSV, "RTE/test.tsv": test})
    check_equal(load(copy, "rte"), load(folder, "rte"))


def test_scores_in_float32_are_those_of_the_same_rows_as_tsv(tmp_path, write):
    copy = clone(
        tmp_path / "clone",
        task="stsb",
        split="validation",
        sentence1=["a", "c"],
        sentence2=["b", "d"],
        label=np.float32([3.8, 2.667]),
    )
    rows = "sentence1\tsentence2\tscore\na\tb\t3.800\nc\td\t2.667\n"
    folder = write({"STS-B/dev.tsv": rows})
    check_equal(load(copy, "stsb"), load(folder, "stsb"))


def test_a_clone_is_known_as_one_with_the_tasks_that_it_has(tmp_path):
    clone(tmp_path, **RTE_ROWS)
    clone(tmp_path, task="stsb", sentence1=["a"], sentence2=["b"], label=[1.0])
    source = open_source(str(tmp_path))
    assert source.kind == "hub"
    assert source.tasks() == ["stsb", "rte"]


@pytest.mark.parametrize(
    "names",
    [("00000-of-00003", "00002-of-00003"), ("00000-of-00001", "00000-of-00002")],
    ids=["one is missing", "of two divisions"],
)
def test_a_clone_without_all_files_of_a_split_is_refused(names, tmp_path):
    """Rows that are missing, or there twice, would shift every later prediction of a test split."""
    train = clone(tmp_path, **RTE_ROWS) / "rte" / "train-00000-of-00001.parquet"
    for name in names:
        shutil.copy(train, train.with_name(f"test-{name}.parquet"))
    with pytest.raises(
        UserError, match=f"split test is not whole, or is there twice .*test-{names[1]}"
    ):
        load(tmp_path, "rte")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": [0, 2]}, "split train, row 1: label holds 2; expected an id from 0 to 1"),
        ({"label": [-1, 0]}, "split train, row 0: label holds -1; expected"),
        ({"sentence2": ["b", None]}, "split train, row 1: sentence2 holds None; expected text"),
        (
            {"label_names": ["yes", "no"]},
            "label names yes, no; expected entailment, not_entailment",
        ),
    ],
    ids=["no class", "no label", "no text", "other classes"],
)
def test_a_clone_with_bad_rows_is_refused(change, message, tmp_path):
    clone(tmp_path, **RTE_ROWS | change)
    with pytest.raises(UserError, match=message):
        load(tmp_path, "rte")


def test_a_clone_without_a_column_is_refused(tmp_path):
    columns = {name: column for name, column in RTE_ROWS.items() if name != "sentence2"}
    clone(tmp_path, **columns)
    message = "split train: no column sentence2; found sentence1, label, idx"
    with pytest.raises(UserError, match=message):
        load(tmp_path, "rte")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        ("something else", r"cannot read .*rte.*; expected Parquet files"),
    ],
    ids=["a pointer", "no Parquet"],
)
def test_a_clone_with_a_damaged_file_is_refused(content, message, tmp_path):
    clone(tmp_path, **RTE_ROWS)
    (tmp_path / "rte" / "train-00000-of-00001.parquet").write_text(content)
    with pytest.raises(UserError, match=message):
        load(tmp_path, "rte")


def test_a_task_that_a_clone_does_not_have_is_refused(tmp_path):
    clone(tmp_path, **RTE_ROWS)
    with pytest.raises(UserError, match=r"no WNLI data in .*wnli/train-\*\.parquet"):
        load(tmp_path, "wnli")


def test_an_unreachable_hub_is_reported_in_seconds(monkeypatch):
    """`datasets` asks six times, and waits 23 seconds between."""
    point_to("http://nowhere.invalid", monkeypatch)
    started = time.monotonic()
    with pytest.raises(UserError, match=r"task rte \(http://nowhere.invalid: .*; give a folder"):
        open_source("hub").load("rte")
    assert time.monotonic() - started < 5
    assert not datasets.config.HF_HUB_OFFLINE


def cache_of_rte(train: Path, cache: Path) -> None:
    """Lay rows of RTE down as `datasets` does when it has read them from the hub."""
    datasets.load_dataset("parquet", "rte", data_files={"train": str(train)})
    [info] = cache.glob("parquet/rte-*/*/*/dataset_info.json")
    place = cache / "nyu-mll___glue" / "rte" / "0.0.0" / hub.PINNED
    place.mkdir(parents=True)
    facts = json.loads(info.read_text()) | {"dataset_name": "glue", "config_name": "rte"}
    (place / info.name).write_text(json.dumps(facts))
    shutil.copy(info.with_name("parquet-train.arrow"), place / "glue-train.arrow")


def test_rows_of_the_cache_are_read_if_the_hub_is_unreachable(tmp_path, monkeypatch):
    copy = clone(tmp_path / "clone", label_names=["entailment", "not_entailment"], **RTE_ROWS)
    cache_of_rte(copy / "rte" / "train-00000-of-00001.parquet", tmp_path / "datasets-cache")
    with silent_hub(monkeypatch):
        rows = open_source("hub").load("rte").splits["train"]
    assert rows.text_b.tolist() == RTE_ROWS["sentence2"]


@pytest.fixture
def load_dataset(monkeypatch) -> Iterator[Mock]:
    """Let the hub answer, and `datasets` give two rows of CoLA, whatever it is asked for."""
    train = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [1, 0], "idx": [0, 1]})
    train = train.cast_column("label", datasets.ClassLabel(names=["acceptable", "unacceptable"]))
    load_dataset = Mock(return_value=datasets.DatasetDict({"train": train}))
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with slow_hub(0, monkeypatch):
        yield load_dataset


def test_the_hub_is_asked_for_the_pinned_revision(load_dataset):
    data = open_source("hub").load("cola")
    load_dataset.assert_called_once_with("nyu-mll/glue", "cola", revision=hub.PINNED)
    assert data.revision == hub.PINNED


@pytest.mark.usefixtures("load_dataset")
def test_labels_of_the_hub_are_mapped_by_their_names():
    data = open_source("hub").load("cola")
    assert data.splits["train"].to_numpy().tolist() == [["a", 0], ["b", 1]]


def test_a_full_disk_is_named_although_datasets_wraps_its_error(load_dataset):
    error = datasets.exceptions.DatasetGenerationError("an error occurred")
    error.__cause__ = OSError(errno.ENOSPC, "full")
    load_dataset.side_effect = error
    message = r"cannot keep .*, task rte: No space left .*make room in the cache"
    with pytest.raises(DiskError, match=message):
        open_source("hub").load("rte")


def test_without_the_hub_a_folder_is_advised(load_dataset):
    load_dataset.side_effect = OfflineModeIsEnabled("offline mode is enabled")
    message = r"cannot read nyu-mll/glue of the hub, .*offline.*--data PATH"
    with pytest.raises(UserError, match=message):
        open_source("hub").load("rte")
