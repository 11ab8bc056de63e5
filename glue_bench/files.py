"""Files and folders that are either absent or whole; JSON and zips that anyone may have made."""

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
# At most: bytes of others' files and arrays, and of the list of entries of a zip, of which 100,000 with long names take
# 14 MB; values of a JSON text, of which a plan of 50,000 cells has 2,000,000. Each may take a hundred bytes of memory.
LARGEST, LARGEST_ARRAYS, LARGEST_PART, MOST_VALUES = 2**26, 2**31, 2**24, 2**22
REPLACED = ".replaced-"  # begins the name of a folder while another one takes its place
DAY = 86_400.0  # seconds
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
"""What zipfile raises for a damaged or foreign zip, of which only entries that are stored or deflated are read."""
ELSEWHERE = "choose another place with -o"
GOES_ON = "earlier cells are kept, the same command goes on from there"
IN_THE_CACHE = "make room there, or set GLUE_BENCH_CACHE to another folder"
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# Of libraries whose errors have the system's number in their text only: safetensors and tokenizers; and of NumPy, which
# loses it, and says how much of an array went to the disk.
_IN_TEXT = re.compile(r"\b(?:code:|os error) (\d+)\b|\d+ requested and \d+ written")


def cache_folder() -> Path:
    """Where tokens, tokenizers and notes on checkpoints are kept: $GLUE_BENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("GLUE_BENCH_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("glue-bench")


def disk_trouble(error: BaseException) -> str | None:
    """What is wrong with the disk, if an error or its cause is about that: it is full, or cannot be written."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (match := _IN_TEXT.search(str(error))):
        number = int(match[1] or errno.ENOSPC)
    if number in _CANNOT_WRITE:
        return os.strerror(number)
    return disk_trouble(error.__cause__) if error.__cause__ else None


@contextlib.contextmanager
def results_written_to(folder: Path, then: str = GOES_ON) -> Iterator[None]:
    """Turns each OSError of the block, except out of memory, and library errors that hide one into a DiskError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        trouble = disk_trouble(error) or (
            isinstance(error, OSError) and (error.strerror or str(error))
        )
        if not trouble or getattr(error, "errno", None) == errno.ENOMEM:
            raise
        raise DiskError(f"cannot write to '{folder}': {trouble}; {then}") from error


def check_file(path: Path, most: int = LARGEST) -> None:
    """Raise OSError for what is no plain file or larger than `most` bytes, before it is opened.

    A pipe would be waited for, and a device may never end.
    """
    seen = path.stat()
    if not stat.S_ISREG(seen.st_mode):
        kind = "a folder, not a file" if stat.S_ISDIR(seen.st_mode) else "not a plain file"
        raise OSError(errno.EINVAL, kind, str(path))
    if seen.st_size > most:
        raise OSError(
            errno.EFBIG, f"it has {seen.st_size} bytes, expected {most} at most", str(path)
        )


def is_damage(error: Exception) -> bool:
    """Whether an error of reading is about what lies there, and not about the way to it: permissions, memory."""
    no_file = (None, errno.ENOENT, errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ELOOP)
    return getattr(error, "errno", None) in no_file


def read_file(path: Path, most: int = LARGEST) -> bytes:
    """The content of a plain file that anyone may have made. Raises OSError as `check_file`."""
    check_file(path, most)
    return path.read_bytes()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def visible_files(folder: Path) -> set[str]:
    """The files below a folder, and the links, by their places in it; hidden ones are left out."""
    files = [
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    ]
    return {
        place.as_posix() for place in files if not any(part.startswith(".") for part in place.parts)
    }


def check_json(content: bytes, most: int = MOST_VALUES) -> bytes:
    """The bytes of a JSON text that anyone may have made. Raises ValueError if it has more values than `most`."""
    if sum(map(content.count, (b",", b"{", b"["))) > most:
        raise ValueError(f"it has more than {most:,} values")
    return content


def parse_json(content: bytes) -> Any:
    """The value of a JSON text that anyone may have made. Raises ValueError if it is none, too deep or too large."""
    return from_json(check_json(content), allow_inf_nan=False)


@contextlib.contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip that anyone may have made. Raises BadZipFile if it is none, or has a part that memory might not hold."""
    with _InParts(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
        yield archive


class _InParts(io.BufferedReader):
    """Refuses reads above LARGEST_PART. zipfile reads the list of entries at once, whatever size an archive claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LARGEST_PART:
            raise zipfile.BadZipFile(
                f"a part of it has {size} bytes, at most {LARGEST_PART} are read at once"
            )
        return super().read(size)


def plain_entry(name: str) -> zipfile.ZipInfo:
    """The head of a readable plain file (rw-r--r--) in a zip, with the earliest date that a zip can hold.

    Entries are not compressed, because compressors differ between builds of zlib: equal content gives equal bytes.
    """
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr, entry.create_system = 0o100644 << 16, 3  # of Unix
    return entry


def prove_writable(folder: Path) -> None:
    """Write into a folder, or where it would have to be made, a file that has no name. Raises OSError."""
    while not folder.exists():
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(2**12))  # which even an empty experiment needs
        file.flush()


def check_part(folder: Path) -> None:
    """Raise UserError for a folder, or what lies in it, that is a link to what is not there, and for what is no folder.

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
    """Raise UserError for a link to what is not there."""
    if place.is_symlink() and not place.exists():
        advice = "mount the disk that has it, or delete the link to begin anew"
        raise UserError(
            f"'{place}' is a link to '{place.readlink()}', which is not there; {advice}"
        )


def write_atomically(path: Path, content: bytes, *, flush: bool = True) -> None:
    """Write a `whole_file`: `path` is either absent, the old content or the whole new one."""
    with whole_file(path, flush=flush) as file:
        file.write(content)


@contextlib.contextmanager
def whole_file(path: Path, *, flush: bool = True) -> Iterator[IO[bytes]]:
    """A file to write that takes its name when the block ends, flushed to disk; not if it ends with an error."""
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
    """A folder to fill that takes its name when the block ends, all files in it flushed to disk.

    An existing folder of this name is kept, since another process was first with the same content, or replaced with
    `replaces=True`. The replaced one goes when the new one stands; if that fails, it is back at once, or after a kill
    by `restore_replaced`.
    """
    aside = path.with_name(f".making-{uuid.uuid4().hex}")
    aside.mkdir(parents=True)
    try:
        yield aside
        for made in (*aside.rglob("*"), aside):
            _sync(made)
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
    """Give a folder's name to a new one. For a moment the name is nobody's, because a disk has no exchange of two."""
    older = path.with_name(f"{REPLACED}{path.name}")
    try:
        if os.path.lexists(path):
            _remove(older)  # which a kill has left after its replacement stood
            path.rename(older)
        new.rename(path)
    except BaseException:  # Ctrl-C, too
        with contextlib.suppress(OSError):
            _restore(older)
        raise
    _remove(older)


def restore_replaced(folder: Path) -> None:
    """Put back what a kill has left without a name while it was replaced; delete what was replaced before a kill."""
    for older in folder.glob(f"{REPLACED}*"):
        _restore(older)


def _restore(older: Path) -> None:
    path = older.with_name(older.name.removeprefix(REPLACED))
    if os.path.lexists(path):
        _remove(older)
    elif os.path.lexists(older):
        older.rename(path)


def _remove(path: Path) -> None:
    """Delete a folder, or a link that stands for one, as far as that can be done."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def set_aside(folder: Path, within: Path | None = None) -> None:
    """Take away a folder, if it is there: at once or not at all. What another process has open of it stays readable.

    Until it is deleted, it lies in the folder `within` of the same disk, by default in its own parent.
    """
    place = within or folder.parent
    aside = place / f".damaged-{uuid.uuid4().hex}"
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
    clear_set_aside(place)


def clear_set_aside(folder: Path) -> None:
    """Delete what was set aside in a folder, also by a process that was killed before it had deleted it."""
    for path in folder.glob(".damaged-*"):
        _remove(path)


def kept_or_made(folder: Path, make: Callable[[Path], Any], read: Callable[[Path], Kept]) -> Kept:
    """What `read` finds in a folder of the cache; `make` fills it first if it is not there or damaged.

    Raises DiskError where the cache is full, or cannot be read or written.
    """
    with results_written_to(folder, IN_THE_CACHE):
        if folder.is_dir():
            try:
                if parse_json(read_file(folder / CHECKSUMS)) == _checksums(folder):
                    return read(folder)
            except (ValueError, OSError) as error:
                if not is_damage(error):
                    raise
            set_aside(folder)
        clear_abandoned(folder.parent)
        with whole_folder(folder) as aside:
            make(aside)
            (aside / CHECKSUMS).write_text(
                json.dumps(_checksums(aside), indent=1), encoding="utf-8"
            )
        return read(folder)


def clear_abandoned(folder: Path) -> None:
    """Delete what a killed process has left in a folder: set aside, or half-made and not written to for a day."""
    clear_set_aside(folder)
    for left in folder.glob(".making-*"):
        with contextlib.suppress(FileNotFoundError):  # its maker has just ended
            if time.time() - max(path.stat().st_mtime for path in (left, *left.rglob("*"))) > DAY:
                shutil.rmtree(left, ignore_errors=True)


def _checksums(folder: Path) -> dict[str, str]:
    return {
        path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.name != CHECKSUMS
    }


def _sync(path: Path) -> None:
    """Flush a file or a folder to disk: a rename survives a power cut only once its folder is there, too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # file systems that do not flush folders
            raise
    finally:
        os.close(handle)
