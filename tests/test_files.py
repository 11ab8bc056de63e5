"""Files of others: a zip and a JSON text of any size are refused before they fill the memory.

Ours are whole.
"""

import errno
import os
import shutil
import stat
import time
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from glue_bench import files
from glue_bench.files import (
    DAY_SECONDS,
    opened_zip,
    parse_json,
    read_or_make,
    restore_replaced,
    whole_folder,
    write_atomically,
)


def test_a_zip_is_read_as_it_is_but_no_long_list_of_entries_or_large_entry_at_once(
    tmp_path, monkeypatch
):
    with zipfile.ZipFile(tmp_path / "three.zip", "w") as archive:
        for name in ("one", "two", "three"):
            archive.writestr(name, name * 100)
    with opened_zip(tmp_path / "three.zip") as archive:
        assert archive.read("two") == b"two" * 100
    for limit in (200, 100):  # an entry has 300 bytes, the list 149
        monkeypatch.setattr(files, "MAX_READ_BYTES", limit)
        message = rf"a part of it has \d+ bytes, at most {limit} are read at once"
        with (
            pytest.raises(zipfile.BadZipFile, match=message),
            opened_zip(tmp_path / "three.zip") as archive,
        ):
            archive.read("one" if limit == 200 else pytest.fail("the list was read"))


def test_json_of_very_many_values_is_refused_whatever_they_are():
    limit = files.MAX_VALUES
    assert len(parse_json(b"[" + b"0," * (limit - 2) + b"0]")) == limit - 1
    for text in (
        b"[" + b"0," * limit + b"0]",
        b"[" + b"{}," * (limit // 2) + b"0]",
        b"[" * (limit + 1),
    ):
        with pytest.raises(ValueError, match=r"^it has more than 4,194,304 values$"):
            parse_json(text)


@pytest.mark.parametrize(("replaces", "expected"), [(False, "first"), (True, "second")])
def test_a_folder_that_is_there_stays_unless_it_is_replaced(tmp_path, replaces, expected):
    for content in ("first", "second"):
        with whole_folder(tmp_path / "made", replaces=replaces) as aside:
            (aside / "file").write_text(content)
    assert (tmp_path / "made" / "file").read_text() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_folder_that_is_there_stays_if_the_new_one_is_not_whole(tmp_path):
    with whole_folder(tmp_path / "made", replaces=False) as aside:
        (aside / "file").write_text("first")
    with pytest.raises(OSError, match="full"), whole_folder(tmp_path / "made", replaces=True):
        raise OSError(28, "full")
    assert (tmp_path / "made" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    (tmp_path / "plain").touch()
    with pytest.raises(NotADirectoryError), whole_folder(tmp_path / "plain", replaces=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


@pytest.mark.parametrize(
    "error", [OSError(errno.EDQUOT, "quota"), OSError(errno.ESTALE, "stale"), KeyboardInterrupt()]
)
@pytest.mark.parametrize("fails_at", [1, 2])
def test_where_a_folder_cannot_be_replaced_the_old_one_stays(
    tmp_path, monkeypatch, error, fails_at
):
    """Whichever of the two renames fails; the next one, which puts the old folder back, works
    again.
    """
    renames, rename = [], Path.rename

    def failing(path, target):
        renames.append(target)
        if len(renames) == fails_at:
            raise error
        return rename(path, target)

    with whole_folder(tmp_path / "made") as aside:
        (aside / "file").write_text("old")
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(type(error)), whole_folder(tmp_path / "made", replaces=True) as aside:
        (aside / "file").write_text("new")
    assert (tmp_path / "made" / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("stands", [False, True])
def test_what_a_kill_has_left_of_a_replaced_folder_is_put_back_or_deleted(tmp_path, stands):
    with whole_folder(tmp_path / "made") as aside:
        (aside / "file").write_text("new")
    (tmp_path / ".replaced-made").mkdir()
    (tmp_path / ".replaced-made" / "file").write_text("old")
    if not stands:
        shutil.rmtree(tmp_path / "made")
    restore_replaced(tmp_path)
    assert (tmp_path / "made" / "file").read_text() == ("new" if stands else "old")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_link_to_a_folder_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "made").symlink_to(tmp_path / "elsewhere")
    with whole_folder(tmp_path / "runs" / "made", replaces=True):
        pass
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["made"]
    assert (tmp_path / "elsewhere").is_dir()


def test_what_a_kill_has_left_in_the_cache_goes_once_nobody_has_written_to_it_for_a_day(tmp_path):
    for age in (0, 2 * DAY_SECONDS):
        (tmp_path / f".making-{age}").mkdir()
        for path in ((tmp_path / f".making-{age}" / "file"), tmp_path / f".making-{age}"):
            path.touch()
            os.utime(path, (time.time() - age,) * 2)
    (tmp_path / ".damaged-0").mkdir()  # which nobody needs
    read_or_make(tmp_path / "made", lambda folder: (folder / "file").touch(), lambda folder: folder)
    assert {path.name for path in tmp_path.iterdir()} == {".making-0", "made"}


def test_a_folder_reaches_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    events, rename = [], Path.rename
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.fstat(handle).st_ino))
    monkeypatch.setattr(Path, "rename", lambda *paths: (events.append("rename"), rename(*paths))[1])
    with whole_folder(tmp_path / "made") as aside:
        (aside / "file").write_text("content")
    numbers = [path.stat().st_ino for path in (tmp_path / "made", tmp_path / "made" / "file")]
    assert sorted(events[:2]) == sorted(numbers)
    assert events[2:] == ["rename", tmp_path.stat().st_ino]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_disk_that_flushes_no_folders_is_no_error_and_one_that_fails_is(
    tmp_path, monkeypatch, number
):
    flushed = []

    def fsync(handle):
        flushed.append(stat.S_ISREG(os.fstat(handle).st_mode))
        if not flushed[-1]:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output") if number == errno.EIO else nullcontext():
        write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert flushed == [True, False]
