"""What every data source is read into."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from glue_bench.data.official import OFFICIAL, difference, split_digest
from glue_bench.data.tasks import TASKS

UNLABELLED = -1
LIMITED = ", limited to"
HELD_OUT_SEED = 0  # one slice for all arms, rates and seeds


def is_demo(source: str) -> bool:
    """Whether the `source` of a task's data is the demo, whole or limited."""
    return source.startswith("demo")


@dataclass(frozen=True)
class TaskData:
    """All splits of one task.

    `splits` maps a split's name to a frame with the columns `text_a`, `text_b` (absent for tasks of one sentence) and
    `label`: a class id in the order of `Task.labels`, a float for regression, or UNLABELLED. `source` is the kind of
    source, never a path. `skipped` counts malformed rows left out of splits. `revision` is that of the hub, if known.
    """

    task: str
    source: str
    splits: Mapping[str, pd.DataFrame]
    skipped: Mapping[str, int] = field(default_factory=dict)
    revision: str | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every split's rows in order: equal content, equal digest, whatever the source."""
        total = hashlib.sha256()
        for name in sorted(self.splits):
            total.update(self.split_digests[name].encode())
        return total.hexdigest()

    @cached_property
    def split_digests(self) -> dict[str, str]:
        """SHA-256 of each split's rows in order."""
        return {name: split_digest(name, frame) for name, frame in self.splits.items()}

    @cached_property
    def differences(self) -> dict[str, str]:
        """How splits of the official size differ from the official ones, by split; empty for official rows.

        Splits whose official digest is not known are `unchecked`. Rows of the pinned revision of the hub are official.
        """
        if self._is_made_up or self.revision is not None:
            return {}
        differences = {}
        for split, official in OFFICIAL[self.task].items():
            if split in self._whole_splits and not self.split_digests[split].startswith(
                official.rows
            ):
                differences[split] = difference(self.task, split, self.splits[split], official)
        return differences

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Splits of the official size whose content could not be compared with the official one."""
        if self._is_made_up or self.revision is not None:
            return ()
        return tuple(split for split in self._whole_splits if split not in OFFICIAL[self.task])

    @property
    def partial(self) -> bool:
        """Whether any split is not the official one, by size or by `differences`; made-up data is always partial."""
        missing = TASKS[self.task].splits.keys() - set(self._whole_splits)
        return self._is_made_up or bool(missing or self.differences)

    @property
    def _is_made_up(self) -> bool:
        return self.source.startswith("demo")

    @property
    def _whole_splits(self) -> list[str]:
        """Splits of the official size, in the order of the task's."""
        official = TASKS[self.task].splits
        return [
            name for name, split in official.items() if len(self.splits.get(name, ())) == split.rows
        ]


class Source(ABC):
    """Where `TaskData` comes from: `kind` is "demo", "hub" or "tsv"; `revision` is None if unknown."""

    kind: str
    revision: str | None = None

    def tasks(self) -> list[str]:
        """Those of which a split with labels is there (of AX the test split), in the order of TASKS."""
        return list(TASKS)

    @abstractmethod
    def load(self, task: str) -> TaskData:
        """All splits of a task that are there. UserError if it is absent or its content is bad, with the place."""


def limited(data: TaskData, rows: int, *, train_alone: bool = False) -> TaskData:
    """The task with at most `rows` rows of train and of each validation split, drawn at random and kept in order.

    Fewer rows are among more. With `train_alone` validation splits stay whole. Test splits, which a submission reads
    line by line, always do. `source` says what was done, wherever anything was, and the digest follows the rows.
    """
    cut = {}
    for name, frame in data.splits.items():
        if len(frame) > rows and (name == "train" if train_alone else not name.startswith("test")):
            chosen = np.sort(np.random.default_rng(0).permutation(len(frame))[:rows])
            cut[name] = frame.iloc[chosen].reset_index(drop=True)
    if not cut:
        return data
    what = "rows of train" if train_alone else "rows"
    return replace(
        data, source=f"{data.source}{LIMITED} {rows} {what}", splits={**data.splits, **cut}
    )


def held_out_rows(rows: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the training rows that are held out, at least one, and of all others; each in order.

    They are drawn at random from `rows` rows, and are the same for all arms, rates and seeds.
    """
    order = np.random.default_rng(HELD_OUT_SEED).permutation(rows)
    count = max(1, round(share * rows))
    return np.sort(order[:count]), np.sort(order[count:])


def known_labels(data: TaskData) -> dict[str, np.ndarray]:
    """The gold labels (rows,) of each scored split whose labels are public."""
    splits = (name for name in TASKS[data.task].validation_splits if name in data.splits)
    labels = {name: data.splits[name]["label"].to_numpy() for name in splits}
    return {
        name: values
        for name, values in labels.items()
        if len(values) and not (values == UNLABELLED).any()
    }
