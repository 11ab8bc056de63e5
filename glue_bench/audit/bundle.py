"""Experiments in one archive for others, and what is in one that anybody may have made.

A bundle has the plan (with the experiment's configuration), records, predictions, gold labels, failures and tables.
Models, checkpoints and half-written files stay behind. The same content gives the same bytes.
"""

import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Literal

from glue_bench.errors import UserError
from glue_bench.files import (
    ENCRYPTED,
    LARGEST_ARRAYS,
    UNREADABLE,
    check_file,
    check_json,
    opened_zip,
    plain_entry,
    read_file,
    whole_file,
)
from glue_bench.records.stored import Stored
from glue_bench.records.value import Digest, Sealed, Text, Value, Whole

MANIFEST = "manifest.json"
LARGEST_BUNDLE, LARGEST_MANIFEST = 2**40, 2**26
NO_BUNDLE = "not a bundle that `glue-bench export` wrote"
DAMAGED = "the bundle is damaged; get it anew"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,239}"
PLACE = re.compile(
    rf"{_NAME}/(plan\.json|{_NAME}\.(md|csv)|(failures/{_NAME}\.json)|(labels/{_NAME}\.safetensors)"
    rf"|(cells|pretrainings)/{_NAME}/(record\.json|(logits|tests|losses|sums)\.safetensors))"
)
"""What a bundle may have a file of, and nowhere else."""


class Summed(Value):
    """Size and SHA-256 of a file."""

    bytes: Whole
    sha256: Digest


class Manifest(Sealed):
    """What a bundle says of itself; `files` are by EXPERIMENT/FILE."""

    format: Literal["glue-bench bundle"] = "glue-bench bundle"
    glue_bench: Text
    files: dict[Text, Summed]

    @property
    def experiments(self) -> list[str]:
        """The names of the experiments in it."""
        return sorted({name.partition("/")[0] for name in self.files})


def write_bundle(stores: Iterable[Stored], path: Path) -> Manifest:
    """Write the experiments' files and their manifest, which is returned. `path` is either whole or as it was.

    Nothing is compressed: logits hardly can be, and compressors differ between builds of zlib.

    Raises:
        UserError: two experiments have one name, a plan is damaged, or a file cannot be read or written.
    """
    files = sorted(_files(stores).items())
    sums: dict[str, Summed] = {}
    try:
        with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, source in files:
                try:
                    content = read_file(source, LARGEST_ARRAYS)
                except FileNotFoundError:  # a sweep under way has replaced it, or finished what had failed
                    continue
                sums[name] = summed(io.BytesIO(content))
                archive.writestr(plain_entry(name), content)
            manifest = Manifest(glue_bench=version("glue-bench"), files=sums).seal()
            archive.writestr(plain_entry(MANIFEST), manifest.file())
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror or error}") from error
    return manifest


def _files(stores: Iterable[Stored]) -> dict[str, Path]:
    """The files of experiments that belong into a bundle, by their names in it."""
    found: dict[str, Path] = {}
    for store in stores:
        store.plan()  # what is wrong with it is said with its own path
        folder = store.folder.resolve()
        if f"{folder.name}/plan.json" in found:
            raise UserError(f"two of the folders have one name ({folder.name}); give each experiment once")
        if not PLACE.fullmatch(f"{folder.name}/plan.json"):
            raise UserError(f"'{folder.name}' cannot be the name of a folder on every system; rename it")
        files = (path for path in folder.rglob("*") if path.is_file())
        named = {path.relative_to(folder.parent).as_posix(): path for path in files}
        found |= {name: path for name, path in named.items() if PLACE.fullmatch(name)}
    return found


def summed(file: IO[bytes], to: IO[bytes] | None = None) -> Summed:
    """Size and SHA-256 of a file, copied `to` another, of which only a part is in memory at a time."""
    total, size = hashlib.sha256(), 0
    while block := file.read(2**20):
        total.update(block)
        size += len(block)
        if to:
            to.write(block)
    return Summed(bytes=size, sha256=total.hexdigest())


@dataclass(frozen=True)
class Opened:
    """A bundle's content in a folder, its manifest, and a line about each file that is not as the manifest has it."""

    folder: Path
    manifest: Manifest
    faults: tuple[str, ...]


@contextmanager
def opened_bundle(path: Path) -> Iterator[Opened]:
    """A bundle, or the folder that one was unpacked into. Files that no bundle has are not touched.

    Raises:
        UserError: it is no zip or has no manifest that can be read, or there is no room to unpack it.
    """
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
        manifest = _manifest(read_file(path / MANIFEST, LARGEST_MANIFEST), path)
        yield Opened(path, manifest, tuple(_faults(manifest, names, partial(_open_file, path), None)))
        return
    with TemporaryDirectory(prefix="glue-bench-verify-") as folder:
        try:
            check_file(path, LARGEST_BUNDLE)
            with opened_zip(path) as archive:
                _check_sizes(archive, path)
                manifest = _manifest(archive.read(MANIFEST), path)
                names = [entry.filename for entry in archive.infolist()]
                faults = tuple(_faults(manifest, names, archive.open, Path(folder)))
        except KeyError as error:
            raise UserError(f"'{path}' is {NO_BUNDLE}: it has no {MANIFEST}") from error
        except OSError as error:
            raise UserError(f"cannot unpack '{path}': {error.strerror or error}") from error
        except UNREADABLE as error:
            raise UserError(f"'{path}' is {NO_BUNDLE}, or damaged ({str(error).lower()})") from error
        yield Opened(Path(folder), manifest, faults)


def _check_sizes(archive: zipfile.ZipFile, path: Path) -> None:
    """Nothing in a bundle is compressed, so that nothing unpacks to more than the archive has."""
    entries, size = archive.infolist(), path.stat().st_size
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED:
            raise UserError(f"{path}: {entry.filename} is compressed or encrypted; {NO_BUNDLE}")
    if sum(entry.file_size for entry in entries) > size or archive.getinfo(MANIFEST).file_size > LARGEST_MANIFEST:
        raise UserError(f"{path}: its files are larger than the archive, or its manifest is too large; {NO_BUNDLE}")


def _manifest(content: bytes, path: Path) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(check_json(content))
    except ValueError as error:
        raise UserError(f"{path}: {MANIFEST} is no manifest, or damaged; {DAMAGED}") from error
    if not Sealed.is_whole(content):
        raise UserError(f"{path}: {MANIFEST} was changed after it was written; {DAMAGED}")
    return manifest


def _open_file(folder: Path, name: str) -> IO[bytes]:
    check_file(folder / name, LARGEST_ARRAYS)
    return (folder / name).open("rb")


def _faults(
    manifest: Manifest, names: Iterable[str], opened: Callable[[str], IO[bytes]], folder: Path | None
) -> Iterator[str]:
    """Compare each file with the manifest, and copy it to the folder; a line about each that differs, or is missing."""
    counts = Counter(name for name in names if name != MANIFEST)
    for name, count in counts.items():
        if count > 1:
            yield f"{name}: {count} times in the bundle; {DAMAGED}"
        if name not in manifest.files:
            yield f"{name}: not in the manifest; take it away"
    for name, expected in manifest.files.items():
        if not PLACE.fullmatch(name):
            yield f"{name}: a bundle has no file of such a name; {DAMAGED}"
        elif name not in counts:
            yield f"{name}: missing; {DAMAGED}"
        else:
            if folder:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = (folder / name).open("wb") if folder else nullcontext()
            try:
                with copy as to, opened(name) as file:
                    same = summed(file, to) == expected
            except UNREADABLE as error:
                yield f"{name}: cannot be read ({error}); {DAMAGED}"
            else:
                if not same:
                    yield f"{name}: not what the manifest has a digest of; {DAMAGED}"
