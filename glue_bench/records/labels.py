"""The gold labels of tasks in a results folder, with what trivial baselines predict."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glue_bench.data.tasks import find_task
from glue_bench.files import write_atomically
from glue_bench.records import layout
from glue_bench.records.arrays import (
    Arrays,
    arrays_digest,
    dump,
    read_arrays,
    read_metadata,
    shrink,
    widen,
)

Labels = Mapping[str, Arrays]
"""Labels of one task's data by split, (rows,): `gold`, `clusters`, each baseline's predictions."""
GOLD = "gold"
CLUSTERS = "clusters"
"""The number of each row's cluster, where the task names one."""
HELD_OUT_SHARE = "held_out_share"
"""The key in a file's header for the part of train that its baselines were not fitted on."""
NOTHING_HELD_OUT = "0"
"""The value of HELD_OUT_SHARE if baselines were fitted on all of train."""


class LabelStore:
    """Reads and writes the labels in a results folder.

    Args:
        folder: the results folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, task: str, data: str, labels_digest: str | None = None) -> Labels:
        """Read the labels of a task's data; without a file `gold` is empty.

        Args:
            task: the task of the data.
            data: the digest of the data.
            labels_digest: the digest that a plan gives for these labels.

        Raises:
            UserError: the file cannot be read, is damaged, or has another digest.
        """
        by_kind: dict[str, dict[str, np.ndarray]] = {GOLD: {}}
        place = layout.labels_file(task, data)
        if (self.folder / place).exists():
            stored = read_arrays(self.folder, place, data=data, digest=labels_digest)
            for key, values in widen(stored).items():
                kind, _, split = key.rpartition("/")
                by_kind.setdefault(kind, {})[split] = values
        return by_kind

    def has(
        self, task: str, data: str, held_out_share: float | None, *, with_baselines: bool
    ) -> bool:
        """Return whether labels are stored, with baselines fitted on the rows of a setting.

        A file without the clusters of a task that has them does not count.

        Args:
            task: the task of the data.
            data: the digest of the data.
            held_out_share: the setting.
            with_baselines: whether a file without baselines does not count.

        Raises:
            UserError: the file is damaged.
        """
        stored = self.read(task, data)
        if not stored[GOLD]:
            return False
        if find_task(task).cluster and CLUSTERS not in stored:
            return False
        if with_baselines and not stored.keys() - {GOLD, CLUSTERS}:
            return False
        metadata = read_metadata(self.folder / layout.labels_file(task, data))
        return metadata.get(HELD_OUT_SHARE) == _share_text(held_out_share)

    def fits(self, task: str, data: str, held_out_share: float | None) -> bool:
        """Return whether a file has the header of this setting; see `has` for parameters."""
        metadata = read_metadata(self.folder / layout.labels_file(task, data))
        written = {"data": data, HELD_OUT_SHARE: _share_text(held_out_share)}
        return metadata == written

    def write(self, task: str, data: str, held_out_share: float | None, labels: Labels) -> str:
        """Replace the labels of a task's data; return their digest. See `has` for parameters."""
        flat = {}
        for kind, splits in labels.items():
            for split, values in splits.items():
                flat[f"{kind}/{split}"] = values
        arrays = shrink(flat)
        metadata = {"data": data, HELD_OUT_SHARE: _share_text(held_out_share)}
        write_atomically(self.folder / layout.labels_file(task, data), dump(arrays, **metadata))
        return arrays_digest(arrays)

    def digest(self, task: str, data: str) -> str | None:
        """Return the digest of the stored labels of a task's data; None without a file."""
        place = layout.labels_file(task, data)
        if not (self.folder / place).exists():
            return None
        return arrays_digest(read_arrays(self.folder, place, data=data))


def _share_text(held_out_share: float | None) -> str:
    return str(held_out_share) if held_out_share else NOTHING_HELD_OUT
