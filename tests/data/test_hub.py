"""The dataset repository, on the hub and as a clone, against the same content as TSV."""

import errno
from collections.abc import Callable
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from glue_bench.data import hub
from glue_bench.data.sources import open_source
from glue_bench.data.task_data import TaskData, split_digest
from glue_bench.data.tasks import TASKS
from glue_bench.errors import DiskError, UserError

Writer = Callable[[dict[str, str | bytes]], Path]


def load(folder: Path, task: str) -> TaskData:
    return open_source(str(folder)).load(task)


def rows(data: TaskData, split: str) -> list[list[object]]:
    return data.splits[split].to_numpy().tolist()


README = """---
dataset_info:
- config_name: rte
  features:
  - name: sentence1
    dtype: string
  - name: sentence2
    dtype: string
  - name: label
    dtype:
      class_label:
        names:
          '0': {}
          '1': {}
  - name: idx
    dtype: int32
  splits:
  - name: train
    num_examples: 2490
configs:
- config_name: rte
  data_files:
  - split: train
    path: rte/train-*
  - split: validation
    path: rte/validation-*
---
# GLUE
"""
RTE_ROWS = {"sentence1": ["a", "c "], "sentence2": ['"b', "d\u2028"], "label": [0, 1], "idx": [0, 1]}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


def clone(folder: Path, task: str = "rte", split: str = "train", names: tuple[str, ...] = (), **data: list) -> Path:
    """Write one split as the dataset repository does; `names` go into the file's own ClassLabel."""
    path = folder / task / f"{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    if names:
        dataset = datasets.Dataset.from_dict(data).cast_column("label", datasets.ClassLabel(names=list(names)))
        pq.write_table(dataset.data.table, path)
    else:
        pq.write_table(pa.table(data), path)
    return folder


def test_clone_and_tsv_of_equal_content_have_equal_digests(tmp_path: Path, write: Writer) -> None:
    test = "index\tsentence1\tsentence2\n0\te\tf\n"
    copy = clone(tmp_path / "clone", names=("entailment", "not_entailment"), **RTE_ROWS)
    clone(copy, split="test", sentence1=["e"], sentence2=["f"], label=[-1], idx=[0])
    text = 'index\tsentence1\tsentence2\tlabel\n0\ta\t"b\tentailment\n1\tc \td\u2028\tnot_entailment\n'
    classic = load(write({"RTE/train.tsv": text, "RTE/test.tsv": test}), "rte")
    data = load(copy, "rte")
    assert (data.source, open_source(str(copy)).kind, open_source(str(copy)).tasks()) == (
        "hub",
        "hub",
        ["rte"],
    )
    assert data.digest == classic.digest
    assert split_digest("train", data.splits["train"]) == split_digest("train", classic.splits["train"])
    pd.testing.assert_frame_equal(data.splits["train"], classic.splits["train"])


def test_stsb_of_a_clone_equals_the_tsv(tmp_path: Path, write: Writer) -> None:
    copy = tmp_path / "clone" / "stsb"
    copy.mkdir(parents=True)
    score = pa.array([3.8, 2.667], pa.float32())
    table = pa.table({"sentence1": ["a", "c"], "sentence2": ["b", "d"], "label": score})
    pq.write_table(table, copy / "validation-00000-of-00001.parquet")
    text = "sentence1\tsentence2\tscore\na\tb\t3.800\nc\td\t2.667\n"
    classic = load(write({"STS-B/dev.tsv": text}), "stsb")
    data = load(tmp_path / "clone", "stsb")
    pd.testing.assert_frame_equal(data.splits["validation"], classic.splits["validation"], check_exact=True)
    assert data.digest == classic.digest


@pytest.mark.parametrize("where", ["file", "readme"])
@pytest.mark.parametrize("order", [("entailment", "not_entailment"), ("not_entailment", "entailment")])
def test_labels_are_mapped_by_name(where: str, order: tuple[str, str], tmp_path: Path) -> None:
    clone(tmp_path, names=order if where == "file" else (), **RTE_ROWS)
    if where == "readme":
        (tmp_path / "README.md").write_text(README.format(*order))
    expected = [TASKS["rte"].labels.index(name) for name in order]
    assert load(tmp_path, "rte").splits["train"]["label"].tolist() == expected


def test_hub_test_labels_are_dropped(tmp_path: Path) -> None:
    data = {"sentence1": ["a"], "sentence2": ["b"], "label": [1]}
    clone(clone(tmp_path, "mrpc", **data), "mrpc", "test", **data)
    assert load(tmp_path, "mrpc").splits["test"]["label"].tolist() == [-1]


@pytest.mark.parametrize("names", [("00000-of-00003", "00002-of-00003"), ("00000-of-00001", "00000-of-00002")])
def test_a_clone_without_all_files_of_a_split_is_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    """Rows that are missing, or there twice, would shift every later prediction of a test split."""
    whole = clone(clone(tmp_path, **RTE_ROWS), split="test", **RTE_ROWS) / "rte" / "test-00000-of-00001.parquet"
    content = whole.read_bytes()
    whole.unlink()
    for name in names:
        (whole.parent / f"test-{name}.parquet").write_bytes(content)
    with pytest.raises(UserError, match=f"split test is not whole, or is there twice .*test-{names[1]}"):
        load(tmp_path, "rte")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": [0, 2]}, "split train, row 1: bad label 2; expected an id from 0 to 1"),
        ({"label": [-1, 0]}, "split train, row 0: bad label -1"),
        ({"sentence2": ["b", None]}, "split train, row 1: column sentence2 holds None; expected text"),
        ({"sentence2": []}, "split train: no column sentence2; found sentence1, label, idx"),
    ],
)
def test_bad_clone(change: dict, message: str, tmp_path: Path) -> None:
    content = {name: column for name, column in {**RTE_ROWS, **change}.items() if column}
    with pytest.raises(UserError) as caught:
        load(clone(tmp_path, **content), "rte")
    assert message in str(caught.value)


def test_clone_with_strange_label_names_or_files(tmp_path: Path) -> None:
    clone(tmp_path, names=("yes", "no"), **RTE_ROWS)
    with pytest.raises(UserError, match="label names yes, no; expected entailment, not_entailment"):
        load(tmp_path, "rte")
    file = tmp_path / "rte" / "train-00000-of-00001.parquet"
    file.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UserError, match="Git LFS pointer"):
        load(tmp_path, "rte")
    file.write_text("something else")
    with pytest.raises(UserError, match=r"cannot read .*rte.*; expected Parquet files"):
        load(tmp_path, "rte")
    with pytest.raises(UserError, match=r"no WNLI data in .*wnli/train-\*\.parquet"):
        load(tmp_path, "wnli")


def test_damaged_readme(tmp_path: Path) -> None:
    (clone(tmp_path, **RTE_ROWS) / "README.md").write_text("---\ndataset_info: [\n---\n")
    with pytest.raises(UserError, match=r"cannot read .*README\.md"):
        load(tmp_path, "rte")


def test_hub_is_asked_for_the_pinned_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(*names: str, **options: str) -> datasets.DatasetDict:
        asked.append((names, options))
        train = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [1, 0], "idx": [0, 1]})
        train = train.cast_column("label", datasets.ClassLabel(names=["acceptable", "unacceptable"]))
        return datasets.DatasetDict({"train": train})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = open_source("hub").load("cola")
    assert asked == [(("nyu-mll/glue", "cola"), {"revision": hub.PINNED})]
    assert rows(data, "train") == [["a", 0], ["b", 1]]
    assert data.revision == hub.PINNED


def test_a_full_disk_is_no_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: str, **__: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DiskError, match=r"cannot keep nyu-mll/glue, task cola: .*make room in the cache"):
        open_source("hub").load("cola")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Couldn't reach 'nyu-mll/glue' on the Hub (LocalEntryNotFoundError)"),
        OfflineModeIsEnabled("offline mode is enabled"),
        datasets.exceptions.DatasetNotFoundError("Dataset 'nyu-mll/glue' doesn't exist\non the Hub"),
    ],
)
def test_hub_out_of_reach(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(UserError, match=r"cannot reach the hub for nyu-mll/glue.*--data PATH") as caught:
        open_source("hub").load("rte")
    assert "\n" not in str(caught.value)
