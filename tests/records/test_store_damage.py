"""Files of a results folder that are damaged, edited, gone, or of another run."""

import errno
from pathlib import Path

import numpy as np
import pytest
from helpers.store_content import (
    CELL,
    GOLD,
    OTHER_CELL,
    PRETRAINING,
    finish,
    finish_pretraining,
)
from helpers.stored import DATA, plan_with, pretrained_of, record_of

from glue_bench.errors import UserError
from glue_bench.records.arrays import dump
from glue_bench.records.store import Store

READERS = {
    "logits.safetensors": lambda store, record: store.logits(record),
    "tests.safetensors": lambda store, record: store.logits(record, test=True),
    "losses.safetensors": lambda store, record: store.losses(record),
    "sums.safetensors": lambda store, record: store.measure_sums(record),
}
OF_PRETRAININGS = ("losses.safetensors", "sums.safetensors")


class ArraysFile:
    """A file of arrays beside a record."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.write = finish_pretraining if name in OF_PRETRAININGS else finish
        self.record = self.write(store)
        (self.path,) = store.folder.glob(f"*/*/{name}")

    def assert_refused(self, fault: str) -> None:
        read = READERS[self.name]
        with pytest.raises(UserError, match=fault):
            read(self.store, self.record)


@pytest.fixture(params=READERS)
def file(request, store):
    return ArraysFile(store, request.param)


def test_a_file_that_is_gone_is_refused(file):
    file.path.unlink()
    file.assert_refused(rf"{file.record.job.id}/{file.name}: cannot be read \(No such file")


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff" * 100, dump({"a": np.array([True])})],
    ids=["empty", "no header", "a huge header", "arrays of no record"],
)
def test_a_file_that_is_damaged_is_refused(file, content):
    file.path.write_bytes(content)
    file.assert_refused(rf"{file.name}: cannot be read .*; delete its folder and run again")


def test_a_file_with_other_arrays_is_refused(file):
    file.path.write_bytes(dump({"x": np.ones(1)}, record=file.record.digest))
    file.assert_refused("changed since the run wrote it")


def test_the_file_of_a_run_with_other_bits_is_refused(file):
    file.write(file.store, 1.0)
    file.assert_refused("belongs to another run")


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_its_record_does_not_know_is_refused(store, name):
    is_of_pretraining = name in OF_PRETRAININGS
    record = store.write(pretrained_of(PRETRAINING) if is_of_pretraining else record_of(CELL))
    place = store.folder / record.job.kind / record.job.id / name
    place.write_bytes(dump({"x": np.ones(1)}, record=record.digest))
    read = READERS[name]
    with pytest.raises(UserError, match=f"{name}: its record knows of no such file; delete it"):
        read(store, record)


def assert_missing(store: Store, fault: str) -> None:
    """Check that the record of CELL counts as missing, and that the other record does not."""
    place = f"cells/{CELL.id}/record.json"
    finished = store.finished(plan_with(CELL, OTHER_CELL))
    assert [*finished.records] == [OTHER_CELL.id]
    (problem,) = finished.problems.values()
    assert problem.startswith(f"{place}: {fault}")
    assert problem.endswith("run again")
    assert store.record(CELL.id) is None


@pytest.fixture
def record_file(store) -> Path:
    """The file of a record, in a folder with another record."""
    finish(store, cell=OTHER_CELL)
    finish(store, parameters=1234)
    return store.folder / "cells" / CELL.id / "record.json"


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"digest":"' + b"0" * 64 + b'"}'])
def test_a_record_that_is_damaged_counts_as_missing(store, record_file, content):
    record_file.write_bytes(content)
    assert_missing(store, "damaged or edited")


def test_a_record_that_was_edited_counts_as_missing(store, record_file):
    record_file.write_bytes(record_file.read_bytes().replace(b"1234", b"1235"))
    assert_missing(store, "damaged or edited")


def test_the_record_of_another_cell_counts_as_missing(store, record_file):
    record_file.write_bytes(store.record(OTHER_CELL.id).file())
    assert_missing(store, f"it is the record of '{OTHER_CELL.id}'")


def test_a_record_whose_file_is_gone_counts_as_missing(store, record_file):
    record_file.unlink()
    assert_missing(store, "cannot be read")


@pytest.mark.parametrize("name", ["handler.py", "pytorch_model.bin", "more/config.json", "link"])
def test_a_model_has_the_files_of_its_record_and_no_others(store, name):
    record = finish(store)
    strange = store.models.find(record) / name
    strange.parent.mkdir(exist_ok=True)
    if name == "link":
        strange.symlink_to(store.folder)
    else:
        strange.write_text("x")
    fault = f"model/{name}: no file of the model that the run has kept; take it away$"
    with pytest.raises(UserError, match=fault):
        store.models.find_whole(record)


@pytest.mark.parametrize(
    "name", ["../config.json", "/config.json", "a/../../b", "", ".hidden", "a//b"]
)
def test_no_record_names_a_file_outside_its_model(name):
    with pytest.raises(ValueError, match="model"):
        record_of(CELL, model={name: DATA})


LEFTOVERS = (
    "Thumbs.db",
    "desktop.ini",
    ".DS_Store",
    "._add",
    "@eaDir/",
    "$RECYCLE.BIN/",
    "lost+found/",
    "empty/",
)


@pytest.mark.parametrize("kind", ["cells", "pretrainings", "failures", "labels", "progress", ""])
@pytest.mark.parametrize("name", LEFTOVERS)
def test_files_of_the_system_in_a_folder_are_no_records(store, kind, name):
    plan = store.write_plan(plan_with(CELL, pretrainings=(PRETRAINING,)), {"rte": GOLD})
    record = finish(store)
    pretrained = finish_pretraining(store)
    place = store.folder / kind / name
    place.parent.mkdir(exist_ok=True)
    if name.endswith("/"):
        place.mkdir()
    else:
        place.write_text("x")
    finished = store.finished(plan)
    assert finished.records == {CELL.id: record}
    assert finished.pretrainings == {PRETRAINING.id: pretrained}
    assert finished.left_out == 0
    assert finished.problems == {}
    assert store.records_outside(plan) == []
    assert store.failures(plan, ()) == []
    assert store.progress.read() == []


# Links to other disks


def read_finished(store: Store) -> None:
    """Read the results as a caller with another plan than the stored one."""
    store.finished(plan_with(CELL))


LINK = "' is a link to '.*gone', which is not there; mount the disk"


@pytest.mark.parametrize("look", [Store.plan, Store.prepare, read_finished])
@pytest.mark.parametrize("part", ["cells", "pretrainings", "failures", "labels"])
def test_a_part_that_lies_on_a_disk_that_is_not_there_is_refused_and_not_empty(store, part, look):
    store.write_plan(plan_with(CELL), {})
    (store.folder / part).symlink_to(store.folder.parent / "gone")
    with pytest.raises(UserError, match=f"{part}{LINK}"):
        look(store)


@pytest.mark.parametrize("look", [Store.plan, Store.prepare, read_finished])
@pytest.mark.parametrize("kind", ["cells", "pretrainings"])
def test_a_result_that_lies_on_a_disk_that_is_not_there_is_refused_and_not_missing(
    store, kind, look
):
    store.write_plan(plan_with(CELL), {})
    (store.folder / kind).mkdir()
    (store.folder / kind / CELL.id).symlink_to(store.folder.parent / "gone")
    with pytest.raises(UserError, match=f"{CELL.id}{LINK}"):
        look(store)


def test_checkpoints_on_a_disk_that_is_not_there_are_refused_before_they_are_made_again(store):
    store.checkpoints.folder_of("").mkdir(parents=True)
    store.checkpoints.folder_of("add-1").symlink_to(store.folder.parent / "gone")
    with pytest.raises(UserError, match=f"add-1{LINK}"):
        store.prepare()


@pytest.mark.parametrize("look", [Store.plan, Store.prepare])
@pytest.mark.parametrize("part", ["cells", "pretrainings", "failures", "labels"])
def test_a_file_in_the_place_of_a_part_is_refused(store, part, look):
    store.write_plan(plan_with(CELL), {})
    (store.folder / part).write_text("")
    with pytest.raises(UserError, match=f"{part}' is no folder; move it away"):
        look(store)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write")
@pytest.mark.parametrize("kind", ["cells", "pretrainings", "checkpoints"])
def test_a_part_that_cannot_be_written_is_refused_before_anything_is_computed(store, kind):
    """The part may be on another disk, which is full or read-only."""
    (store.folder / kind).symlink_to("/proc/self")
    with pytest.raises(UserError, match=f"cannot write to '.*{kind}': .*; choose another folder"):
        store.prepare()


def test_the_model_of_a_cell_that_is_a_link_to_another_disk_is_dropped(
    store, tmp_path, monkeypatch
):
    record = finish(store)
    cell = store.folder / "cells" / CELL.id
    disk = tmp_path / "disk"
    rename = Path.rename

    def rename_within_a_disk(path: Path, target: Path) -> Path:
        if (disk in path.resolve().parents) != (disk in target.resolve().parents):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    disk.mkdir()
    cell.rename(disk / CELL.id)
    cell.symlink_to(disk / CELL.id)
    monkeypatch.setattr(Path, "rename", rename_within_a_disk)
    store.models.drop(CELL.id)
    assert store.models.find(record) is None
    expected = [disk / CELL.id]
    assert [*disk.iterdir()] == expected
