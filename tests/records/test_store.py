"""The results folder: what is written is read, belongs to its record, and is whole or not there at all."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from stored import DATA, cell_with, plan_with, pretrained_of, pretraining_with, record_of

from glue_bench.errors import UserError
from glue_bench.records.disk import Labels
from glue_bench.records.store import Store
from glue_bench.records.stored import Stored, experiments_in, open_store
from glue_bench.records.values import Failure, Progress

CELL, PRETRAINING = cell_with(), pretraining_with()
LOGITS = {"validation": np.array([[0.25, -1.0], [2.0, 0.5]], dtype=np.float32)}
TESTS = {"test": np.ones((3, 2), np.float32)}
LOSSES = {"loss_sum": np.array([1.5, 2.25]), "count": np.array([3, 300]), "document": np.array([0, 1])}
SUMS = {"swap_1": np.array([[1.0, 2.0], [2.0, 2.0]])}
GOLD = {"validation": np.array([0, 1])}


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "toy")
    store.prepare()
    return store


def finish(store: Store, bits: float = 0.0, cell=CELL, **facts):
    """A finished cell with everything that a run may leave; runs with other bits leave others."""
    with store.aside() as aside:
        (aside / "model.safetensors").write_text(f"weights {bits}")
        logits, tests = ({name: each + np.float32(bits) for name, each in one.items()} for one in (LOGITS, TESTS))
        return store.write(record_of(cell, **facts), logits, tests, aside)


def pretrain(store: Store, bits: float = 0.0):
    """A finished pretraining, likewise."""
    losses = {**LOSSES, "loss_sum": LOSSES["loss_sum"] + bits}
    return store.write_pretraining(pretrained_of(PRETRAINING), losses, {"swap_1": SUMS["swap_1"] + bits})


def same(found, expected) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


# What is written is read


def test_a_finished_cell_is_read_as_it_was_stored(store):
    record = finish(store, scores={"validation": {"accuracy": 0.5}})
    assert store.record(CELL.id) == record
    assert same(store.logits(record), LOGITS)
    assert same(store.logits(record, test=True), TESTS)
    folder = store.model(record, whole=True)
    assert (folder / "model.safetensors").read_text() == "weights 0.0"
    assert [path.name for path in (store.folder / "cells").iterdir()] == [CELL.id]


def test_so_is_a_pretraining(store):
    record = pretrain(store)
    assert store.pretraining(PRETRAINING.id) == record
    losses = store.losses(record)
    assert same(losses, LOSSES)
    assert {name: each.dtype for name, each in losses.items()} == {
        name: each.dtype for name, each in LOSSES.items()
    }  # small integers would overflow in a sum
    assert same(store.sums(record), SUMS)


def test_what_a_run_was_not_asked_for_is_empty(store):
    record = store.write(record_of(CELL), LOGITS)
    assert (record.tests, record.model, store.model(record)) == (None, None, None)
    assert store.logits(record, test=True) == {}
    search = store.write_pretraining(pretrained_of(PRETRAINING))
    assert store.losses(search) == store.sums(search) == {}


def test_half_precision_stays_half_on_disk_and_is_read_as_single(store):
    record = store.write(record_of(CELL), {"validation": LOGITS["validation"].astype(np.float16)})
    assert same(store.logits(record), LOGITS)
    assert store.logits(record)["validation"].dtype == np.float32


def test_a_plan_and_labels_are_read_as_they_were_stored(store):
    baselines = {"bag of words": {"validation": np.array([1, 1])}}
    plan = store.write_plan(plan_with(CELL), {"rte": Labels(GOLD, baselines)})
    assert store.plan() == plan
    labels = store.labels("rte", DATA, plan.tasks["rte"].labels)
    assert same(labels.gold, GOLD)
    assert same(labels.baselines["bag of words"], baselines["bag of words"])
    again = store.write_plan(plan_with(CELL, cell_with(seed=2)), {})
    assert again.tasks == plan.tasks
    assert store.labels("rte", "0" * 64).gold == {}


def test_scores_from_0_to_5_keep_their_value(store):
    gold = {"validation": np.array([0.0, 2.6, 5.0])}
    store.write_plan(plan_with(cell_with(task="stsb")), {"stsb": Labels(gold)})
    assert same(store.labels("stsb", DATA).gold, gold)


def test_of_a_plan_only_what_it_asks_for_is_finished(store):
    plan = plan_with(CELL, cell_with(seed=2), pretrainings=(PRETRAINING, pretraining_with(seed=2)))
    record, stray, pretrained = finish(store), finish(store, cell=cell_with(seed=9)), pretrain(store)
    finished = store.finished(plan)
    assert (finished.records, finished.pretrainings) == ({CELL.id: record}, {PRETRAINING.id: pretrained})
    assert (finished.left_out, finished.problems) == (1, ())
    assert [*store.strays(plan)] == [stray]


def test_a_failure_lasts_until_its_job_has_ended_well(store):
    plan = plan_with(CELL, cell_with(seed=2), pretrainings=(PRETRAINING,))
    for job in (CELL, PRETRAINING):
        store.write_failure(Failure(id=job.id, error="gone wrong", lost=True))
    store.write_failure(Failure(id="not-of-the-plan", error="gone wrong"))
    assert [failure.id for failure in store.failures(plan)] == [PRETRAINING.id, CELL.id]
    finish(store)
    assert [failure.id for failure in store.failures(plan)] == [PRETRAINING.id]
    pretrain(store)
    assert store.failures(plan) == []
    (store.folder / "failures" / f"{plan.cells[1].id}.json").write_text("{")
    assert "cannot be read" in store.failures(plan)[0].error


def test_the_last_result_of_a_job_is_told_from_earlier_ones(store):
    assert (store.result(CELL), store.stamp(CELL.id), store.stored_at(CELL.id)) == (None, "", 0.0)
    stamps = [store.write_failure(Failure(id=CELL.id, error="a")) or store.stamp(CELL.id)]
    assert store.result(CELL).error == "a"
    for bits in (0.0, 1.0):
        record = finish(store, bits)
        assert store.result(CELL) == record
        stamps.append(store.stamp(CELL.id))
    assert len(set(stamps)) == 3
    assert store.recorded() == {CELL.id}


def test_progress_is_there_as_long_as_its_job_is_under_way(store):
    progress = Progress(id=CELL.id, worker="here:1", began=1.0, updated=2.0, step=3)
    store.write_progress(progress)
    store.write_progress(progress.model_copy(update={"step": 4}))
    (store.folder / "progress" / "a.json").write_text("{")
    assert [(each.id, each.step) for each in store.progress()] == [(CELL.id, 4)]
    store.drop_progress(CELL.id)
    assert store.progress() == []


def test_a_model_that_is_dropped_is_not_there_and_its_record_stays(store):
    record = finish(store)
    store.drop_model(CELL.id)
    assert (store.model(record), store.record(CELL.id)) == (None, record)


# What belongs to another run, or is damaged

READERS = {
    "logits.safetensors": lambda store, record: store.logits(record),
    "tests.safetensors": lambda store, record: store.logits(record, test=True),
    "losses.safetensors": lambda store, record: store.losses(record),
    "sums.safetensors": lambda store, record: store.sums(record),
    "model": lambda store, record: store.model(record),
}


@pytest.mark.parametrize("name", READERS)
def test_after_a_rerun_with_other_bits_each_older_file_is_refused(store, name, tmp_path):
    """And after one with the same bits in another second."""
    write = pretrain if name[:4] in ("loss", "sums") else finish
    for bits in (0.0, 1.0):
        older = store.folder / ("pretrainings" if write is pretrain else "cells") / write(store, bits).job.id / name
        aside = Path(shutil.move(older, tmp_path / f"{name}-{bits}"))
        record = write(store, 1.0) if write is pretrain else write(store, 1.0, seconds=9.0)
        shutil.rmtree(older) if older.is_dir() else older.unlink()
        shutil.move(aside, older)
        if (write, bits) == (pretrain, 1.0):  # of the same bits and the same seconds: it is the same run
            assert READERS[name](store, record)
            continue
        with pytest.raises(UserError, match="belongs to another run") as raised:
            READERS[name](store, record)
        assert str(raised.value).count("\n") == 0


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_gone_is_one_line_and_a_model_that_is_gone_is_none(store, name):
    record = pretrain(store) if name[:4] in ("loss", "sums") else finish(store)
    place = next(store.folder.glob(f"*/*/{name}"))
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    if name == "model":
        assert READERS[name](store, record) is None
    else:
        with pytest.raises(UserError, match=rf"{record.job.id}/{name}: cannot be read \(No such file"):
            READERS[name](store, record)


def test_a_models_file_that_was_changed_is_seen_where_it_is_looked_at_whole(store):
    record = finish(store)
    (store.model(record) / "model.safetensors").write_text("weights 9.0")
    with pytest.raises(UserError, match=r"model/model\.safetensors: changed since"):
        store.model(record, whole=True)
    (store.model(record) / "model.safetensors").unlink()
    with pytest.raises(UserError, match="No such file"):
        store.model(record, whole=True)


def test_labels_of_other_data_and_others_than_the_plan_names_are_refused(store):
    plan = store.write_plan(plan_with(CELL), {"rte": Labels(GOLD)})
    (path,) = (store.folder / "labels").iterdir()
    for data, said in ((DATA, "changed since"), ("0" * 64, "labels of other data")):
        path.write_bytes(Labels({"validation": np.array([1, 1])}).file(data))
        with pytest.raises(UserError, match=said):
            store.labels("rte", DATA, plan.tasks["rte"].labels)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"digest":"' + b"0" * 64 + b'"}'])
def test_a_damaged_record_counts_as_missing_with_a_line(store, content):
    other = finish(store, cell=cell_with(seed=2))
    finish(store)
    (store.folder / "cells" / CELL.id / "record.json").write_bytes(content)
    plan = plan_with(CELL, cell_with(seed=2))
    finished = store.finished(plan)
    assert finished.records == {other.cell.id: other}
    assert finished.problems == (f"cells/{CELL.id}/record.json: damaged or edited; delete it and run again",)
    assert store.record(CELL.id) is None


def test_an_edited_record_counts_as_missing_and_so_does_one_in_the_place_of_another(store):
    record = finish(store, parameters=1234)
    path = store.folder / "cells" / CELL.id / "record.json"
    path.write_bytes(record.file().replace(b"1234", b"1235"))
    other = cell_with(seed=2)
    shutil.copytree(path.parent, store.folder / "cells" / other.id)
    (store.folder / "cells" / other.id / "record.json").write_bytes(record.file())
    problems = store.finished(plan_with(CELL, other)).problems
    assert [problem.partition(": ")[2].partition(";")[0] for problem in problems] == [
        "edited since the run wrote it",
        f"it is the record of '{CELL.id}'",
    ]


def test_a_file_in_the_place_of_a_folder_and_a_link_without_an_end_are_lines(store):
    (store.folder / "cells").mkdir()
    (store.folder / "cells" / CELL.id).write_text("")
    loop = store.folder / "cells" / cell_with(seed=2).id
    loop.symlink_to(loop)
    assert len(store.finished(plan_with(CELL, cell_with(seed=2))).problems) == 2


def test_a_damaged_plan_and_none_are_one_line(store):
    with pytest.raises(UserError, match=r"no plan\.json in"):
        store.plan()
    store.write_plan(plan_with(CELL), {})
    (store.folder / "plan.json").write_text("{}")
    with pytest.raises(UserError, match=r"plan\.json: damaged or edited"):
        store.plan()


# Whole


class Killed:
    """Ends the process, without a word, at the n-th thing that is done to the disk."""

    def __init__(self, after: int) -> None:
        self.left = after

    def before(self, call):
        def counted(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted


def killed(after: int, write) -> bool:
    """Whether a process that calls `write` was killed before its end."""
    if child := os.fork():
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    mishap = Killed(after)
    for module, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (os, "rmdir"), (os, "unlink"), (os, "open")):
        setattr(module, name, mishap.before(getattr(module, name)))
    for name in ("write_bytes", "rename", "replace", "unlink"):
        setattr(Path, name, mishap.before(getattr(Path, name)))
    try:
        write()
    finally:
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("what", ["cell", "pretraining", "plan", "failure"])
def test_killed_at_any_moment_there_is_the_old_result_or_the_new_one_or_none(store, what):
    plans = [plan_with(CELL), plan_with(CELL, PRETRAINING and cell_with(seed=2))]
    failures = [Failure(id=CELL.id, error=error) for error in ("old", "new")]
    write = {
        "cell": lambda new: finish(store, float(new)),
        "pretraining": lambda new: pretrain(store, float(new)),
        "plan": lambda new: store.write_plan(plans[new], {}),
        "failure": lambda new: store.write_failure(failures[new]),
    }[what]
    read = {
        "cell": lambda: store.record(CELL.id),
        "pretraining": lambda: store.pretraining(PRETRAINING.id),
        "plan": lambda: store.plan(),
        "failure": lambda: store.failures(plans[0])[0],
    }[what]
    seen, after = [], 0
    write(1)
    new = read()
    write(0)
    old = read()
    while True:
        write(0)
        ended = not killed(after, lambda: write(1))
        found = read()
        assert found in (old, new, *([None] if what in ("cell", "pretraining") else []))
        if found and what == "cell":
            assert same(store.logits(found), LOGITS if found == old else {"validation": LOGITS["validation"] + 1})
            assert store.model(found, whole=True)
        seen.append("old" if found == old else "new" if found == new else "none")
        after += 1
        if ended:
            break
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert sorted(seen, key=["old", "none", "new"].index) == seen
    assert seen.count("none") <= 4


def test_what_a_kill_has_left_is_no_cell(store):
    finish(store)
    for name in (".making-abc", ".damaged-abc", ".model-abc"):
        (store.folder / "cells" / name).mkdir()
    assert store.recorded() == {CELL.id}
    assert store.finished(plan_with(CELL)).left_out == 0


def test_a_write_that_fails_leaves_what_was_there(store, monkeypatch):
    record = finish(store)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        finish(store, 1.0)
    assert store.record(CELL.id) == record
    assert [path.name for path in (store.folder / "cells").iterdir()] == [CELL.id]


def test_files_can_be_read_by_others(store):
    store.write_plan(plan_with(CELL), {"rte": Labels(GOLD)})
    finish(store)
    for path in store.folder.rglob("*"):
        wanted = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & wanted == wanted or path.name.startswith("."), path


# One driver, and which folder


def test_a_second_driver_is_told_who_holds_the_folder_and_the_lock_is_free_after_a_kill(store):
    ready, done = os.pipe(), os.pipe()
    if not (child := os.fork()):
        with store.lock():
            os.write(ready[1], b"x")
            os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    with (
        pytest.raises(UserError, match=rf"toy is in use by .+:{child}; wait, or choose another --results"),
        store.lock(),
    ):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with store.lock():
        pass
    with store.lock():
        pass


def test_a_folder_that_cannot_be_made_or_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write results to .*; choose another folder with --results"):
        Store(tmp_path / "file" / "toy").prepare()


def test_an_experiment_is_found_by_its_plan(store, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"no experiment in .*toy' \(no plan\.json in it\); give DIR"):
        open_store(store.folder)
    store.write_plan(plan_with(CELL), {})
    assert open_store(store.folder).plan().cells == (CELL,)
    with pytest.raises(UserError, match="it holds experiments: toy"):
        open_store(tmp_path)
    assert [each.folder.name for each in experiments_in(tmp_path)] == ["toy"]
    assert [each.folder for each in experiments_in(store.folder)] == [store.folder]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Stored("~/toy").has_plan
    with pytest.raises(UserError, match="no experiment in"):
        experiments_in(tmp_path / "nowhere")
