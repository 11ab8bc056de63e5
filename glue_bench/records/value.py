"""What all on disk has in common: values of known fields alone, arrays in few bytes, both with digests; their origin.

The origin of a record is the machine and the code that made it. It is recorded, never hashed.
"""

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from glue_bench.errors import UserError, plain, shortened
from glue_bench.files import LARGEST_ARRAYS, check_file, check_json, is_damage

NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*$"
Word = Annotated[str, StringConstraints(pattern=f"^{NAME}", max_length=240)]  # it may be part of a file's name
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", max_length=4096)]
"""One line without control characters, which is fit for a terminal."""
Lines = Annotated[str, AfterValidator(lambda text: shortened(plain(text), 2**16))]
"""What others say, such as an error: control characters become their codes, and what is too long is cut."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]  # a SHA-256
Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Scores = dict[str, dict[str, Annotated[float, Field(gt=-1.000001, lt=1.000001)] | None]]
"""split -> metric -> value (at most 1); null where the metric is undefined."""
Arrays = Mapping[str, np.ndarray]
DIGEST_FIRST = b'{"digest":"'
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "numpy", "scikit-learn", "scipy")


class Value(BaseModel):
    """A frozen value that is a JSON object on disk. Fields that are None are not written."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def document(self, **options: Any) -> dict[str, Any]:
        """The JSON object, as `json.dumps` takes it; `options` are those of `model_dump`."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, **options)

    @classmethod
    def read(cls, file: bytes) -> Self:
        """The value of a file that anyone may have made. Raises ValueError if it is no such value."""
        return cls.model_validate_json(check_json(file))


class Sealed(Value):
    """A value whose `digest`, its first field, is the SHA-256 of its file, in which the digest itself is left empty."""

    digest: str = ""

    def seal(self) -> Self:
        """The value with the digest of what it says."""
        bare = self.model_copy(update={"digest": ""})
        return bare.model_copy(update={"digest": hashlib.sha256(bare.file()).hexdigest()})

    def file(self) -> bytes:
        """The content of its file."""
        text = json.dumps(self.document(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return f"{text}\n".encode()

    @classmethod
    def read(cls, file: bytes) -> Self:
        """The value of such a file. Raises ValueError if it is none, or has not the digest of what it says."""
        begin, end = len(DIGEST_FIRST), len(DIGEST_FIRST) + 64
        digest = hashlib.sha256(file[:begin] + file[end:]).hexdigest().encode()
        if not file.startswith(DIGEST_FIRST) or digest != file[begin:end]:
            raise ValueError("changed since it was written")
        return super().read(file)


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


def dump(arrays: Arrays, **metadata: str) -> bytes:
    """Arrays as their file has them, with the `metadata` in its header."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, metadata)


def read_arrays(folder: Path, name: str, *, holds: str | None = None, **metadata: str) -> dict[str, np.ndarray]:
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
        if others := sorted(key for key, values in arrays.items() if values.dtype.kind not in "fiu"):
            raise ValueError(f"{', '.join(others)} are no numbers")
    except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or error  # the last three are of types that NumPy has not
        raise UserError(f"{name}: cannot be read ({reason}){f'; {again}' if is_damage(error) else ''}") from error
    if any(says.get(what) != digest for what, digest in metadata.items()):
        raise UserError(f"{name}: it belongs to {'other data' if 'data' in metadata else 'another run'}; {again}")
    if holds not in (None, arrays_digest(arrays)):
        raise UserError(f"{name}: changed since the run wrote it; {again}")
    return arrays


class Environment(Value):
    """Where something was computed. `device` is `cpu`, or the GPU's name."""

    glue_bench: Text | None = None
    git_commit: Text | None = None
    python: Text | None = None
    packages: dict[Text, Text] = Field({})
    platform: Text | None = None
    processor: Text | None = None
    device: Text | None = None
    precision: Text | None = None
    threads: Whole | None = None


@cache
def versions() -> Environment:
    """Versions of glue-bench, Python and the packages it computes with, none of which is imported; and the git commit.

    They are those of the code that is loaded, whatever changes under it. The commit ends in `+changes` where files
    differ from it, and is None outside a checkout: also where the package is only installed within one of something
    else, which does not know its files.
    """
    ours = _git("ls-files", "--error-unmatch", "__init__.py")
    commit = ours and _git("rev-parse", "HEAD")
    if commit and _git("status", "--porcelain", "--untracked-files=no", "."):
        commit += "+changes"
    cpuinfo = Path("/proc/cpuinfo")
    return Environment(
        glue_bench=version("glue-bench"),
        git_commit=commit,
        python=platform.python_version(),
        packages={name: version(name) for name in PACKAGES},
        platform=f"{platform.system()} {platform.machine()}",
        processor=(name_processor(cpuinfo.read_text()) if cpuinfo.is_file() else "") or platform.processor(),
    )


def _git(*arguments: str) -> str | None:
    """What git says of the package's folder, in whatever language and encoding; None where it fails."""
    command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def name_processor(cpuinfo: str) -> str:
    """`AMD EPYC (family 26, model 2)`: the marketing name and what tells generations apart, or "" where it has none.

    Virtual machines shorten the name, so that processors that round differently would have the same one.
    """
    first = dict(re.findall(r"(?m)^(.*?)\s*: (.*)$", cpuinfo.partition("\n\n")[0]))
    name, family, model = (first.get(key, "") for key in ("model name", "cpu family", "model"))
    return f"{name} (family {family}, model {model})" if name and family and model else name
