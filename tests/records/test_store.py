"""The results folder: what is written is read, belongs to its record, and is whole or not there at all."""

import errno
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from helpers.stored import DATA, cell_with, plan_with, pretrained_of, pretraining_with, record_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file

from glue_bench.errors import UserError
from glue_bench.records.arrays import arrays_digest, dump, shrunk, widened
from glue_bench.records.store import Store, experiments_in, open_store
from glue_bench.records.values import Failure

CELL, OTHER, PRETRAINING = cell_with(), cell_with(seed=2), pretraining_with()
LOGITS = {"validation": np.array([[0.25, -1.0], [2.0, 0.5]], dtype=np.float32)}
TESTS = {"test": np.ones((3, 2), np.float32)}
LOSSES = {
    "loss_sum": np.array([1.5, 2.25]),
    "count": np.array([3, 300]),
    "document": np.array([0, 1]),
}
SUMS = {"swap_1": np.array([[1.0, 2.0], [2.0, 2.0]])}
GOLD = {"gold": {"validation": np.array([0.0, 2.6, 5.0])}}


def finish(store: Store, bits: float = 0.0, cell=CELL, **facts):
    """A finished cell with everything that a run may leave; runs with other bits leave others."""
    logits, tests = (
        {name: each + np.float32(bits) for name, each in one.items()} for one in (LOGITS, TESTS)
    )
    save = lambda model: (model / "model.safetensors").write_text(f"weights {bits}")  # noqa: E731
    return store.write(record_of(cell, **facts), save, logits=logits, tests=tests)


def pretrain(store: Store, bits: float = 0.0):
    """A finished pretraining, likewise."""
    losses = {**LOSSES, "loss_sum": LOSSES["loss_sum"] + bits}
    return store.write(
        pretrained_of(PRETRAINING), losses=losses, sums={"swap_1": SUMS["swap_1"] + bits}
    )


def same(found, expected) -> bool:
    """Also in types: small integers would overflow in a sum."""
    return arrays_digest(found) == arrays_digest(expected)


@pytest.mark.parametrize("wide", [np.float64, np.int64])
def test_no_value_of_shrunk_arrays_changes(wide):
    @given(arrays(wide, (2, 3)))
    def unchanged(values):
        back = widened(shrunk({"x": values}))["x"]
        assert back.dtype == wide
        np.testing.assert_array_equal(back, values)
        known = values == values  # NaN is not itself, and its sign says nothing
        np.testing.assert_array_equal(np.signbit(back[known]), np.signbit(values[known]))

    unchanged()


def test_names_types_shapes_and_values_are_in_the_digest():
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 2), np.int8)
    others = [
        {"a": other, "b": b} for other in (a.reshape(3, 2), a.view(np.int32), a + np.float32(1e-45))
    ]
    digests = [
        arrays_digest(each) for each in ({"a": a, "b": b}, {"a": a, "c": b}, {"a": a}, *others)
    ]
    assert len({*digests}) == 6
    assert arrays_digest({"b": b, "a": a}) == digests[0]


# What is written is read


def test_a_finished_cell_and_a_pretraining_are_read_as_they_were_stored(store):
    record, pretrained = finish(store, scores={"validation": {"accuracy": 0.5}}), pretrain(store)
    assert (store.record(CELL.id), store.pretraining(PRETRAINING.id)) == (record, pretrained)
    assert same(store.logits(record), LOGITS)
    assert same(store.logits(record, test=True), TESTS)
    assert same(store.losses(pretrained), LOSSES)
    assert same(store.measure_sums(pretrained), SUMS)
    files = (
        store.folder / "pretrainings" / PRETRAINING.id / f"{name}.safetensors"
        for name in ("losses", "sums")
    )
    kinds = {name: values.dtype for file in files for name, values in load_file(file).items()}
    assert (kinds["count"], kinds["loss_sum"], kinds["swap_1"]) == (
        np.int16,
        np.float16,
        np.float16,
    )  # no larger ones
    weights = store.models.find_whole(record) / "model.safetensors"
    assert weights.read_text() == "weights 0.0"
    weights.write_text("weights 9.0")
    with pytest.raises(UserError, match=r"model/model\.safetensors: changed since"):
        store.models.find_whole(record)
    newer = finish(store, 1.0)
    with pytest.raises(UserError, match="belongs to another run"):
        store.models.find(record)
    store.models.drop(CELL.id)
    assert (store.models.find(newer), store.record(CELL.id)) == (None, newer)
    assert [path.name for path in (store.folder / "cells").iterdir()] == [CELL.id]


def arrays_handed_out(store: Store, cell_id: str, pretraining_id: str) -> dict[str, np.ndarray]:
    """Every array that a store reads of a cell, of a pretraining, and of the labels of RTE."""
    record = store.record(cell_id)
    pretrained = store.pretraining(pretraining_id)
    groups = {
        "logits": store.logits(record),
        "tests": store.logits(record, test=True),
        "losses": store.losses(pretrained),
        "sums": store.measure_sums(pretrained),
        **store.labels.read("rte", DATA),
    }
    return {
        f"{group}/{name}": values
        for group, by_name in groups.items()
        for name, values in by_name.items()
    }


WHOLE = arrays(np.int64, 3, elements=st.integers(-(2**63), 2**63 - 1))
HALVES = arrays(
    np.float64, 3, elements=st.integers(-2000, 2000).map(lambda number: number / 2)
)  # exact in float16


@given(counts=WHOLE, scores=HALVES, outputs=st.sampled_from([np.float16, np.float32]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_array_is_read_in_a_type_to_compute_in_with_the_values_that_were_written(
    store, counts, scores, outputs
):
    """A narrow type saves room on the disk; a sum or a mean in it would be another number."""
    logits = {"validation": scores.astype(outputs)}
    tests = {"test": scores.astype(outputs)}
    losses = {"loss_sum": scores, "count": counts, "document": counts}
    store.write_plan(
        plan_with(CELL),
        {"rte": {"gold": {"validation": scores}, "bag of words": {"validation": counts}}},
    )
    store.write(record_of(CELL), logits=logits, tests=tests)
    store.write(pretrained_of(PRETRAINING), losses=losses, sums={"swap_1": scores})
    read = arrays_handed_out(store, CELL.id, PRETRAINING.id)
    written = {
        "logits/validation": scores.astype(np.float32),
        "tests/test": scores.astype(np.float32),
        **{f"losses/{name}": values for name, values in losses.items()},
        "sums/swap_1": scores,
        "gold/validation": scores,
        "bag of words/validation": counts,
    }
    assert same(read, written)


def test_what_a_run_was_not_asked_for_is_empty(store):
    half = {"validation": LOGITS["validation"].astype(np.float16).T}
    record = store.write(finish(store), logits=half)
    assert same(store.logits(record), {"validation": LOGITS["validation"].T})
    assert (
        record.tests,
        record.model,
        store.models.find(record),
        store.logits(record, test=True),
    ) == (
        None,
        None,
        None,
        {},
    )
    search = store.write(pretrained_of(PRETRAINING), sums={})
    assert store.losses(search) == store.measure_sums(search) == {}
    assert len([*store.folder.rglob("*.safetensors")]) == 1


def test_a_plan_and_labels_are_read_as_they_were_stored_and_other_labels_are_refused(store):
    given = GOLD | {"bag of words": {"validation": np.array([1, 1])}}
    plan = store.write_plan(plan_with(CELL), {"rte": given})
    assert store.plan() == plan
    labels = store.labels.read("rte", DATA, plan.tasks["rte"].labels)
    assert labels.keys() == given.keys()
    assert all(same(labels[kind], splits) for kind, splits in given.items())
    assert store.write_plan(plan_with(CELL, OTHER), {}).tasks == plan.tasks
    assert store.labels.read("rte", "0" * 64) == {"gold": {}}
    (path,) = (store.folder / "labels").iterdir()
    for data, said in ((DATA, "changed since"), ("0" * 64, "belongs to other data")):
        path.write_bytes(dump({"gold/validation": np.array([1, 1])}, data=data))
        with pytest.raises(UserError, match=said):
            store.labels.read("rte", DATA, plan.tasks["rte"].labels)


def test_of_a_plan_only_what_it_asks_for_is_finished(store):
    plan = plan_with(CELL, OTHER, pretrainings=(PRETRAINING, pretraining_with(seed=2)))
    record, stray, pretrained = (
        finish(store),
        finish(store, cell=cell_with(seed=9)),
        pretrain(store),
    )
    for name in (".making-abc", ".damaged-abc"):  # which a kill has left
        (store.folder / "cells" / name).mkdir()
    finished = store.finished(plan)
    assert (finished.records, finished.pretrainings) == (
        {CELL.id: record},
        {PRETRAINING.id: pretrained},
    )
    assert (finished.left_out, finished.problems) == (1, {})
    assert store.records_outside(plan) == [stray]
    assert store.recorded() == {CELL.id, stray.cell.id, PRETRAINING.id}


def test_a_failure_lasts_until_its_job_has_ended_well_and_the_last_result_is_told(store):
    plan = plan_with(CELL, OTHER, pretrainings=(PRETRAINING,))
    assert (store.result(CELL), store.result_version(CELL.id), store.stored_at(CELL.id)) == (
        None,
        "",
        0.0,
    )
    for name in (CELL.id, PRETRAINING.id, "not-of-the-plan"):
        store.write_failure(Failure(id=name, error="gone wrong", lost=True))
    assert [failure.id for failure in store.failures(plan, store.recorded())] == [
        PRETRAINING.id,
        CELL.id,
    ]
    assert store.result(CELL).error == "gone wrong"
    stamps = [store.result_version(CELL.id)]
    for bits in (0.0, 1.0):
        record = finish(store, bits)
        assert store.result(CELL) == record
        stamps.append(store.result_version(CELL.id))
    assert len(set(stamps)) == 3
    pretrain(store)
    assert store.failures(plan, store.recorded()) == []
    (store.folder / "failures" / f"{OTHER.id}.json").write_text("{")
    assert "cannot be read" in store.failures(plan, store.recorded())[0].error


# What belongs to another run, or is damaged

READERS = {
    "logits.safetensors": lambda store, record: store.logits(record),
    "tests.safetensors": lambda store, record: store.logits(record, test=True),
    "losses.safetensors": lambda store, record: store.losses(record),
    "sums.safetensors": lambda store, record: store.measure_sums(record),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_damaged_edited_gone_or_of_a_run_with_other_bits_is_refused_in_one_line(
    store, name
):
    def refused(said: str) -> None:
        with pytest.raises(UserError, match=said):
            READERS[name](store, record)

    write = pretrain if name[:4] in ("loss", "sums") else finish
    record = write(store)
    (place,) = store.folder.glob(f"*/*/{name}")
    place.unlink()
    refused(rf"{record.job.id}/{name}: cannot be read \(No such file")
    for content in (b"", b"{}", b"\xff" * 100, dump({"a": np.array([True])})):
        place.write_bytes(content)
        refused(rf"{name}: cannot be read .*; delete its folder and run again")
    place.write_bytes(dump({"x": np.ones(1)}, record=record.digest))
    refused("changed since the run wrote it")
    write(store, 1.0)
    refused("belongs to another run")


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff", b'{"digest":"' + b"0" * 64 + b'"}', "edited", "another's", None],
)
def test_a_record_that_cannot_be_believed_counts_as_missing_with_a_line(store, content):
    other, record, path = (
        finish(store, cell=OTHER),
        finish(store, parameters=1234),
        f"cells/{CELL.id}/record.json",
    )
    edited = {"edited": record.file().replace(b"1234", b"1235"), "another's": other.file()}
    (store.folder / path).unlink()
    if content is not None:
        (store.folder / path).write_bytes(edited.get(content, content))
    said = {"another's": f"it is the record of '{OTHER.id}'", None: "cannot be read"}.get(
        content, "damaged or edited"
    )
    finished = store.finished(plan_with(CELL, OTHER))
    assert finished.records == {OTHER.id: other}
    (problem,) = finished.problems.values()
    assert problem.startswith(f"{path}: {said}")
    assert problem.endswith("run again")
    assert store.record(CELL.id) is None


# Whole, or not there


def killed(after: int, write) -> bool:
    """Whether a process that calls `write` was killed before its end: at the n-th thing that it does to the disk."""
    if child := os.fork():
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    done = [0]

    def counted(call):
        def before(*args, **kwargs):
            done[0] += 1
            if done[0] > after:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return before

    for module, names in (
        (os, "fsync rename replace rmdir unlink open"),
        (Path, "write_bytes rename replace unlink"),
    ):
        for name in names.split():
            setattr(module, name, counted(getattr(module, name)))
    try:
        write()
    finally:
        os._exit(0)


def test_killed_at_any_moment_there_is_the_old_result_or_the_new_one_or_none(store):
    new, old = finish(store, 1.0), finish(store)
    seen, ended = [], False
    while not ended:
        finish(store)
        ended = not killed(len(seen), lambda: finish(store, 1.0))
        result = store.record(CELL.id)
        with store.lock():  # as the next run does first
            kept = store.record(CELL.id)
        assert kept in ((old, new) if result is None else (result,))
        assert [path.name for path in (store.folder / "cells").glob("[!.]*")] == [CELL.id]
        assert [*store.folder.glob("cells/.[!m]*")] == []  # what is half-made goes after a day
        if result:
            assert same(
                store.logits(result),
                {"validation": LOGITS["validation"] + np.float32(result == new)},
            )
            assert store.models.find_whole(result)
        seen.append({old.digest: "old", new.digest: "new", None: "none"}[result and result.digest])
    assert (seen[0], seen[-1]) == ("old", "new")
    assert sorted(seen, key=["old", "none", "new"].index) == seen
    assert seen.count("none") <= 4


def test_killed_at_any_moment_a_dropped_model_is_whole_or_gone_and_nothing_of_it_stays(store):
    killed_so_often, ended = 0, False
    while not ended:
        record = finish(store)
        ended = not killed(killed_so_often, lambda: store.models.drop(CELL.id))
        killed_so_often += 1
        with store.lock():
            folder = store.models.find_whole(record)
        assert [*store.folder.glob("cells/**/model.safetensors")] == (
            [folder / "model.safetensors"] if folder else []
        )
    assert killed_so_often > 3


# What lies beside


@pytest.mark.parametrize("name", ["handler.py", "pytorch_model.bin", "more/config.json", "link"])
def test_a_model_has_the_files_of_its_record_and_no_others(store, name):
    record = finish(store)
    strange = store.models.find(record) / name
    strange.parent.mkdir(exist_ok=True)
    if name == "link":
        strange.symlink_to(store.folder)
    else:
        strange.write_text("x")
    with pytest.raises(
        UserError, match=f"model/{name}: no file of the model that the run has kept; take it away$"
    ):
        store.models.find_whole(record)


def test_a_model_may_have_folders(store):
    """As tokenizers with several templates have."""

    def save(model: Path) -> None:
        (model / "templates").mkdir()
        (model / "templates" / "tool.jinja").write_text("x")

    record = store.write(record_of(CELL), save)
    assert [*record.model] == ["templates/tool.jinja"]
    assert store.record(CELL.id) == record
    assert store.models.find_whole(record)


@pytest.mark.parametrize(
    "name", ["../config.json", "/config.json", "a/../../b", "", ".hidden", "a//b"]
)
def test_no_record_names_a_file_outside_its_model(name):
    with pytest.raises(ValueError, match="model"):
        record_of(CELL, model={name: DATA})


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_its_record_does_not_know_is_refused(store, name):
    record = (
        store.write(record_of(CELL))
        if name[:4] in ("logi", "test")
        else store.write(pretrained_of(PRETRAINING))
    )
    place = store.folder / record.job.kind / record.job.id / name
    place.write_bytes(dump({"x": np.ones(1)}, record=record.digest))
    with pytest.raises(UserError, match=f"{name}: its record knows of no such file; delete it"):
        READERS[name](store, record)


LEFTOVERS = [
    "Thumbs.db",
    "desktop.ini",
    ".DS_Store",
    "._add",
    "@eaDir/",
    "$RECYCLE.BIN/",
    "lost+found/",
    "empty/",
]


@pytest.mark.parametrize("kind", ["cells", "pretrainings", "failures", "labels", "progress", ""])
@pytest.mark.parametrize("name", LEFTOVERS)
def test_what_a_system_leaves_in_a_folder_is_no_record(store, kind, name):
    plan = store.write_plan(plan_with(CELL, pretrainings=(PRETRAINING,)), {"rte": GOLD})
    record = finish(store)
    pretrained = pretrain(store)
    place = store.folder / kind / name
    place.parent.mkdir(exist_ok=True)
    if name.endswith("/"):
        place.mkdir()
    else:
        place.write_text("x")
    finished = store.finished(plan)
    assert (finished.records, finished.pretrainings) == (
        {CELL.id: record},
        {PRETRAINING.id: pretrained},
    )
    assert (finished.left_out, finished.problems) == (0, {})
    assert (store.records_outside(plan), store.failures(plan, ()), store.progress.read()) == (
        [],
        [],
        [],
    )


def read_finished(store: Store) -> None:
    """As whoever has a plan that is not the stored one."""
    store.finished(plan_with(CELL))


@pytest.mark.parametrize("look", [Store.plan, Store.prepare, read_finished])
@pytest.mark.parametrize("part", ["cells", "pretrainings", "failures", "labels"])
def test_a_part_that_lies_on_a_disk_that_is_not_there_is_refused_and_not_empty(store, part, look):
    store.write_plan(plan_with(CELL), {})
    (store.folder / part).symlink_to(store.folder.parent / "gone")
    with pytest.raises(
        UserError, match=f"{part}' is a link to '.*gone', which is not there; mount the disk"
    ):
        look(store)


@pytest.mark.parametrize("look", [Store.plan, Store.prepare, read_finished])
@pytest.mark.parametrize("kind", ["cells", "pretrainings"])
def test_a_result_that_lies_on_a_disk_that_is_not_there_is_refused_and_not_missing(
    store, kind, look
):
    store.write_plan(plan_with(CELL), {})
    (store.folder / kind).mkdir()
    (store.folder / kind / CELL.id).symlink_to(store.folder.parent / "gone")
    with pytest.raises(
        UserError, match=f"{CELL.id}' is a link to '.*gone', which is not there; mount the disk"
    ):
        look(store)


def test_checkpoints_on_a_disk_that_is_not_there_are_refused_before_they_are_made_again(store):
    store.checkpoints.folder_of("").mkdir(parents=True)
    store.checkpoints.folder_of("add-1").symlink_to(store.folder.parent / "gone")
    with pytest.raises(
        UserError, match=r"add-1' is a link to '.*gone', which is not there; mount the disk"
    ):
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
    """It may lie on another disk, which is full or read-only."""
    (store.folder / kind).symlink_to("/proc/self")
    with pytest.raises(UserError, match=f"cannot write to '.*{kind}': .*; choose another folder"):
        store.prepare()


def test_the_model_of_a_cell_that_is_a_link_to_another_disk_is_dropped(
    store, tmp_path, monkeypatch
):
    record = finish(store)
    cell = store.folder / "cells" / CELL.id
    rename = Path.rename

    def within_a_disk(path: Path, target: Path) -> Path:
        disks = [(tmp_path / "disk") in (place.resolve().parents) for place in (path, target)]
        if disks[0] != disks[1]:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    (tmp_path / "disk").mkdir()
    cell.rename(tmp_path / "disk" / CELL.id)
    cell.symlink_to(tmp_path / "disk" / CELL.id)
    monkeypatch.setattr(Path, "rename", within_a_disk)
    store.models.drop(CELL.id)
    assert (store.models.find(record), [*(tmp_path / "disk").iterdir()]) == (
        None,
        [tmp_path / "disk" / CELL.id],
    )


def test_files_can_be_read_by_others(store):
    store.write_plan(plan_with(CELL), {"rte": GOLD})
    finish(store)
    for path in store.folder.rglob("*"):
        wanted = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & wanted == wanted or path.name.startswith("."), path


def test_experiments_are_found_by_their_plans(store, tmp_path, monkeypatch):
    store.write_plan(plan_with(CELL), {})
    assert [
        each.folder for folder in (tmp_path, store.folder) for each in experiments_in(folder)
    ] == [store.folder] * 2
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/toy").plan().cells == (CELL,)


def test_a_result_that_a_killed_run_has_put_aside_is_named_until_the_next_run_puts_it_back(store):
    plan = store.write_plan(plan_with(CELL), {})
    record = store.write(record_of(CELL))
    folder = store.folder / "cells" / CELL.id
    folder.rename(folder.with_name(f".replaced-{CELL.id}"))
    assert store.finished(plan).problems == {
        CELL.id: f"cells/{CELL.id}: its result lies in .replaced-{CELL.id}, where an interrupted run has put it; "
        "run again, which puts it back"
    }
    with store.lock():
        assert store.finished(plan).records == {CELL.id: record}
        assert store.finished(plan).problems == {}
