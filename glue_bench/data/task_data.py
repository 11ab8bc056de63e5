"""What every data source is read into."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from glue_bench.data.official import OFFICIAL, difference, split_digest
from glue_bench.data.task import OWN, Task
from glue_bench.data.tasks import TASKS, find_task

UNLABELLED = -1
TEXT_COLUMNS = ("text_a", "text_b")
"""The columns of a frame that have the texts, in the order of `Task.texts`."""
LIMITED = ", limited to"
HELD_OUT_SEED = 0
"""Decides one slice for all arms, rates and seeds."""


def is_demo(source: str) -> bool:
    """Whether the `source` of a task's data is the demo, whole or limited."""
    return source.startswith("demo")


@dataclass(frozen=True)
class TaskData:
    """All splits of one task.

    Attributes:
        task: The name of the task.
        source: The kind of source, never a path.
        splits: A frame by the name of its split, with the columns `text_a`, `text_b` (absent for
            tasks of one sentence) and `label`: a class id in the order of `Task.labels`, a float
            for regression, or UNLABELLED.
        skipped: How many malformed rows of a split are left out.
        revision: That of the hub, if known.
        clusters: The number of each row's cluster (rows,), by split, where the task names a column
            that is none of its texts.
        definition: The `definition` of the task, by which these rows were read.
    """

    task: str
    source: str
    splits: Mapping[str, pd.DataFrame]
    skipped: Mapping[str, int] = field(default_factory=dict)
    revision: str | None = None
    clusters: Mapping[str, np.ndarray] = field(default_factory=dict)
    definition: str = ""

    @property
    def row(self) -> Task:
        """The task itself."""
        return find_task(self.task)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every split's rows in order: equal content, equal digest, in any source.

        It covers the definition of a task that is not GLUE's.
        """
        total = hashlib.sha256()
        total.update(self.definition.encode())
        for name in sorted(self.splits):
            total.update(self.split_digests[name].encode())
        return total.hexdigest()

    @cached_property
    def split_digests(self) -> dict[str, str]:
        """SHA-256 of each split's rows in order."""
        return {name: split_digest(name, frame) for name, frame in self.splits.items()}

    @cached_property
    def differences(self) -> dict[str, str]:
        """The difference of each split that has the official size and other content.

        It is empty for official rows. Splits whose official digest is not known are `unchecked`.
        Rows of the pinned revision of the hub are official.
        """
        if self._is_made_up or self.revision is not None:
            return {}
        differences: dict[str, str] = {}
        for split, official in OFFICIAL.get(self.task, {}).items():
            if split not in self._whole_splits:
                continue
            if not self.split_digests[split].startswith(official.rows):
                frame = self.splits[split]
                differences[split] = difference(self.task, split, frame, official)
        return differences

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Splits of the official size that could not be compared with the official ones."""
        if self._is_made_up or self.revision is not None or self.row.benchmark == OWN:
            return ()
        known_digests = OFFICIAL.get(self.task, {})
        return tuple(split for split in self._whole_splits if split not in known_digests)

    @property
    def partial(self) -> bool:
        """Whether any split is not the official one, by size or by `differences`.

        Made-up data is always partial, and the rows of a user's own task never are.
        """
        missing = self.row.splits.keys() - set(self._whole_splits)
        return self._is_made_up or bool(missing or self.differences)

    @property
    def _is_made_up(self) -> bool:
        return is_demo(self.source)

    @property
    def _whole_splits(self) -> list[str]:
        """Splits of the official size, in the order of the task's."""
        whole_splits: list[str] = []
        for name, official in self.row.splits.items():
            if not official.rows or len(self.splits.get(name, ())) == official.rows:
                whole_splits.append(name)
        return whole_splits


class Source(ABC):
    """Where `TaskData` comes from.

    `kind` is "demo", "hub" or "tsv"; `revision` is None if unknown.
    """

    kind: str
    revision: str | None = None

    def tasks(self) -> list[str]:
        """Return GLUE's tasks that are there, in the order of TASKS.

        A task is there if a split with labels is (of AX the test split).
        """
        return list(TASKS)

    @abstractmethod
    def load(self, task: str) -> TaskData:
        """Read all splits of a task that are there.

        Raises UserError if the task is absent or its content is bad, with the place.
        """


def limit_rows(data: TaskData, rows: int, *, train_alone: bool = False) -> TaskData:
    """Cut a task to at most `rows` rows of train and of each validation split.

    Rows are drawn at random and kept in order. The rows of a smaller limit are among those of a
    larger one. Test splits always stay whole: a submission reads them line by line.

    Args:
        data: The task.
        rows: How many rows to keep.
        train_alone: Leave validation splits whole.

    Returns:
        The task, whose `source` says what was done if anything was; the digest follows the rows.
    """
    cut_splits: dict[str, pd.DataFrame] = {}
    clusters = dict(data.clusters)
    for name, frame in data.splits.items():
        can_be_cut = name == "train" if train_alone else not name.startswith("test")
        if can_be_cut and len(frame) > rows:
            order = np.random.default_rng(0).permutation(len(frame))
            chosen = np.sort(order[:rows])
            cut_splits[name] = frame.iloc[chosen].reset_index(drop=True)
            if name in clusters:
                clusters[name] = clusters[name][chosen]
    if not cut_splits:
        return data
    unit = "rows of train" if train_alone else "rows"
    source = f"{data.source}{LIMITED} {rows} {unit}"
    splits = {**data.splits, **cut_splits}
    return replace(data, source=source, splits=splits, clusters=clusters)


def joined_digest(digests: Sequence[str]) -> str | None:
    """Return one digest of several: of one the same, of none None."""
    if len(digests) < 2:
        return next(iter(digests), None)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def held_out_rows(rows: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Choose the training rows that are held out, at random from `rows` rows.

    They are the same for all arms, rates and seeds.

    Returns:
        The numbers of the rows that are held out, at least one, and those of the remaining rows;
        each in order.
    """
    order = np.random.default_rng(HELD_OUT_SEED).permutation(rows)
    count = max(1, round(share * rows))
    return np.sort(order[:count]), np.sort(order[count:])


def cluster_numbers(data: TaskData) -> dict[str, np.ndarray]:
    """Return the number of each example's cluster, (rows,), by split with public labels.

    Examples of a cluster share the text, or the value of the column, that the task names. A task
    that names none has no split.
    """
    task = data.row
    numbers: dict[str, np.ndarray] = {}
    if not task.cluster:
        return numbers
    for name in known_labels(data):
        if name in data.clusters:
            names: np.ndarray | pd.Series = data.clusters[name]
        else:
            names = data.splits[name][TEXT_COLUMNS[task.texts.index(task.cluster)]]
        numbers[name] = pd.factorize(names)[0]
    return numbers


def known_labels(data: TaskData) -> dict[str, np.ndarray]:
    """Return the gold labels (rows,) of each scored split whose labels are public."""
    labels_by_split: dict[str, np.ndarray] = {}
    for name in data.row.validation_splits:
        if name not in data.splits:
            continue
        labels = data.splits[name]["label"].to_numpy()
        is_unlabelled = labels == UNLABELLED
        # A score may be -1, of which a split without labels has nothing else.
        lacks_labels = is_unlabelled.all() if data.row.is_regression else is_unlabelled.any()
        if len(labels) and not lacks_labels:
            labels_by_split[name] = labels
    return labels_by_split
