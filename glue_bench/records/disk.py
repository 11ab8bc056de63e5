"""Files of a results folder: values with their own digest, and arrays with that of what they belong to."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import LARGEST_ARRAYS, check_file, check_json, is_damage, read_file
from glue_bench.records.plan import Plan
from glue_bench.records.value import Sealed
from glue_bench.records.values import Failure, PretrainingRecord, Record

LARGEST = 2**27
"""Bytes of a plan at most: one of 50,000 cells has 40 million."""
Kind = TypeVar("Kind", Plan, Record, PretrainingRecord)
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Labels:
    """Of one task's data: gold labels by scored split, (rows,), and by baseline and split what it predicts, (rows,)."""

    gold: Arrays
    baselines: Mapping[str, Arrays] = field(default_factory=dict)

    def file(self, data: str) -> bytes:
        """Its file, which names the digest of the data."""
        named = {"gold": self.gold, **self.baselines}
        arrays = {f"{name}/{split}": values for name, splits in named.items() for split, values in splits.items()}
        return dump_arrays(shrunk(arrays), data=data)


def shrunk(arrays: Arrays) -> dict[str, np.ndarray]:
    """The same values, each array in the smallest type of its kind that holds all of them exactly."""
    smallest = {}
    for name, values in arrays.items():
        kind = values.dtype.kind
        tried = (values.astype(f"{kind}{size}") for size in ((2, 4, 8) if kind == "f" else (1, 2, 4, 8)))
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and differs
            smallest[name] = next(small for small in tried if np.array_equal(small, values, equal_nan=True))
    return smallest


def widened(arrays: Arrays) -> dict[str, np.ndarray]:
    """Arrays that were `shrunk`, as 64-bit floats and integers again: small integers would overflow in a sum."""
    return {name: values.astype(f"{values.dtype.kind}8") for name, values in arrays.items()}


def arrays_digest(arrays: Arrays) -> str:
    """SHA-256 of names, types, shapes and values, whatever the order of the names."""
    total = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        total.update(f"{name} {values.dtype.str} {values.shape} ".encode() + np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


def dump_arrays(arrays: Arrays, **said: str) -> bytes:
    """Arrays as their file has them, with what is `said` of them."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, said)


def read_arrays(folder: Path, name: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of numbers in a file that anyone may have made, and what it says of them.

    Raises:
        UserError: it cannot be read, is damaged, or holds something else.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_file(folder / name, LARGEST_ARRAYS)
        with safe_open(folder / name, "numpy") as file:
            said = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no mapping)
        if others := sorted(key for key, values in arrays.items() if values.dtype.kind not in "fiu"):
            raise ValueError(f"{', '.join(others)} are no numbers")
    except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or error  # the last three are of types that NumPy has not
        advice = "; delete it and run again" if is_damage(error) else ""
        raise UserError(f"{name}: cannot be read ({reason}){advice}") from error
    return arrays, said


def read_beside(folder: Path, name: str, record: Record | PretrainingRecord, digest: str) -> dict[str, np.ndarray]:
    """The arrays in a file beside a record, which names their digest.

    Raises:
        UserError: the file is missing or damaged, or another run's.
    """
    arrays, said = read_arrays(folder, name)
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
    arrays, said = read_arrays(folder, name)
    by_name: dict[str, dict[str, np.ndarray]] = {}
    for key, values in arrays.items():
        kind, _, split = key.rpartition("/")
        by_name.setdefault(kind, {})[split] = values
    if said.get("data") != data or "gold" not in by_name:
        raise UserError(f"{name}: labels of other data; delete the file and run again")
    return Labels(by_name.pop("gold"), by_name), arrays_digest(arrays)


def read_sealed(kind: type[Kind], folder: Path, name: str) -> Kind:
    """The value in a file of a folder, if its digest is that of the file.

    Raises:
        UserError: the file cannot be read, or is not as it was written.
    """
    try:
        content = read_file(folder / name, LARGEST)
        value = kind.model_validate_json(check_json(content))
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror}); delete it and run again") from error
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


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
