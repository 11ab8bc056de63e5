"""Which files of a folder are opened, by whatever library, as Linux tells it through inotify."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPENED = 0x20  # IN_OPEN
WITHOUT_WAITING = 0x800  # IN_NONBLOCK
HEADER = struct.Struct("iIII")  # watch, mask, cookie, length of the name


@contextmanager
def opened_files(folder: Path) -> Iterator[set[str]]:
    """Give the names of the files in a folder that are opened in this block.

    The set is filled when the block ends.
    """
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(WITHOUT_WAITING)
    library.inotify_add_watch(descriptor, os.fsencode(folder), OPENED)
    names: set[str] = set()
    try:
        yield names
        names |= _names(descriptor)
    finally:
        os.close(descriptor)


def _names(descriptor: int) -> set[str]:
    """Return the names in all events that wait to be read."""
    names = set()
    while True:
        try:
            events = os.read(descriptor, 65536)
        except BlockingIOError:
            return names
        place = 0
        while place < len(events):
            *_, length = HEADER.unpack_from(events, place)
            place += HEADER.size
            name = events[place : place + length].rstrip(b"\0")
            place += length
            if name:  # the folder itself has none
                names.add(os.fsdecode(name))
