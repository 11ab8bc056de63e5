"""The results folder: results are read as they were written, and are whole or not there."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from helpers.store_content import (
    CELL,
    GOLD,
    LOGITS,
    LOSSES,
    OTHER_CELL,
    PRETRAINING,
    SUMS,
    TESTS,
    finish,
    finish_pretraining,
    is_same,
)
from helpers.stored import DATA, cell_with, plan_with, pretrained_of, pretraining_with, record_of
from safetensors.numpy import load_file

from glue_bench.errors import UserError
from glue_bench.records.arrays import dump
from glue_bench.records.store import experiments_in, open_store
from glue_bench.records.values import Failure

# What is written is read


def test_a_finished_cell_is_read_as_it_was_stored(store):
    record = finish(store, scores={"validation": {"accuracy": 0.5}})
    assert store.record(CELL.id) == record
    assert is_same(store.logits(record), LOGITS)
    assert is_same(store.logits(record, test=True), TESTS)


def test_a_finished_pretraining_is_read_as_it_was_stored(store):
    record = finish_pretraining(store)
    assert store.pretraining(PRETRAINING.id) == record
    assert is_same(store.losses(record), LOSSES)
    assert is_same(store.measure_sums(record), SUMS)


def test_losses_and_sums_have_small_types_on_disk(store):
    finish_pretraining(store)
    types = {}
    for file in store.folder.glob("pretrainings/*/*.safetensors"):
        for name, values in load_file(file).items():
            types[name] = values.dtype
    assert types["count"] == np.int16
    assert types["loss_sum"] == np.float16
    assert types["swap_1"] == np.float16


def test_a_model_that_was_changed_is_refused(store):
    record = finish(store)
    weights = store.models.find_whole(record) / "model.safetensors"
    assert weights.read_text() == "weights 0.0"
    weights.write_text("weights 9.0")
    with pytest.raises(UserError, match=r"model/model\.safetensors: changed since"):
        store.models.find_whole(record)


def test_the_model_of_another_run_is_refused(store):
    record = finish(store)
    finish(store, 1.0)
    with pytest.raises(UserError, match="belongs to another run"):
        store.models.find(record)


def test_a_model_is_dropped_and_its_record_stays(store):
    record = finish(store)
    store.models.drop(CELL.id)
    assert store.models.find(record) is None
    assert store.record(CELL.id) == record
    assert [path.name for path in (store.folder / "cells").iterdir()] == [CELL.id]


def test_what_a_cell_was_not_asked_for_is_empty(store):
    logits = {"validation": LOGITS["validation"].astype(np.float16).T}
    record = store.write(finish(store), logits=logits)
    assert is_same(store.logits(record), {"validation": LOGITS["validation"].T})
    assert record.tests is None
    assert store.logits(record, test=True) == {}
    assert record.model is None
    assert store.models.find(record) is None


def test_a_search_that_diverged_has_no_losses_and_no_sums(store):
    search = store.write(pretrained_of(PRETRAINING), sums={})
    assert store.losses(search) == {}
    assert store.measure_sums(search) == {}
    assert [*store.folder.rglob("*.safetensors")] == []


def test_a_plan_and_labels_are_read_as_they_were_stored(store):
    labels = GOLD | {"bag of words": {"validation": np.array([1, 1])}}
    plan = store.write_plan(plan_with(CELL), {"rte": labels})
    assert store.plan() == plan
    stored = store.labels.read("rte", DATA, plan.tasks["rte"].labels)
    assert stored.keys() == labels.keys()
    for kind, splits in labels.items():
        assert is_same(stored[kind], splits), kind
    assert store.write_plan(plan_with(CELL, OTHER_CELL), {}).tasks == plan.tasks


def test_without_a_file_there_are_no_labels(store):
    assert store.labels.read("rte", "0" * 64) == {"gold": {}}


@pytest.mark.parametrize(
    ("data", "fault"), [(DATA, "changed since"), ("0" * 64, "belongs to other data")]
)
def test_other_labels_are_refused(store, data, fault):
    plan = store.write_plan(plan_with(CELL), {"rte": GOLD})
    (path,) = (store.folder / "labels").iterdir()
    path.write_bytes(dump({"gold/validation": np.array([1, 1])}, data=data))
    with pytest.raises(UserError, match=fault):
        store.labels.read("rte", DATA, plan.tasks["rte"].labels)


def test_only_jobs_of_the_plan_count_as_finished(store):
    plan = plan_with(CELL, OTHER_CELL, pretrainings=(PRETRAINING, pretraining_with(seed=2)))
    record = finish(store)
    outside = finish(store, cell=cell_with(seed=9))
    pretrained = finish_pretraining(store)
    for name in (".making-abc", ".damaged-abc"):  # a killed run has left these
        (store.folder / "cells" / name).mkdir()
    finished = store.finished(plan)
    assert finished.records == {CELL.id: record}
    assert finished.pretrainings == {PRETRAINING.id: pretrained}
    assert finished.left_out == 1
    assert finished.problems == {}
    assert store.records_outside(plan) == [outside]
    assert store.recorded() == {CELL.id, outside.cell.id, PRETRAINING.id}


def test_a_job_without_a_result_has_no_version_and_no_date(store):
    assert store.result(CELL) is None
    assert store.result_version(CELL.id) == ""
    assert store.stored_at(CELL.id) == 0.0


def test_a_failure_lasts_until_its_job_has_ended_well(store):
    plan = plan_with(CELL, OTHER_CELL, pretrainings=(PRETRAINING,))
    for name in (CELL.id, PRETRAINING.id, "not-of-the-plan"):
        store.write_failure(Failure(id=name, error="gone wrong", lost=True))
    failures = store.failures(plan, store.recorded())
    expected = [PRETRAINING.id, CELL.id]
    assert [failure.id for failure in failures] == expected
    finish(store)
    finish_pretraining(store)
    assert store.failures(plan, store.recorded()) == []


def test_the_last_result_of_a_job_is_read_and_each_has_a_version(store):
    store.write_failure(Failure(id=CELL.id, error="gone wrong", lost=True))
    assert store.result(CELL).error == "gone wrong"
    versions = {store.result_version(CELL.id)}
    for bits in (0.0, 1.0):
        record = finish(store, bits)
        assert store.result(CELL) == record
        versions.add(store.result_version(CELL.id))
    assert len(versions) == 3


def test_a_failure_that_cannot_be_read_says_so(store):
    store.write_failure(Failure(id=CELL.id, error="gone wrong"))
    (store.folder / "failures" / f"{CELL.id}.json").write_text("{")
    (failure,) = store.failures(plan_with(CELL), ())
    assert failure.error == f"failures/{CELL.id}.json cannot be read: ValidationError"


def test_a_model_may_have_folders(store):
    """The tokenizers of some models have a folder of templates."""

    def save(model: Path) -> None:
        (model / "templates").mkdir()
        (model / "templates" / "tool.jinja").write_text("x")

    record = store.write(record_of(CELL), save)
    assert [*record.model] == ["templates/tool.jinja"]
    assert store.record(CELL.id) == record
    assert store.models.find_whole(record)


def test_files_can_be_read_by_others(store):
    store.write_plan(plan_with(CELL), {"rte": GOLD})
    finish(store)
    for path in store.folder.rglob("*"):
        mode = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & mode == mode or path.name.startswith("."), path


def test_experiments_are_found_by_their_plans(store, tmp_path, monkeypatch):
    store.write_plan(plan_with(CELL), {})
    for folder in (tmp_path, store.folder):
        assert [experiment.folder for experiment in experiments_in(folder)] == [store.folder]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/toy").plan().cells == (CELL,)


# Whole, or not there

DISK_CALLS = (
    (os, ("fsync", "rename", "replace", "rmdir", "unlink", "open")),
    (Path, ("write_bytes", "rename", "replace", "unlink")),
)


def is_killed(calls: int, write) -> bool:
    """Return whether a process that is killed after these `calls` of `write` to the disk dies."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)
    count = 0

    def with_kill(call):
        def kill_or_call(*args, **kwargs):
            nonlocal count
            count += 1
            if count > calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return kill_or_call

    for owner, names in DISK_CALLS:
        for name in names:
            setattr(owner, name, with_kill(getattr(owner, name)))
    try:
        write()
    finally:
        os._exit(0)


def test_killed_at_any_moment_there_is_the_old_result_or_the_new_one_or_none(store):
    new = finish(store, 1.0)
    old = finish(store)

    states = []
    has_ended = False
    while not has_ended:
        finish(store)
        has_ended = not is_killed(len(states), lambda: finish(store, 1.0))

        result = store.record(CELL.id)
        with store.lock():  # the next run begins with this lock
            restored = store.record(CELL.id)

        assert restored in ((old, new) if result is None else (result,))
        assert [path.name for path in (store.folder / "cells").glob("[!.]*")] == [CELL.id]
        assert [*store.folder.glob("cells/.[!m]*")] == []  # such folders go after a day
        if result:
            logits = {"validation": LOGITS["validation"] + np.float32(result == new)}
            assert is_same(store.logits(result), logits)
            assert store.models.find_whole(result)

        states.append(
            {old.digest: "old", new.digest: "new", None: "none"}[result and result.digest]
        )

    assert states[0] == "old"
    assert states[-1] == "new"
    assert sorted(states, key=["old", "none", "new"].index) == states
    assert states.count("none") <= 4


def test_killed_at_any_moment_a_dropped_model_is_whole_or_gone_and_nothing_of_it_stays(store):
    kills = 0
    has_ended = False
    while not has_ended:
        record = finish(store)
        has_ended = not is_killed(kills, lambda: store.models.drop(CELL.id))
        kills += 1
        with store.lock():
            folder = store.models.find_whole(record)
        files = [folder / "model.safetensors"] if folder else []
        assert [*store.folder.glob("cells/**/model.safetensors")] == files
    assert kills > 3


def test_a_result_that_a_killed_run_has_put_aside_is_named_until_the_next_run_puts_it_back(store):
    plan = store.write_plan(plan_with(CELL), {})
    record = store.write(record_of(CELL))
    folder = store.folder / "cells" / CELL.id
    folder.rename(folder.with_name(f".replaced-{CELL.id}"))
    problem = store.finished(plan).problems[CELL.id]
    assert problem == (
        f"cells/{CELL.id}: its result lies in .replaced-{CELL.id}, where an interrupted run has "
        "put it; run again, which puts it back"
    )
    with store.lock():
        expected = {CELL.id: record}
        assert store.finished(plan).records == expected
        assert store.finished(plan).problems == {}
