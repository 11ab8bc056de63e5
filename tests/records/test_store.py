"""Records on disk: whole or absent, checked when read."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from stored import documents, plan_with, read_records

from glue_bench.errors import UserError
from glue_bench.files import cache_folder
from glue_bench.records import disk
from glue_bench.records.disk import record_digest
from glue_bench.records.record import FailureRecord, PretrainingRecord, Record
from glue_bench.records.store import Store, open_store, write_atomically
from glue_bench.records.value import SCHEMA_VERSION

LOGITS = {"validation": np.arange(6, dtype=np.float32).reshape(3, 2), "test": np.zeros((2, 2), np.float32)}


def record(cell_id="a-cola-lr2e-05-s1-0", **changes):
    cell = {"arm": "add", "variant": "add", "task": "cola", "learning_rate": 2e-5, "seed": 1}
    whole = {
        **{"schema_version": SCHEMA_VERSION, "cell_id": cell_id, "cell": cell, "origin": "pretrained", "scores": {}},
        **{"history": [], "collapsed": [], "seconds": {"total": 1.0}, "tokens": {}, "parameters": 1},
        **{"environment": {}, "data": {"source": "tsv", "digest": "d", "partial": False}},
    }
    return whole | changes


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "runs" / "x")
    store.prepare()
    return store


def files(store: Store) -> list[str]:
    return sorted(str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file())


# Round trips


def test_a_finished_cell_round_trips(store):
    store.write_record(Record(**record()), LOGITS)
    logits = (store.folder / "predictions" / "a-cola-lr2e-05-s1-0.safetensors").read_bytes()
    whole = record(predictions_sha256=hashlib.sha256(logits).hexdigest())
    assert documents(store) == [{**whole, "digest": record_digest(whole)}]
    assert [json.loads(json.dumps(read.document())) for read in read_records(store)] == documents(store)
    stored = store.read_predictions("a-cola-lr2e-05-s1-0")
    assert set(stored) == {"validation", "test"}
    for name, logits in LOGITS.items():
        assert stored[name].dtype == np.float32
        np.testing.assert_array_equal(stored[name], logits)


def test_predictions_are_stored_as_contiguous_float32(store):
    logits = np.arange(6, dtype=np.float64).reshape(2, 3).T
    store.write_record(Record(**record()), {"validation": logits})
    stored = store.read_predictions("a-cola-lr2e-05-s1-0")["validation"]
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored, logits)


def test_gold_labels_round_trip_by_task_and_data(store):
    store.write_labels("mnli", "0123456789abcdef", {"validation_matched": [0, 2], "validation_mismatched": [1]})
    store.write_labels("stsb", "0123456789abcdef", {"validation": np.array([0.5, 5.0], np.float32)})
    assert files(store) == ["labels/mnli-0123456789ab.safetensors", "labels/stsb-0123456789ab.safetensors"]
    classes = store.read_labels("mnli", "0123456789abcdef")
    assert {name: values.tolist() for name, values in classes.items()} == {
        "validation_matched": [0, 2],
        "validation_mismatched": [1],
    }
    assert classes["validation_matched"].dtype == np.int8
    assert store.read_labels("stsb", "0123456789abcdef")["validation"].tolist() == [0.5, 5.0]
    assert store.read_labels("mnli", "fedcba9876543210") == {}


def test_records_are_read_in_the_order_of_their_ids(store):
    for cell_id in ("c", "a", "b"):
        store.write_record(Record(**record(cell_id)), LOGITS)
    assert [found.cell_id for found in read_records(store)] == ["a", "b", "c"]


def test_text_is_stored_readably(store):
    store.write_plan(plan_with(experiment="Zürich"))
    assert "Zürich" in (store.folder / "plan.json").read_text(encoding="utf-8")
    assert store.read_plan() == plan_with(experiment="Zürich")


def test_the_validation_losses_of_a_pretraining_round_trip(store):
    identity = {"variant": "add", "options": {}, "tokenizer": "t", "start": "s", "corpus": "c", "packing": 2}
    made = PretrainingRecord.model_validate(
        {"schema_version": SCHEMA_VERSION, "pretraining_id": "a-0a", "arm": "a", "origin": "pretrained", "steps": 8}
        | {"tokens": 64, "seconds": 1.5, "stream": "s", "losses": [], "identity": identity | {"settings": {}}}
    )
    losses = {"loss_sum": np.array([6.5, 0.25]), "count": np.array([3, 0]), "document": np.array([0, 4])}
    store.write_pretraining(made)
    assert store.read_validation("a-0a") == {}
    (stored,) = store.read_pretrainings()
    assert stored.digest is not None
    assert stored.model_copy(update={"digest": None}) == made
    store.write_pretraining(made, losses)
    stored = store.read_validation("a-0a")
    assert {name: values.dtype for name, values in stored.items()} == {
        "loss_sum": np.float64, "count": np.int64, "document": np.int64,
    }  # fmt: skip
    for name, values in losses.items():
        np.testing.assert_array_equal(stored[name], values)
    path = store.folder / "pretraining" / "a-0a.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (record,) = store.read_pretrainings()
    assert record.validation_sha256 == digest
    assert record.model_copy(update={"validation_sha256": None, "digest": None}) == made
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"pretraining/a-0a\.safetensors: cannot be read"):
        store.read_validation("a-0a")


# States


def test_states_follow_records_and_failures(store):
    store.write_plan(plan_with(*({"cell_id": name} for name in ("a", "b", "c"))))
    store.write_failure(FailureRecord(cell_id="a", error="E"))
    store.write_failure(FailureRecord(cell_id="b", error="E"))
    store.write_record(Record(**record("a")), LOGITS)
    assert [(cell.cell_id, state) for cell, state in store.states()] == [
        ("a", "done"),
        ("b", "failed"),
        ("c", "missing"),
    ]
    assert [failure.cell_id for failure in store.read_failures()] == ["b"]
    assert files(store) == ["failures/b.json", "plan.json", "predictions/a.safetensors", "records/a.json"]


def test_a_failure_left_behind_by_a_kill_does_not_count(store):
    store.write_record(Record(**record("a")), LOGITS)
    store.write_failure(FailureRecord(cell_id="a", error="written before the record, and never removed"))
    store.write_plan(plan_with({"cell_id": "a"}))
    assert store.read_failures() == []
    assert [state for _, state in store.states()] == ["done"]


def test_a_failure_that_is_deleted_as_it_is_read_is_none(store, monkeypatch):
    store.write_failure(FailureRecord(cell_id="a", error="out of luck"))
    monkeypatch.setattr(store, "has_record", store.drop_failure)  # asked between the look and the reading
    assert store.read_failures() == []
    assert store.read_failure("a") is None


def test_states_need_a_plan(store):
    with pytest.raises(UserError, match=r"no plan.json in .*; run the experiment once"):
        store.states()


# Atomicity


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=type)
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    path = tmp_path / "plan.json"
    write_atomically(path, b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_rename_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(PermissionError):
        write_atomically(tmp_path / "a.json", b"new")
    assert list(tmp_path.iterdir()) == []


def test_content_reaches_the_disk_before_the_rename(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda *paths: (events.append("rename"), replace(*paths))[1])
    write_atomically(tmp_path / "a.json", b"new")
    assert events == ["fsync", "rename", "fsync"]  # the file, its new name, the folder
    assert (tmp_path / "a.json").read_bytes() == b"new"


def test_a_record_never_lacks_its_predictions(store, monkeypatch):
    written = []

    def stop_at_records(path, _content):
        written.append(path.parent.name)
        if path.parent.name == "records":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("glue_bench.records.store.write_atomically", stop_at_records)
    with pytest.raises(OSError, match="No space"):
        store.write_record(Record(**record()), LOGITS)
    assert written == ["predictions", "records"]
    assert not store.has_record("a-cola-lr2e-05-s1-0")


def test_a_record_that_is_no_json_is_not_written(store):
    with pytest.raises(ValueError, match="finite number"):
        store.write_record(Record(**record(seconds={"total": float("nan")})), LOGITS)
    assert read_records(store) == []


def test_files_are_readable_by_others(store):
    store.write_record(Record(**record()), LOGITS)
    assert {path.stat().st_mode & 0o777 for path in store.folder.rglob("*") if path.is_file()} == {0o644}


# Bad input


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"schema_version": 1', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "it lacks cell, cell_id"),
        (b'{"seconds": NaN}', "not valid JSON"),
        (b"[" * 10_000, "not valid JSON"),
    ],
)
def test_a_damaged_record_is_named(store, content, said):
    (store.folder / "records" / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.json: {said}.*delete it and run again"):
        read_records(store)


@pytest.mark.parametrize(
    "edit",
    [
        {"scores": {"validation": {"accuracy": 0.9}}},
        {"scores": {"validation": {"accuracy": "0.9"}}},
        {"scores": [1]},
        {"cell": {"arm": "add"}},
        {"cell_id": "b"},
        {"seconds": 2},
    ],
    ids=["score", "text", "list", "cell", "id", "anything"],
)
def test_an_edited_record_is_named(store, edit):
    store.write_record(Record(**record("a")), {})
    path = store.folder / "records" / "a.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(UserError, match=r"a\.json: edited since the run wrote it"):
        read_records(store)


def test_the_other_records_are_read_when_one_is_damaged(store):
    for name in ("a", "b"):
        store.write_record(Record(**record(name)), {})
    (store.folder / "records" / "a.json").write_bytes(b"{")
    records, problems = store.scan_records()
    assert [found.cell_id for found in records] == ["b"]
    assert len(problems) == 1
    assert problems[0].startswith("records/a.json: not valid JSON")


def test_a_record_of_another_schema_is_refused(store):
    text = json.dumps(record(schema_version=SCHEMA_VERSION + 1))
    (store.folder / "records" / "a.json").write_text(text)
    with pytest.raises(UserError, match=f"schema version {SCHEMA_VERSION + 1}, this glue-bench reads"):
        read_records(store)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cells": 3}, "edited since the run wrote it"),
        ({"arms": {"add": {"length": "long"}}}, "edited since the run wrote it"),
        ({"config": {"protocol": {"seeds": "all"}}}, "edited since the run wrote it"),
        ({"schema_version": 7}, "schema version 7, this glue-bench reads 1"),
        ({"cells": None}, "it lacks cells"),
    ],
    ids=["cells", "arms", "protocol", "version", "lacks"],
)
def test_a_plan_that_no_run_has_written_is_one_line(store, change, said):
    document = {**plan_with().document(), **change}
    kept = {key: value for key, value in document.items() if value is not None}
    (store.folder / "plan.json").write_text(json.dumps(kept))
    with pytest.raises(UserError, match=rf"plan\.json: {said}.*delete it and run again"):
        store.states()


def test_a_plan_is_read_again_only_if_its_file_is_another(store):
    store.write_plan(plan_with({"cell_id": "a"}))
    plan = store.read_plan()
    assert store.read_plan() is plan
    store.write_plan(plan_with({"cell_id": "b"}))
    assert [cell.cell_id for cell in store.read_plan().cells] == ["b"]


def test_a_record_that_cannot_be_opened_is_named(store):
    (store.folder / "records" / "a.json").mkdir()
    with pytest.raises(UserError, match=r"cannot read '.*a\.json': Is a directory"):
        read_records(store)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write results to '.*': Not a directory; choose another .* --results"):
        Store(tmp_path / "file" / "x").prepare()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused(store):
    store.folder.chmod(0o500)
    with pytest.raises(UserError, match="Permission denied"):
        store.prepare()
    store.folder.chmod(0o700)


def test_opening_needs_records(tmp_path, store, monkeypatch):
    assert open_store(store.folder).folder == store.folder
    monkeypatch.setenv("HOME", str(store.folder.parent))
    assert open_store(f"~/{store.folder.name}").folder == Store(f"~/{store.folder.name}").folder == store.folder
    monkeypatch.setenv("GLUE_BENCH_CACHE", "~/cache")
    assert cache_folder() == store.folder.parent / "cache"
    with pytest.raises(UserError, match="it holds experiments: x"):
        open_store(tmp_path / "runs")
    with pytest.raises(UserError, match=r"no experiment in .*give DIR/<experiment>"):
        open_store(tmp_path / "none")


def test_a_record_is_read_again_only_if_its_file_is_another(store, monkeypatch):
    store.write_record(Record(**record()), {"validation": np.zeros((1, 2))})
    first = read_records(store)
    loads, load = [], disk.load
    monkeypatch.setattr(disk, "load", lambda path: loads.append(path) or load(path))
    assert read_records(store) == first
    assert loads == []
    path = store.folder / "records" / f"{record()['cell_id']}.json"
    path.write_bytes(path.read_bytes().replace(b'"collapsed"', b'"Collapsed"'))
    assert len(store.scan_records()[1]) == 1
    assert loads == [path]
