"""Files the second time as well as the first: caches that were changed, disks with every
trouble, errors on the way.
"""

import errno
import os
import time
from unittest.mock import MagicMock, Mock

import pytest

from glue_bench import files
from glue_bench.errors import DiskError, UserError
from glue_bench.files import (
    DAY_SECONDS,
    check_file,
    clear_abandoned,
    disk_trouble,
    is_damage,
    prove_writable,
    read_file,
    read_or_make,
    results_written_to,
    set_aside,
    write_atomically,
    zip_entry,
)

NAMES = ("a.bin", "b.bin", "c.bin")


def read_all(folder):
    return {name: (folder / name).read_text() for name in NAMES}


class Cache:
    """A folder of the cache with several files, which counts how often it is made."""

    def __init__(self, folder):
        self.folder = folder
        self.times = 0

    def make(self, folder):
        self.times += 1
        for name in NAMES:
            (folder / name).write_text(f"{name} as it was made")

    def read(self):
        return read_or_make(
            self.folder,
            self.make,
            lambda folder: {name: (folder / name).read_text() for name in NAMES},
        )


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "kept")


def test_what_is_whole_is_made_once(cache):
    assert cache.read() == cache.read()
    assert cache.times == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_what_has_a_file_that_is_damaged_is_made_anew(cache, name, damage):
    first = cache.read()
    if damage == "gone":
        (cache.folder / name).unlink()
    else:
        (cache.folder / name).write_text("of somebody")
    assert cache.read() == first
    assert cache.times == 2
    assert cache.read() == first
    assert cache.times == 2


def test_what_has_a_file_more_is_made_anew(cache):
    cache.read()
    (cache.folder / "d.bin").touch()
    cache.read()
    assert cache.times == 2
    assert not (cache.folder / "d.bin").exists()


def test_to_set_a_folder_aside_takes_away_what_a_kill_has_left_of_earlier_ones(tmp_path):
    for name in ("kept", ".damaged-1", ".damaged-2", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    set_aside(tmp_path / "kept")
    set_aside(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_folder_in_which_somebody_writes_is_not_abandoned_however_old_it_is(tmp_path):
    """A file deep inside is younger than the folder around it."""
    folder = tmp_path / ".making-x"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").touch()
    old = time.time() - 2 * DAY_SECONDS
    for path in (folder / "deep", folder):
        os.utime(path, (old, old))
    clear_abandoned(tmp_path)
    assert folder.is_dir()
    os.utime(folder / "deep" / "file", (old, old))
    clear_abandoned(tmp_path)
    assert not folder.exists()


class TroubleError(Exception):
    """An error of a library."""


TROUBLES = {
    "full": OSError(errno.ENOSPC, "x"),
    "quota": OSError(errno.EDQUOT, "x"),
    "read-only": OSError(errno.EROFS, "x"),
    "safetensors": TroubleError(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    ),
    "tokenizers": TroubleError(
        'Os { code: 122, kind: FilesystemQuotaExceeded, message: "Disk quota exceeded" }'
    ),
    "numpy": TroubleError("5000 requested and 1024 written"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_every_trouble_of_a_disk_is_told(name):
    assert disk_trouble(TROUBLES[name])


@pytest.mark.parametrize("name", TROUBLES)
def test_a_trouble_of_the_disk_is_told_when_it_is_the_cause_of_the_cause_of_an_error(name):
    inner = TroubleError("inside")
    outer = TroubleError("outside")
    inner.__cause__ = TROUBLES[name]
    outer.__cause__ = inner
    assert disk_trouble(outer)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "x"),
        OSError(errno.EACCES, "x"),
        TroubleError("os error"),
        ValueError("28"),
    ],
    ids=repr,
)
def test_other_errors_are_no_trouble_of_the_disk(error):
    assert disk_trouble(error) is None


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (OSError(errno.ENOSPC, "full"), DiskError),
        (OSError(errno.EACCES, "denied"), DiskError),
        (OSError(errno.ENOMEM, "short"), OSError),
        (TroubleError("(os error 28)"), DiskError),
        (TroubleError("anything"), TroubleError),
        (UserError("said"), UserError),
        (MemoryError(), MemoryError),
    ],
    ids=repr,
)
def test_what_an_error_becomes_while_results_are_written(error, becomes, tmp_path):
    caught: Exception | None = None
    try:
        with results_written_to(tmp_path, "go on"):
            raise error
    except Exception as changed:
        caught = changed
    assert type(caught) is becomes


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ELOOP]
)
def test_what_lies_there_is_damage(number):
    assert is_damage(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOMEM, errno.EIO, errno.ENOSPC])
def test_what_keeps_from_reading_is_no_damage(number):
    assert not is_damage(OSError(number, "x"))


def test_what_is_no_error_of_the_system_is_damage():
    assert is_damage(ValueError("no JSON"))


@pytest.mark.parametrize("size", [10, 99])
def test_a_file_is_read_up_to_the_size_that_was_asked_for(tmp_path, size):
    (tmp_path / "file").write_bytes(b"x" * size)
    assert len(read_file(tmp_path / "file", size)) == size
    with pytest.raises(OSError, match=f"it has {size} bytes, expected {size - 1} at most"):
        check_file(tmp_path / "file", size - 1)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_plain_file_is_refused_before_it_is_opened(tmp_path, kind):
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(
        OSError, match="not a plain file" if kind == "pipe" else "a folder, not a file"
    ):
        check_file(path)


def test_a_file_that_could_not_be_written_leaves_the_old_one_and_nothing_beside_it(
    tmp_path, monkeypatch
):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_on_which_a_file_can_be_opened_and_not_filled_is_not_writable(tmp_path, monkeypatch):
    file = MagicMock()
    file.__enter__.return_value.flush.side_effect = OSError(errno.ENOSPC, "full")
    monkeypatch.setattr(files.tempfile, "TemporaryFile", Mock(return_value=file))
    with pytest.raises(OSError, match="full"):
        prove_writable(tmp_path / "not" / "there")
    (content,) = file.__enter__.return_value.write.call_args.args
    assert len(content) >= 4096


def test_entries_of_zips_can_be_read_by_others_and_have_no_date():
    entry = zip_entry("a.txt")
    assert entry.external_attr >> 16 == 0o100644
    assert entry.date_time == (1980, 1, 1, 0, 0, 0)
