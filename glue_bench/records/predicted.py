"""What cells have predicted of splits whose labels are not public, in files of their own."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import check_file, is_damage, write_atomically
from glue_bench.records.disk import dump_arrays


def is_test(split: str) -> bool:
    """Whether a split is only predicted: a test split, or the diagnostic set beside MNLI, which is called like one."""
    return split.startswith("test")


@dataclass(frozen=True)
class Predicted:
    """Logits float32 (rows, labels) by split, and the digest of the diagnostic set where that is among them."""

    logits: Mapping[str, np.ndarray] = field(default_factory=dict)
    diagnostic: str | None = None


class PredictedTests:
    """The test predictions of an experiment's cells: <folder>/<cell_id>.safetensors.

    Each file has a digest of its content and the cell's id, which those of earlier versions lack.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, cell_id: str, predicted: Predicted) -> None:
        """Store what a cell has predicted."""
        arrays = {name: logits.astype(np.float32) for name, logits in predicted.logits.items()}
        known = {"diagnostic": predicted.diagnostic} if predicted.diagnostic else {}
        write_atomically(self._path(cell_id), dump_arrays(arrays, **known, sha256=_digest(arrays), cell=cell_id))

    def read(self, cell_id: str) -> Predicted:
        """What a cell has predicted; nothing where it was not asked to.

        Raises:
            UserError: the file is damaged, or another cell's.
        """
        from safetensors import SafetensorError, safe_open

        path = self._path(cell_id)
        if not path.exists():
            return Predicted()
        try:
            check_file(path, 2**31)
            with safe_open(path, "numpy") as file:
                said = file.metadata() or {}
                logits = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            if said.get("sha256") != _digest(logits):
                raise ValueError("changed since it was written")
            if said.get("cell", cell_id) != cell_id:
                raise ValueError(f"these are the predictions of '{said['cell']}'")
        except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
            advice = "; delete it and predict it again" if is_damage(error) else ""
            raise UserError(f"{self.folder.name}/{path.name}: {error}{advice}") from error
        return Predicted(logits, said.get("diagnostic"))

    def cells(self) -> list[str]:
        """The ids of the cells that have such a file, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.safetensors"))

    def _path(self, cell_id: str) -> Path:
        return self.folder / f"{cell_id}.safetensors"


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].shape}".encode() + arrays[name].tobytes())
    return total.hexdigest()
