"""Arrays on disk: in few bytes, with a digest, and with what they belong to in the header of their file."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import LARGEST_ARRAYS, check_file, is_damage

Arrays = Mapping[str, np.ndarray]


def shrunk(arrays: Arrays) -> dict[str, np.ndarray]:
    """The same values, each array in the smallest type of its kind that holds all of them exactly."""
    smallest = {}
    for name, values in arrays.items():
        kind = values.dtype.kind
        tried = (
            values.astype(f"{kind}{size}") for size in ((2, 4, 8) if kind == "f" else (1, 2, 4, 8))
        )
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and differs
            smallest[name] = next(
                small for small in tried if np.array_equal(small, values, equal_nan=True)
            )
    return smallest


def widened(arrays: Arrays) -> dict[str, np.ndarray]:
    """Arrays that were `shrunk`, as 64-bit floats and integers again: small integers would overflow in a sum."""
    return {name: values.astype(f"{values.dtype.kind}8") for name, values in arrays.items()}


def arrays_digest(arrays: Arrays) -> str:
    """SHA-256 of names, types, shapes and values, whatever the order of the names."""
    total = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        total.update(
            f"{name} {values.dtype.str} {values.shape} ".encode()
            + np.ascontiguousarray(values).tobytes()
        )
    return total.hexdigest()


def dump(arrays: Arrays, **metadata: str) -> bytes:
    """Arrays as their file has them, with the `metadata` in its header."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, metadata)


def read_arrays(
    folder: Path, name: str, *, holds: str | None = None, **metadata: str
) -> dict[str, np.ndarray]:
    """The arrays of numbers in a file that anyone may have made.

    Raises UserError for one that cannot be read, is damaged, has other `metadata` in its header, or does not hold the
    arrays of this digest.
    """
    from safetensors import SafetensorError, safe_open

    again = f"delete {'it' if 'data' in metadata else 'its folder'} and run again"
    try:
        check_file(folder / name, LARGEST_ARRAYS)
        with safe_open(folder / name, "numpy") as file:
            says = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no mapping)
        if others := sorted(
            key for key, values in arrays.items() if values.dtype.kind not in "fiu"
        ):
            raise ValueError(f"{', '.join(others)} are no numbers")
    except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        reason = (
            getattr(error, "strerror", None) or error
        )  # the last three are of types that NumPy has not
        raise UserError(
            f"{name}: cannot be read ({reason}){f'; {again}' if is_damage(error) else ''}"
        ) from error
    if any(says.get(what) != digest for what, digest in metadata.items()):
        raise UserError(
            f"{name}: it belongs to {'other data' if 'data' in metadata else 'another run'}; {again}"
        )
    if holds not in (None, arrays_digest(arrays)):
        raise UserError(f"{name}: changed since the run wrote it; {again}")
    return arrays


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata in the header of a file that `read_arrays` has read without an error."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        return dict(file.metadata() or {})
