"""Files of a results folder: values with their own digest, and arrays with that of what they belong to."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import check_json, is_damage, read_file
from glue_bench.records.arrays import arrays_digest, dump_arrays, read_arrays, shrunk
from glue_bench.records.plan import Plan
from glue_bench.records.value import Sealed
from glue_bench.records.values import Failure, PretrainingRecord, Record

LARGEST = 2**27
"""Bytes of a plan at most: one of 50,000 cells has 40 million."""
Kind = TypeVar("Kind", Plan, Record, PretrainingRecord)


@dataclass(frozen=True)
class Labels:
    """Of one task's data: gold labels by scored split, (rows,), and by baseline and split what it predicts, (rows,)."""

    gold: Mapping[str, np.ndarray]
    baselines: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    def file(self, data: str) -> bytes:
        """Its file, which names the digest of the data."""
        arrays = {f"gold/{split}": values for split, values in self.gold.items()}
        for name, by_split in self.baselines.items():
            arrays |= {f"{name}/{split}": values for split, values in by_split.items()}
        return dump_arrays(shrunk(arrays), data=data)


def read_sealed(kind: type[Kind], folder: Path, name: str) -> Kind:
    """The value in a file of a folder, if its digest is that of the file.

    Raises:
        UserError: the file cannot be read, or is not as it was written.
    """
    try:
        content = read_file(folder / name, LARGEST)
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror}); delete it and run again") from error
    try:
        value = kind.model_validate_json(check_json(content))
    except ValueError as error:
        raise UserError(f"{name}: damaged or edited; delete it and run again") from error
    if not Sealed.is_whole(content):
        raise UserError(f"{name}: edited since the run wrote it; delete it and run again")
    return value


def read_failure(path: Path) -> Failure:
    """Why a job failed; of a file that cannot be read, that."""
    try:
        return Failure.model_validate_json(check_json(read_file(path)))
    except (OSError, ValueError) as error:
        return Failure(id=path.stem, error=f"failures/{path.name} cannot be read: {type(error).__name__}")


def read_beside(
    folder: Path, name: str, record: Record | PretrainingRecord, digest: str | None
) -> dict[str, np.ndarray]:
    """The arrays in a file beside a record, which names their digest; none where it names none.

    Raises:
        UserError: the file is missing or damaged, or another run's.
    """
    if digest is None:
        return {}
    arrays, said = _read(folder, name)
    if said.get("record") != record.digest:
        raise UserError(f"{name}: it belongs to another run; delete its folder and run again")
    if arrays_digest(arrays) != digest:
        raise UserError(f"{name}: changed since the run wrote it; delete its folder and run again")
    return arrays


def read_labels(folder: Path, name: str, data: str) -> tuple[Labels, str]:
    """The labels in a file of data with this digest, and the `arrays_digest` of the file.

    Raises:
        UserError: the file is damaged, or of other data.
    """
    arrays, said = _read(folder, name)
    by_name: dict[str, dict[str, np.ndarray]] = {}
    for key, values in arrays.items():
        kind, _, split = key.rpartition("/")
        by_name.setdefault(kind, {})[split] = values
    if said.get("data") != data or "gold" not in by_name:
        raise UserError(f"{name}: labels of other data; delete the file and run again")
    return Labels(by_name.pop("gold"), by_name), arrays_digest(arrays)


def _read(folder: Path, name: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        return read_arrays(folder / name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = "; delete it and run again" if is_damage(error) else ""
        raise UserError(f"{name}: cannot be read ({reason}){advice}") from error


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
