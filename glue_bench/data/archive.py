"""What is in a zip that anyone may have made: one entry at a time, or why it cannot be read."""

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
LARGEST = 2**23
"""Bytes of an entry beyond which it is not unpacked; the largest file of a good submission has 3.5 MB."""
LARGEST_ZIP = 2**24
"""Bytes of a zip beyond which it is not read; a good submission that is not compressed has 4 MB."""
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


def open_zip(content: bytes, where: str) -> zipfile.ZipFile:
    """A zip of at most LARGEST_ZIP bytes.

    Raises:
        UserError: it is none.
    """
    try:
        if len(content) > LARGEST_ZIP:
            raise ValueError(f"it has {len(content)} bytes, at most {LARGEST_ZIP} are read")
        return zipfile.ZipFile(io.BytesIO(content))
    except UNREADABLE as error:
        raise UserError(f"{where} is not a zip ({str(error).lower()}); expected a zip of eleven files") from error


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Entry:
    """An entry of at most LARGEST bytes, whatever its head says of its size."""
    name = entry.filename
    if entry.flag_bits & ENCRYPTED:
        return Entry(name, problem="encrypted", expected="a zip without a password")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # LZMA takes as much memory as it says
        return Entry(name, problem=f"compressed by method {entry.compress_type}", expected="8 (deflated), or none")
    try:
        with archive.open(entry) as file:
            # Not `archive.read`, which unpacks all that is there before it cuts off what is more than the head says.
            content = file.read(LARGEST + 1)
    except UNREADABLE as error:
        return Entry(name, problem=f"cannot be unpacked ({error})", expected="a zip that is whole")
    if len(content) > LARGEST:
        return Entry(name, problem=f"more than {LARGEST} bytes when unpacked", expected="3.5 MB at most")
    return Entry(name, content)


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
