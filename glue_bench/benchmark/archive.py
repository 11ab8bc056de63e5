"""What is in a zip that anyone may have made: every entry, or why it cannot be read."""

import io
import lzma
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass

from glue_bench.errors import UserError

ENCRYPTED = 0x1
SAMPLE_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
READABLE = 0o100644 << 16  # a plain file, rw-r--r--
UNIX = 3
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, NotImplementedError, RuntimeError, ValueError),
)
"""What zipfile and its decompressors raise for a damaged or foreign zip."""
LARGEST = 64 * 2**20
"""Bytes of an entry beyond which it is not unpacked; the largest file of a good submission has 4 MB."""
JUNK = re.compile(r"(^|[/\\])(__MACOSX([/\\]|$)|\._|\.DS_Store$|Thumbs\.db$|desktop\.ini$)", re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """One entry: its content, or a problem with it and what was expected."""

    name: str
    content: bytes = b""
    problem: str = ""
    expected: str = ""


def plain_entry(name: str) -> zipfile.ZipInfo:
    """The head of a readable plain file without a date: the same content gives the same archive, whenever it is made.

    Entries are not compressed, because compressors differ between builds of zlib.
    """
    entry = zipfile.ZipInfo(name, SAMPLE_DATE)
    entry.external_attr, entry.create_system = READABLE, UNIX
    return entry


def read_entries(content: bytes, where: str) -> list[Entry]:
    """All entries of a zip in its own order.

    Raises:
        UserError: it is no zip.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except UNREADABLE as error:
        raise UserError(f"{where} is not a zip ({str(error).lower()}); expected a zip of eleven files") from error
    with archive:
        return [_read(archive, entry) for entry in archive.infolist()]


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Entry:
    name = entry.filename
    if entry.flag_bits & ENCRYPTED:
        return Entry(name, problem="encrypted", expected="a zip without a password")
    if entry.file_size > LARGEST:
        return Entry(name, problem=f"{entry.file_size} bytes when unpacked", expected=f"less than {LARGEST}")
    try:
        return Entry(name, archive.read(entry))
    except UNREADABLE as error:
        return Entry(name, problem=f"cannot be unpacked ({error})", expected="a zip that is whole")


def base_name(name: str) -> str:
    """The name without its folders; some programs on Windows divide them by a backslash."""
    return re.split(r"[/\\]", name)[-1]


def is_folder(name: str) -> bool:
    """Whether the entry is a folder itself."""
    return name.endswith(("/", "\\"))


def is_nested(name: str) -> bool:
    """Whether the entry is inside a folder."""
    return base_name(name) != name


def is_junk(name: str) -> bool:
    """Whether an operating system put it there: `__MACOSX`, `.DS_Store`, `Thumbs.db`."""
    return bool(JUNK.search(name))
