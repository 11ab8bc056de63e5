"""Arrays of numbers in a file, with what is said of them; their digest."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glue_bench.files import LARGEST_ARRAYS, check_file


def shrunk(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same values, each array in the smallest type of its kind that holds all of them exactly."""
    smallest = {}
    for name, values in arrays.items():
        kind = values.dtype.kind
        tried = (values.astype(f"{kind}{size}") for size in ((2, 4, 8) if kind == "f" else (1, 2, 4, 8)))
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and differs
            smallest[name] = next(small for small in tried if np.array_equal(small, values, equal_nan=True))
    return smallest


def widened(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays that were `shrunk`, as 64-bit floats and integers again: small integers would overflow in a sum."""
    return {name: values.astype(f"{values.dtype.kind}8") for name, values in arrays.items()}


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and values, whatever the order of the names."""
    total = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        total.update(f"{name} {values.dtype.str} {values.shape} ".encode() + np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


def dump_arrays(arrays: Mapping[str, np.ndarray], **said: str) -> bytes:
    """Arrays as their file has them, with what is `said` of them."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, said)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of numbers in a file that anyone may have made, and what it says of them.

    Raises:
        OSError: it is no plain file, or cannot be read.
        ValueError: it is damaged, or holds something else.
    """
    from safetensors import SafetensorError, safe_open

    check_file(path, LARGEST_ARRAYS)
    try:
        with safe_open(path, "numpy") as file:
            said = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, LookupError, TypeError, AttributeError) as error:  # of types that NumPy has not
        raise ValueError(str(error)) from error
    if others := sorted(name for name, values in arrays.items() if values.dtype.kind not in "fiu"):
        raise ValueError(f"{', '.join(others)} are no numbers")
    return arrays, said
