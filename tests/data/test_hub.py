"""The dataset repository, on the hub and as a clone, against the same content as TSV."""

import errno
import json
import shutil
import time
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
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


def load(folder: Path, task: str) -> TaskData:
    return open_source(str(folder)).load(task)


def clone(
    folder: Path, task: str = "rte", split: str = "train", names: tuple[str, ...] = (), **data
) -> Path:
    """Write one split as the dataset repository does; `names` go into the file's own ClassLabel."""
    path = folder / task / f"{split}-00000-of-00001.parquet"
    dataset = datasets.Dataset.from_dict(data)
    dataset = (
        dataset.cast_column("label", datasets.ClassLabel(names=list(names))) if names else dataset
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.to_parquet(path)
    return folder


def test_clone_and_tsv_of_equal_content_have_equal_digests(tmp_path, write):
    """Labels are mapped by name."""
    copy = clone(
        tmp_path / "clone", names=("not_entailment", "entailment"), **RTE_ROWS | {"label": [1, 0]}
    )
    # GLUE does not publish the labels of its test splits.
    clone(copy, split="test", sentence1=["e"], sentence2=["f"], label=[1], idx=[0])
    clone(
        copy,
        "stsb",
        "validation",
        sentence1=["a", "c"],
        sentence2=["b", "d"],
        label=np.float32([3.8, 2.667]),
    )
    files = {"RTE/train.tsv": RTE_TSV, "RTE/test.tsv": "index\tsentence1\tsentence2\n0\te\tf\n"}
    files["STS-B/dev.tsv"] = "sentence1\tsentence2\tscore\na\tb\t3.800\nc\td\t2.667\n"
    classic = write(files)
    assert open_source(str(copy)).kind == "hub"
    assert open_source(str(copy)).tasks() == ["stsb", "rte"]
    for task in ("rte", "stsb"):
        from_parquet = load(copy, task)
        from_tsv = load(classic, task)
        assert from_parquet.digest == from_tsv.digest
        for split, frame in from_tsv.splits.items():
            pd.testing.assert_frame_equal(from_parquet.splits[split], frame, check_exact=True)


@pytest.mark.parametrize(
    "names", [("00000-of-00003", "00002-of-00003"), ("00000-of-00001", "00000-of-00002")]
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
        ({"sentence2": []}, "split train: no column sentence2; found sentence1, label, idx"),
        ({"names": ("yes", "no")}, "label names yes, no; expected entailment, not_entailment"),
        ("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        ("something else", r"cannot read .*rte.*; expected Parquet files"),
    ],
)
def test_a_clone_with_bad_rows_or_damaged_files_is_refused(change, message, tmp_path):
    content = RTE_ROWS | (change if isinstance(change, dict) else {})
    clone(tmp_path, **{name: column for name, column in content.items() if column})
    if isinstance(change, str):
        (tmp_path / "rte" / "train-00000-of-00001.parquet").write_text(change)
    with pytest.raises(UserError, match=message):
        load(tmp_path, "rte")
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


def test_rows_of_the_cache_are_read_if_the_hub_is_unreachable(tmp_path, monkeypatch):
    copy = clone(tmp_path / "clone", names=("entailment", "not_entailment"), **RTE_ROWS)
    cache_of_rte(copy / "rte" / "train-00000-of-00001.parquet", tmp_path / "datasets-cache")
    with silent_hub(monkeypatch):
        rows = open_source("hub").load("rte").splits["train"]
    assert rows.text_b.tolist() == RTE_ROWS["sentence2"]


def cache_of_rte(train: Path, cache: Path) -> None:
    """Lay rows of RTE down as `datasets` does when it has read them from the hub."""
    datasets.load_dataset("parquet", "rte", data_files={"train": str(train)})
    [info] = cache.glob("parquet/rte-*/*/*/dataset_info.json")
    place = cache / "nyu-mll___glue" / "rte" / "0.0.0" / hub.PINNED
    place.mkdir(parents=True)
    facts = json.loads(info.read_text()) | {"dataset_name": "glue", "config_name": "rte"}
    (place / info.name).write_text(json.dumps(facts))
    shutil.copy(info.with_name("parquet-train.arrow"), place / "glue-train.arrow")


def test_hub_is_asked_for_the_pinned_revision(monkeypatch):
    train = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [1, 0], "idx": [0, 1]})
    train = train.cast_column("label", datasets.ClassLabel(names=["acceptable", "unacceptable"]))
    asked = Mock(return_value=datasets.DatasetDict({"train": train}))
    monkeypatch.setattr(datasets, "load_dataset", asked)
    with slow_hub(0, monkeypatch):
        data = open_source("hub").load("cola")
    asked.assert_called_once_with("nyu-mll/glue", "cola", revision=hub.PINNED)
    expected = [["a", 0], ["b", 1]]
    assert data.splits["train"].to_numpy().tolist() == expected
    assert data.revision == hub.PINNED
    # `datasets` wraps the error of the system.
    asked.side_effect = datasets.exceptions.DatasetGenerationError("an error occurred")
    asked.side_effect.__cause__ = OSError(errno.ENOSPC, "full")
    with pytest.raises(
        DiskError, match=r"cannot keep .*, task rte: No space left .*make room in the cache"
    ):
        open_source("hub").load("rte")
    asked.side_effect = OfflineModeIsEnabled("offline mode is enabled")
    with pytest.raises(
        UserError, match=r"cannot read nyu-mll/glue of the hub, .*offline.*--data PATH"
    ):
        open_source("hub").load("rte")
