"""Files and folders that are absent or complete; JSON and zips that anyone may have made."""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import struct
import tempfile
import time
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from platformdirs import user_cache_path
from pydantic_core import from_json

from glue_bench.errors import DiskError, UserError

CHECKSUMS = "checksums.json"
Kept = TypeVar("Kept")
MAX_FILE_BYTES = 2**26
"""The most bytes of a file that others may have made."""
MAX_ARRAY_BYTES = 2**31
"""The same of a file of arrays."""
MAX_READ_BYTES = 2**24
"""The most bytes that are read of a zip at once. Its list of 100,000 long names takes 14 MB."""
MAX_VALUES = 2**22
"""The most values of a JSON text. A plan of 50,000 cells has 2,000,000. One may take 100 bytes."""
REPLACED = ".replaced-"
"""The beginning of a folder's name while a new folder takes its place."""
DAY_SECONDS = 86_400.0  # seconds
ENCRYPTED = 0x1  # the flag of an entry of a zip
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)
"""The errors of zipfile for a damaged or foreign zip; only stored and deflated entries are read."""
ELSEWHERE = "choose another place with -o"
GOES_ON = "earlier cells are kept, the same command goes on from there"
IN_THE_CACHE = "make room there, or set GLUE_BENCH_CACHE to another folder"
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# safetensors and tokenizers have the system's number in the text of their errors alone. NumPy loses
# it, and says how much of an array went to the disk.
_IN_TEXT = re.compile(r"\b(?:code:|os error) (\d+)\b|\d+ requested and \d+ written")


def cache_folder() -> Path:
    """Return the folder of tokens, tokenizers and notes on checkpoints.

    It is $GLUE_BENCH_CACHE, or else lies in the user's cache folder.
    """
    chosen = os.environ.get("GLUE_BENCH_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("glue-bench")


def disk_trouble(error: BaseException) -> str | None:
    """Say that the disk is full or cannot be written, if an error or its cause is about that."""
    number = error.errno if isinstance(error, OSError) else None
    match = _IN_TEXT.search(str(error))
    if number is None and match:
        number = int(match[1] or errno.ENOSPC)
    if number in _CANNOT_WRITE:
        return os.strerror(number)
    return disk_trouble(error.__cause__) if error.__cause__ else None


@contextlib.contextmanager
def results_written_to(folder: Path, advice: str = GOES_ON) -> Iterator[None]:
    """Turn OSErrors of the block, and library errors that hide one, into DiskErrors.

    An error about memory stays as it is.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        trouble = disk_trouble(error)
        if trouble is None and isinstance(error, OSError):
            trouble = error.strerror or str(error)
        if not trouble or getattr(error, "errno", None) == errno.ENOMEM:
            raise
        raise DiskError(f"cannot write to '{folder}': {trouble}; {advice}") from error


def check_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
    """Raise OSError, before it is opened, for a file that is not plain or larger than `max_bytes`.

    A pipe would be waited for, and a device may never end.
    """
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        kind = "a folder, not a file" if stat.S_ISDIR(facts.st_mode) else "not a plain file"
        raise OSError(errno.EINVAL, kind, str(path))
    if facts.st_size > max_bytes:
        size = f"it has {facts.st_size} bytes, expected {max_bytes} at most"
        raise OSError(errno.EFBIG, size, str(path))


def is_damage(error: Exception) -> bool:
    """Whether an error of reading is about the file itself, not about permissions or memory."""
    no_file = (None, errno.ENOENT, errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ELOOP)
    return getattr(error, "errno", None) in no_file


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Read a plain file that anyone may have made. Raises OSError as `check_file` does."""
    check_file(path, max_bytes)
    return path.read_bytes()


def file_digest(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def visible_files(folder: Path) -> set[str]:
    """List files and links below a folder by their places in it, without hidden ones."""
    places: set[str] = set()
    for path in folder.rglob("*"):
        place = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in place.parts)
        if not is_hidden and (path.is_symlink() or not path.is_dir()):
            places.add(place.as_posix())
    return places


def check_json(content: bytes, max_values: int = MAX_VALUES) -> bytes:
    """Return a JSON text that anyone may have made. Raises ValueError for too many values."""
    values = content.count(b",") + content.count(b"{") + content.count(b"[")
    if values > max_values:
        raise ValueError(f"it has more than {max_values:,} values")
    return content


def parse_json(content: bytes) -> Any:
    """Read a JSON text that anyone may have made.

    Raises ValueError for a text that is no JSON, too deep or too large.
    """
    return from_json(check_json(content), allow_inf_nan=False)


@contextlib.contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip that anyone may have made.

    Raises BadZipFile if it is no zip, or has a part that memory might not hold.
    """
    with _InParts(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
        yield archive


class _InParts(io.BufferedReader):
    """A file that refuses reads above MAX_READ_BYTES.

    zipfile reads the list of entries at once, in the size that the archive claims.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_READ_BYTES:
            message = f"a part of it has {size} bytes, at most {MAX_READ_BYTES} are read at once"
            raise zipfile.BadZipFile(message)
        return super().read(size)


def zip_entry(name: str) -> zipfile.ZipInfo:
    """Make the head of a readable plain file in a zip, with the earliest date that a zip can hold.

    Entries are not compressed: compressors differ between builds of zlib, and equal content shall
    give equal bytes.
    """
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o100644 << 16  # rw-r--r--
    entry.create_system = 3  # Unix, whose permissions these are
    return entry


def prove_writable(folder: Path) -> None:
    """Write a file without a name into a folder, or into the nearest folder above it that exists.

    Raises OSError if that is not possible.
    """
    while not folder.exists():
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(2**12))  # an empty experiment needs as much
        file.flush()


def check_part(folder: Path) -> None:
    """Raise UserError for a broken link in the place of a folder or in it, and for a file.

    A link to a disk that is not mounted would look as if nothing had run.
    """
    refuse_broken_link(folder)
    if folder.is_dir():
        with os.scandir(folder) as entries:
            links = [
                Path(entry.path)
                for entry in entries
                if entry.is_symlink() and not entry.name.startswith(".")
            ]
        for link in links:
            refuse_broken_link(link)
    elif folder.exists():
        raise UserError(f"'{folder}' is no folder; move it away")


def refuse_broken_link(place: Path) -> None:
    """Raise UserError for a link whose target is missing."""
    if place.is_symlink() and not place.exists():
        advice = "mount the disk that has it, or delete the link to begin anew"
        raise UserError(
            f"'{place}' is a link to '{place.readlink()}', which is not there; {advice}"
        )


def write_atomically(path: Path, content: bytes, *, flush: bool = True) -> None:
    """Write a file so that `path` has its old content, if any, or all of the new one."""
    with whole_file(path, flush=flush) as file:
        file.write(content)


@contextlib.contextmanager
def whole_file(path: Path, *, flush: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that takes its name, flushed to disk, when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("xb") as file:
            yield file
        if flush:
            _sync(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    if flush:
        _sync(path.parent)


@contextlib.contextmanager
def whole_folder(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """Make a folder to fill that takes its name, all files flushed to disk, when the block ends.

    An existing folder of this name is kept, since another process was first with the same content.
    With `replaces=True` it is replaced: it is deleted when the new one has its name. If that fails,
    it is put back at once, or after a kill by `restore_replaced`.
    """
    aside = path.with_name(f".making-{uuid.uuid4().hex}")
    aside.mkdir(parents=True)
    try:
        yield aside
        for path_in_it in aside.rglob("*"):
            _sync(path_in_it)
        _sync(aside)
        if replaces:
            _replace(path, aside)
        else:
            try:
                aside.rename(path)
            except OSError:
                if not path.is_dir():  # no other process was first
                    raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _sync(path.parent)


def _replace(path: Path, new: Path) -> None:
    """Give a folder's name to a new one. For a moment none has it: a disk cannot exchange names."""
    older = path.with_name(f"{REPLACED}{path.name}")
    try:
        if os.path.lexists(path):
            _remove(older)  # a kill has left it after its replacement had its name
            path.rename(older)
        new.rename(path)
    except BaseException:  # Ctrl-C, too
        with contextlib.suppress(OSError):
            _restore(older)
        raise
    _remove(older)


def restore_replaced(folder: Path) -> None:
    """Put back folders that a kill left without a name, and delete those that were replaced."""
    for older in folder.glob(f"{REPLACED}*"):
        _restore(older)


def _restore(older: Path) -> None:
    path = older.with_name(older.name.removeprefix(REPLACED))
    if os.path.lexists(path):
        _remove(older)
    elif os.path.lexists(older):
        older.rename(path)


def _remove(path: Path) -> None:
    """Delete a folder, or a link that stands for one. Errors are ignored."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def set_aside(folder: Path, within: Path | None = None) -> None:
    """Take away a folder, if it exists, by one rename. Files that a process has open stay readable.

    Until it is deleted, it lies in the folder `within` of the same disk, by default in its parent.
    """
    place = within or folder.parent
    aside = place / f".damaged-{uuid.uuid4().hex}"
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
    clear_set_aside(place)


def clear_set_aside(folder: Path) -> None:
    """Delete folders that were set aside, also by a process that was killed before it did."""
    for path in folder.glob(".damaged-*"):
        _remove(path)


def read_or_make(folder: Path, make: Callable[[Path], Any], read: Callable[[Path], Kept]) -> Kept:
    """Read a folder of the cache, which `make` fills first if it is missing or damaged.

    Args:
        folder: The folder.
        make: Fills an empty folder.
        read: Reads a complete folder.

    Returns:
        The value that `read` gives.

    Raises:
        DiskError: the cache is full, or cannot be read or written.
    """
    with results_written_to(folder, IN_THE_CACHE):
        if folder.is_dir():
            try:
                expected = parse_json(read_file(folder / CHECKSUMS))
                if expected == _checksums(folder):
                    return read(folder)
            except (ValueError, OSError) as error:
                if not is_damage(error):
                    raise
            set_aside(folder)
        clear_abandoned(folder.parent)
        with whole_folder(folder) as aside:
            make(aside)
            checksums = json.dumps(_checksums(aside), indent=1)
            (aside / CHECKSUMS).write_text(checksums, encoding="utf-8")
        return read(folder)


def clear_abandoned(folder: Path) -> None:
    """Delete folders that killed processes left: set aside, or unfinished and a day old."""
    clear_set_aside(folder)
    for unfinished in folder.glob(".making-*"):
        with contextlib.suppress(FileNotFoundError):  # its maker has just ended
            last_write = unfinished.stat().st_mtime
            for path in unfinished.rglob("*"):
                last_write = max(last_write, path.stat().st_mtime)
            if time.time() - last_write > DAY_SECONDS:
                shutil.rmtree(unfinished, ignore_errors=True)


def _checksums(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.iterdir()):
        if path.name != CHECKSUMS:
            digests[path.name] = file_digest(path)
    return digests


def _sync(path: Path) -> None:
    """Flush a file or a folder to disk. A rename survives a power cut if its folder is flushed."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # file systems that do not flush folders
            raise
    finally:
        os.close(handle)
