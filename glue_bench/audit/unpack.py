"""A bundle that anyone may have made: what is in it against its manifest, and unpacked where it can do no harm."""

import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from glue_bench.audit.bundle import FORMAT, MANIFEST, Manifest, is_place, summed
from glue_bench.data.archive import ENCRYPTED, UNREADABLE
from glue_bench.errors import UserError, quoted
from glue_bench.files import check_file, opened_zip, parse_json
from glue_bench.records.disk import record_digest
from glue_bench.records.value import SCHEMA_VERSION

LARGEST_BUNDLE = 2**40
NO_BUNDLE = "not a bundle that `glue-bench export` wrote"
DAMAGED = "the bundle is damaged; get it anew"


@dataclass(frozen=True)
class Unpacked:
    """A bundle's content in a folder that is gone afterwards, its manifest, and what is wrong with the bundle."""

    folder: Path
    manifest: Mapping[str, Any]
    faults: tuple[str, ...]


@contextmanager
def unpacked(path: Path) -> Iterator[Unpacked]:
    """Unpack a bundle; files that the manifest does not name, or that would lie outside of it, are not.

    Raises:
        UserError: it is no zip or has no manifest that can be read, or there is no room.
    """
    with TemporaryDirectory(prefix="glue-bench-verify-") as folder:
        try:
            check_file(path, LARGEST_BUNDLE)
            with opened_zip(path) as archive:
                manifest = read_manifest(_manifest_bytes(archive, path), path)
                faults = _unpack(archive, manifest, Path(folder), path)
        except zipfile.BadZipFile as error:
            raise UserError(f"'{path}' is {NO_BUNDLE}, or damaged ({str(error).lower()})") from error
        except OSError as error:
            raise UserError(f"cannot unpack '{path}': {error.strerror or error}") from error
        yield Unpacked(Path(folder), manifest, tuple(faults))


def read_manifest(content: bytes, path: Path) -> Mapping[str, Any]:
    """The manifest of a bundle.

    Raises:
        UserError: it is none, damaged, or of another schema version.
    """
    try:
        manifest = parse_json(content)
        Manifest.model_validate(manifest)
        whole = manifest["format"] == FORMAT and manifest["digest"] == record_digest(manifest)
    except ValueError as error:
        raise UserError(f"{path}: {MANIFEST} is no manifest, or damaged; {DAMAGED}") from error
    if not whole:
        raise UserError(f"{path}: {MANIFEST} was changed after it was written; {DAMAGED}")
    if manifest["schema_version"] != SCHEMA_VERSION:
        found = quoted(manifest["schema_version"])
        raise UserError(f"{path}: schema version {found}, this glue-bench reads {SCHEMA_VERSION}")
    return manifest


def compare(manifest: Mapping[str, Any], names: Sequence[str], opened: Callable[[str], IO[bytes]]) -> Iterator[str]:
    """A line about each of the files `names` that is not as the manifest has it, and each that is missing.

    `opened` gives a file to read, or raises a UserError or what damaged zips raise. It is not asked for files that no
    bundle has.
    """
    counts = Counter(names)
    for name, count in counts.items():
        if count > 1:
            yield f"{name}: {count} times in the bundle; {DAMAGED}"
        if name not in manifest["files"]:
            yield f"{name}: not in the manifest; take it away"
    for name, expected in manifest["files"].items():
        if name not in counts:
            yield f"{name}: missing; {DAMAGED}"
            continue
        try:
            if not is_place(name):
                raise UserError("a bundle has no file of such a name")
            with opened(name) as file:
                found = summed(file)
            if found != expected:
                yield f"{name}: not what the manifest has a digest of; {DAMAGED}"
        except (*UNREADABLE, UserError) as error:
            yield f"{name}: cannot be read ({error}); {DAMAGED}"


def _manifest_bytes(archive: zipfile.ZipFile, path: Path) -> bytes:
    try:
        entry = archive.getinfo(MANIFEST)
        _check_entry(entry, path.stat().st_size)
        return archive.read(entry)
    except KeyError as error:
        raise UserError(f"'{path}' is {NO_BUNDLE}: it has no {MANIFEST}") from error
    except UNREADABLE as error:
        raise UserError(f"{path}: {MANIFEST} cannot be read ({error}); {DAMAGED}") from error


def _unpack(archive: zipfile.ZipFile, manifest: Mapping[str, Any], folder: Path, path: Path) -> list[str]:
    """Write what can be read into the folder; a line about each fault."""
    entries = [entry for entry in archive.infolist() if entry.filename != MANIFEST]
    size = path.stat().st_size
    if sum(entry.file_size for entry in entries) > size:
        raise UserError(f"{path}: its files are larger than the archive; {NO_BUNDLE}")

    def opened(name: str) -> IO[bytes]:
        _check_entry(archive.getinfo(name), size)
        return archive.open(name)

    names = [entry.filename for entry in entries]
    for name in filter(is_place, manifest["files"].keys() & set(names)):
        with suppress(*(kind for kind in (*UNREADABLE, UserError) if kind is not OSError)):  # which a full disk raises
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with opened(name) as entry, (folder / name).open("wb") as file:
                shutil.copyfileobj(entry, file)
    return list(compare(manifest, names, opened))


def _check_entry(entry: zipfile.ZipInfo, size: int) -> None:
    """Nothing in a bundle is compressed, so that nothing unpacks to more than the archive has.

    Raises:
        UserError: it is compressed, encrypted or larger.
    """
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED or entry.file_size > size:
        raise UserError(f"compressed or encrypted; {NO_BUNDLE}")
