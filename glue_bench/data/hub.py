"""`nyu-mll/glue` at a pinned revision, from the hub or from a local clone of the repository."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.task_data import TaskData
from glue_bench.data.tasks import TASKS, Task, find_task
from glue_bench.data.tsv import SCORES, needed_splits, unlabelled
from glue_bench.errors import DiskError, UserError, first_line, quoted
from glue_bench.files import check_file, disk_trouble

REPOSITORY = "nyu-mll/glue"
PINNED = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
LFS_POINTER = b"version https://git-lfs"
LARGEST = 2**40  # bytes of a file: large enough for anything that Parquet reads in parts


class HubSource:
    """The dataset repository on the hub; nothing is fetched before the first `load`."""

    kind = "hub"
    revision: str | None = PINNED

    def tasks(self) -> list[str]:
        return list(TASKS)

    def load(self, task: str) -> TaskData:
        import datasets

        row = find_task(task)
        quiet()
        try:
            loaded = datasets.load_dataset(REPOSITORY, row.name, revision=PINNED)
        except Exception as error:  # httpx, huggingface_hub, datasets and OSError: no common base
            if said := disk_trouble(error):
                raise DiskError(f"cannot keep {REPOSITORY}, task {row.name}: {said}; make room in the cache") from error
            instead = "give a folder instead: --data PATH (classic TSV layout, or a clone of the dataset repository)"
            raise UserError(
                f"cannot reach the hub for {REPOSITORY}, task {row.name} ({first_line(error)}); {instead}"
            ) from error
        return replace(to_task_data(row, loaded, f"{REPOSITORY}/{row.name}"), revision=PINNED)


class CloneSource:
    """A local clone of the dataset repository: `cola/train-00000-of-00001.parquet` and so on; a part of it, too."""

    kind = "hub"
    revision: str | None = None  # that of a working copy is not known for certain; the digest of the data tells

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tasks(self) -> list[str]:
        return [name for name, task in TASKS.items() if self._is_present(task)]

    def load(self, task: str) -> TaskData:
        row = find_task(task)
        if not self._is_present(row):
            looked = ", ".join(f"{row.name}/{split}-*.parquet" for split in needed_splits(row))
            raise UserError(f"no {row.title} data in {self.folder}; looked for {looked}")
        files = {split: paths for split in row.splits if (paths := self._files(row.name, split))}
        for split, paths in files.items():
            _check_shards(split, paths)
        where = str(self.folder / row.name)
        return to_task_data(row, _read_parquet(files, where), where, self._readme_names(row.name))

    def _files(self, task: str, split: str) -> list[Path]:
        return sorted((self.folder / task).glob(f"{split}-*.parquet"))

    def _is_present(self, task: Task) -> bool:
        return any(self._files(task.name, split) for split in needed_splits(task))

    def _readme_names(self, task: str) -> Sequence[str] | None:
        """Label names by id from the YAML head of README.md, or None where it does not say."""
        from datasets.info import DatasetInfosDict

        readme = self.folder / "README.md"
        try:
            if readme.exists():
                check_file(readme)
            quiet()
            infos = DatasetInfosDict.from_directory(str(self.folder))
        except Exception as error:  # whatever the YAML and feature parsers raise on a damaged README
            raise UserError(f"cannot read {readme}: {first_line(error)}") from error
        features = infos[task].features if task in infos else None
        return getattr((features or {}).get("label"), "names", None)


def _read_parquet(files: Mapping[str, list[Path]], where: str) -> Any:
    import datasets

    # Not by the README's configs: those insist on every split, and a partial clone is welcome here.
    data_files = {split: [str(path.absolute()) for path in paths] for split, paths in files.items()}
    quiet()
    try:
        return datasets.load_dataset("parquet", data_files=data_files, verification_mode="no_checks")
    except Exception as error:  # datasets wraps Arrow's errors in several classes of its own
        cause = error.__cause__ or error
        raise UserError(f"cannot read {where}: {first_line(cause)}; expected Parquet files of {REPOSITORY}") from error


def _check_shards(split: str, paths: list[Path]) -> None:
    """Refuse a split of which a file is missing or cannot be read, or that is there twice: its rows change places."""
    shards = [re.fullmatch(rf"{split}-(\d+)-of-(\d+)\.parquet", path.name) for path in paths]
    found = [(int(shard[1]), int(shard[2])) for shard in shards if shard]
    if found and found != [(number, len(paths)) for number in range(len(paths))]:
        names = ", ".join(path.name for path in paths)
        raise UserError(f"{paths[0].parent}: split {split} is not whole, or is there twice ({names}); clone it again")
    for path in paths:
        try:
            check_file(path, LARGEST)
            with path.open("rb") as file:
                is_pointer = file.read(len(LFS_POINTER)) == LFS_POINTER
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        if is_pointer:
            raise UserError(f"{path}: a Git LFS pointer, not the data; run 'git lfs pull' in the clone")


def to_task_data(task: Task, loaded: Mapping[str, Any], where: str, names: Sequence[str] | None = None) -> TaskData:
    """What a `DatasetDict` holds; `where` starts the messages of UserError.

    `names` are label names by id; without them the dataset's own ClassLabel is taken, and without that the ids already
    have the order of `Task.labels`. Test labels are dropped: MRPC's are on the hub, but GLUE does not publish them.
    """
    present = (split for split in task.splits if split in loaded)
    frames = {split: _frame(task, split, loaded[split], f"{where}, split {split}", names) for split in present}
    return TaskData(task.name, "hub", frames)


def _frame(task: Task, split: str, dataset: Any, where: str, names: Sequence[str] | None) -> pd.DataFrame:
    labelled = split not in task.test_splits
    wanted = [*task.texts, *(["label"] if labelled else [])]
    missing = [name for name in wanted if name not in dataset.column_names]
    if missing:
        raise UserError(f"{where}: no column {', '.join(missing)}; found {', '.join(dataset.column_names)}")
    if not len(dataset):
        raise UserError(f"{where}: no rows; expected at least one")
    columns = [_texts(dataset, name, where) for name in task.texts]
    data: dict[str, object] = dict(zip(("text_a", "text_b"), columns, strict=False))
    names = names or getattr(dataset.features.get("label"), "names", None) or task.labels
    data["label"] = _labels(task, dataset, where, names) if labelled else unlabelled(task, len(dataset))
    return pd.DataFrame(data)


def _texts(dataset: Any, name: str, where: str) -> list[str]:
    texts = dataset.data.column(name).to_pylist()
    bad = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if bad is not None:
        raise UserError(f"{where}, row {bad}: column {name} holds {quoted(texts[bad])}; expected text")
    return texts


def _labels(task: Task, dataset: Any, where: str, names: Sequence[str]) -> np.ndarray:
    """Labels (rows,): scores, or ids translated by name into the order of `Task.labels`."""
    values = dataset.data.column("label").to_pylist()
    if task.is_regression:
        good = [isinstance(value, float) and SCORES[0] <= value <= SCORES[1] for value in values]
        permitted = f"a number from {SCORES[0]:g} to {SCORES[1]:g}"
    else:
        if set(names) != set(task.labels):
            raise UserError(f"{where}: label names {', '.join(names)}; expected {', '.join(task.labels)}")
        good = [isinstance(value, int) and 0 <= value < len(names) for value in values]
        permitted = f"an id from 0 to {len(names) - 1}"
    if not all(good):
        row = good.index(False)
        raise UserError(f"{where}, row {row}: bad label {quoted(values[row])}; expected {permitted}")
    if task.is_regression:
        return np.round(np.array(values, dtype=np.float64), 6)  # undo what float32 adds to 3.8
    return np.array([task.labels.index(name) for name in names], dtype=np.int64)[values]


def quiet() -> None:
    """No progress bars and no log lines of `datasets` and `huggingface_hub`, from here on in this process."""
    import datasets

    datasets.disable_progress_bars()
    for name in ("datasets", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
