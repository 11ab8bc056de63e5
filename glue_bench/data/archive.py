"""Zips: the same bytes for the same content, and the content of one that anyone may have made."""

import io
import lzma
import struct
import zipfile
import zlib

from glue_bench.errors import UserError

ENCRYPTED = 0x1
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, NotImplementedError, RuntimeError, ValueError),
)
"""What zipfile and its decompressors raise for a damaged or foreign zip."""
LARGEST = 2**23  # bytes of an entry that is unpacked; the largest file of a good submission has 3.5 MB
LARGEST_ZIP = 2**24  # bytes of a zip that is read; a good submission that is not compressed has 4 MB


class BadEntry(Exception):
    """An entry that cannot be read: what is wrong with it, and what was expected."""


def plain_entry(name: str) -> zipfile.ZipInfo:
    """The head of a readable plain file (rw-r--r--), with the earliest date that a zip can hold.

    Entries are not compressed, because compressors differ between builds of zlib.
    """
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr, entry.create_system = 0o100644 << 16, 3  # of Unix
    return entry


def open_zip(content: bytes, where: str) -> zipfile.ZipFile:
    """A zip of at most LARGEST_ZIP bytes; raises UserError where it is none."""
    try:
        if len(content) > LARGEST_ZIP:
            raise ValueError(f"it has {len(content)} bytes, at most {LARGEST_ZIP} are read")
        return zipfile.ZipFile(io.BytesIO(content))
    except UNREADABLE as error:
        raise UserError(f"{where} is not a zip ({str(error).lower()}); expected a zip of eleven files") from error


def read_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """The last entry of this name, at most LARGEST bytes, whatever its head says of its size; or raises BadEntry."""
    entry = archive.getinfo(name)
    if entry.flag_bits & ENCRYPTED:
        raise BadEntry("encrypted", "a zip without a password")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # LZMA takes as much memory as it says
        raise BadEntry(f"compressed by method {entry.compress_type}", "8 (deflated), or none")
    try:
        with archive.open(entry) as file:
            # Not `archive.read`, which unpacks all that is there before it cuts off what is more than the head says.
            content = file.read(LARGEST + 1)
    except UNREADABLE as error:
        raise BadEntry(f"cannot be unpacked ({error})", "a zip that is whole") from error
    if len(content) > LARGEST:
        raise BadEntry(f"more than {LARGEST} bytes when unpacked", "3.5 MB at most")
    return content
