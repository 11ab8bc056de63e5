"""Arrays on disk: in few bytes, with a digest, and with their record or data in the header."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import MAX_ARRAY_BYTES, check_file, is_damage

Arrays = Mapping[str, np.ndarray]


def shrink(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return copies of arrays, each in the smallest type of its kind that holds its values."""
    smallest = {}
    for name, values in arrays.items():
        kind = values.dtype.kind
        for size in (2, 4, 8) if kind == "f" else (1, 2, 4, 8):
            with np.errstate(over="ignore"):  # a value that is too large becomes infinite
                smallest[name] = values.astype(f"{kind}{size}")
            if np.array_equal(smallest[name], values, equal_nan=True):
                break
    return smallest


def widen(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return `shrink` arrays in 64 bits again: small integers would overflow in a sum."""
    return {name: values.astype(f"{values.dtype.kind}8") for name, values in arrays.items()}


def arrays_digest(arrays: Arrays) -> str:
    """Return the SHA-256 of names, types, shapes and values, whatever the order of the names."""
    total = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        total.update(
            f"{name} {values.dtype.str} {values.shape} ".encode()
            + np.ascontiguousarray(values).tobytes()
        )
    return total.hexdigest()


def dump(arrays: Arrays, **metadata: str) -> bytes:
    """Return the content of a file with arrays, and with `metadata` in its header."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, metadata)


def read_arrays(
    folder: Path, place: str, *, digest: str | None = None, **metadata: str
) -> dict[str, np.ndarray]:
    """Read arrays of numbers from a file that anyone may have made.

    Args:
        folder: the folder of the results.
        place: the place of the file in the folder.
        digest: the `arrays_digest` of the arrays, if it is known.
        **metadata: the values that the header of the file must have.

    Raises:
        UserError: the file cannot be read, is damaged, has another header, or other arrays.
    """
    from safetensors import SafetensorError, safe_open

    is_of_data = "data" in metadata
    advice = f"delete {'it' if is_of_data else 'its folder'} and run again"
    try:
        check_file(folder / place, MAX_ARRAY_BYTES)
        with safe_open(folder / place, "numpy") as file:
            header = file.metadata() or {}
            names = file.keys()
            arrays = {name: file.get_tensor(name) for name in names}
        strange = sorted(name for name in arrays if arrays[name].dtype.kind not in "fiu")
        if strange:
            raise ValueError(f"{', '.join(strange)} are no numbers")
    # NumPy raises the last three errors for types that it does not have.
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or error
        fault = f"cannot be read ({reason})"
        raise UserError(
            f"{place}: {fault}; {advice}" if is_damage(error) else f"{place}: {fault}"
        ) from error
    for key, value in metadata.items():
        if header.get(key) != value:
            owner = "other data" if is_of_data else "another run"
            raise UserError(f"{place}: it belongs to {owner}; {advice}")
    if digest not in (None, arrays_digest(arrays)):
        raise UserError(f"{place}: changed since the run wrote it; {advice}")
    return arrays


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata in the header of a file that `read_arrays` has read without an error."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        return dict(file.metadata() or {})
