"""Files of records: JSON objects that are read as typed values, and arrays."""

import gc
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from glue_bench.errors import UserError, quoted
from glue_bench.files import NO_FILE, check_file, is_damage, parse_json, read_file
from glue_bench.records.record import Record
from glue_bench.records.value import SCHEMA_VERSION, StoredValue

Stamp = tuple[int, int, int]
Value = TypeVar("Value", bound=StoredValue)


LARGEST_ARRAYS = 2**31


class DamagedError(UserError):
    """A file that no run has left as it is now."""


def stamp(path: Path) -> Stamp:
    """What changes whenever a file is written anew."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def dump(document: Mapping[str, Any]) -> bytes:
    """A JSON object as its file has it."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def load(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        UserError: the file cannot be read.
        DamagedError: it is no plain file, or holds no JSON object.
    """
    try:
        value = parse_json(read_file(path))
    except OSError as error:
        kind = DamagedError if error.errno in NO_FILE else UserError
        raise kind(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise DamagedError(f"{path}: not valid JSON ({error}); delete it and run again") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path}: not a JSON object; delete it and run again")
    return value


def read_value(kind: type[Value], path: Path) -> Value:
    """The value that a file holds. A record without a digest, of an earlier version, is held to its form only.

    Raises:
        UserError: the file cannot be read, lacks a key or has another schema version.
        DamagedError: it holds no JSON object, a key has a value that no run writes, or a record was edited.
    """
    document = load(path)
    missing = [name for name, field in kind.model_fields.items() if field.is_required() and name not in document]
    if missing:
        raise UserError(f"{path}: it lacks {', '.join(sorted(missing))}; delete it and run again")
    if "schema_version" in kind.model_fields and document["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema version {quoted(document['schema_version'])}, this glue-bench reads {SCHEMA_VERSION}; "
            "delete it and run again, or use the version that wrote it"
        )
    edited = f"{path}: edited since the run wrote it; delete it and run again"
    try:
        value = kind.model_validate(document)
        digest = record_digest(document) if "digest" in kind.model_fields else ""
    except (ValidationError, ValueError) as error:  # ValueError: an infinite number where any value may stand
        raise DamagedError(edited) from error
    if getattr(value, "digest", None) not in (None, digest):
        raise DamagedError(edited)
    if isinstance(value, Record) and value.cell_id != path.stem:
        raise DamagedError(edited)
    return value


def record_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of a record's content, by which an edited one is told from the one that the run wrote."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def shrunk(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same values, each array in the smallest type of its kind that holds all of them exactly."""
    found = {}
    for name, values in arrays.items():
        kind = values.dtype.kind
        tried = (values.astype(f"{kind}{size}") for size in ((2, 4, 8) if kind == "f" else (1, 2, 4, 8)))
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and differs
            found[name] = next(small for small in tried if np.array_equal(small, values, equal_nan=True))
    return found


def widened(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays that were `shrunk`, as 64-bit floats and integers again: small integers would overflow in a sum."""
    return {name: values.astype(f"{values.dtype.kind}8") for name, values in arrays.items()}


def dump_arrays(arrays: Mapping[str, np.ndarray], **said: str) -> bytes:
    """Arrays as their file has them, with what is `said` of them."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, said or None)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of predictions or labels.

    Raises:
        UserError: the file is missing or damaged, or cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        check_file(path, LARGEST_ARRAYS)
        return load_file(path)
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:  # of types that NumPy has not
        advice = "; delete it and its records and run again" if is_damage(error) else ""
        raise UserError(f"{path.parent.name}/{path.name}: cannot be read ({error}){advice}") from error


def load_numbers(path: Path) -> dict[str, np.ndarray]:
    """Arrays that were stored `shrunk`, as they were before.

    Raises:
        UserError: as `load_arrays`, or they are not all numbers.
    """
    arrays = load_arrays(path)
    if others := [name for name, values in arrays.items() if values.dtype.kind not in "fiu"]:
        file = f"{path.parent.name}/{path.name}"
        raise UserError(f"{file}: {', '.join(sorted(others))} are no numbers; delete it and its record and run again")
    return widened(arrays)


def load_losses(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of validation losses, as `Store.read_validation` returns them.

    Raises:
        UserError: as `load_arrays`, or they are not the losses and the counts of pieces.
    """
    found = load_arrays(path)
    losses = {name: found.get(name, np.empty(())) for name in ("loss_sum", "count", "document")}
    arrays = list(losses.values())
    kinds = [array.dtype.kind.replace("u", "i") for array in arrays]
    alike = arrays[0].ndim == 1 and len({array.shape for array in arrays}) == 1
    if not alike or kinds != ["f", "i", "i"] or not arrays[1].sum():
        file = f"{path.parent.name}/{path.name}"
        raise UserError(f"{file}: it does not hold the losses of pieces; delete it and its record and run again")
    return widened(losses)


@contextmanager
def without_collections() -> Iterator[None]:
    """Without garbage collections, which take a third of the time to read 2,000 records and find nothing in them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
