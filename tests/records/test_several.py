"""A results folder with several model files, kinds of labels, experiments, results of a job."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers.stored import DATA, cell_with, plan_with, pretrained_of, pretraining_with, record_of
from safetensors.numpy import load_file

from glue_bench.errors import UserError
from glue_bench.records.store import Store, experiments_in, open_store
from glue_bench.records.values import Cell, Failure, Job, PretrainingRecord, Progress, Record

CELL = cell_with()
PRETRAINING = pretraining_with()
SPLITS = {"validation_matched": 3, "validation_mismatched": 5}
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def save_model(folder: Path) -> None:
    for name in MODEL_FILES:
        (folder / name).write_text(f"content of {name}")


def logits_of(rows: dict[str, int]) -> dict[str, np.ndarray]:
    """Make numbers that float16 and float32 hold differently, for splits of different sizes."""
    logits = {}
    for name, count in rows.items():
        logits[name] = np.linspace(0, 1, 3 * count, dtype=np.float32).reshape(count, 3)
    return logits


def record_of_job(job: Job) -> Record | PretrainingRecord:
    return record_of(job) if isinstance(job, Cell) else pretrained_of(job)


def date(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize("name", MODEL_FILES)
def test_each_file_of_a_model_is_compared_with_its_digest(store, name):
    record = store.write(record_of(CELL), save_model)
    assert set(record.model) == set(MODEL_FILES)
    (store.models.find(record) / name).write_text("changed")
    with pytest.raises(UserError, match=f"model/{name}: changed since the run wrote it"):
        store.models.find_whole(record)


def test_a_model_exists_until_it_is_dropped(store):
    assert not store.models.exists(CELL.id)
    store.write(record_of(CELL), save_model)
    assert store.models.exists(CELL.id)
    store.models.drop(CELL.id)
    assert not store.models.exists(CELL.id)


@pytest.mark.parametrize("kind", ["logits", "tests"])
def test_predictions_of_several_splits_stay_as_they_were_to_the_bit(store, kind):
    logits = logits_of(SPLITS)
    record = store.write(record_of(CELL), **{kind: logits})
    read = store.logits(record, test=kind == "tests")
    assert read.keys() == logits.keys()
    for name, values in logits.items():
        assert np.array_equal(read[name], values), name
    file = store.folder / "cells" / CELL.id / f"{kind}.safetensors"
    assert {values.dtype for values in load_file(file).values()} == {np.dtype(np.float32)}


def test_labels_of_several_kinds_and_splits_are_all_read(store):
    splits = {name: np.arange(count) % 3 for name, count in SPLITS.items()}
    written = {"gold": splits, "majority": splits, "bag of words": splits}
    plan = store.write_plan(plan_with(cell_with(task="mnli")), {"mnli": written})
    labels = store.labels.read("mnli", DATA, plan.tasks["mnli"].labels)
    assert labels.keys() == written.keys()
    for kind in written:
        assert labels[kind].keys() == splits.keys(), kind
        for name, values in splits.items():
            assert np.array_equal(labels[kind][name], values), f"{kind}/{name}"


def test_labels_of_a_task_stay_known_when_the_plan_is_written_again_without_them(store):
    tasks = (cell_with(task="mnli"), cell_with(task="rte"))
    gold = {"gold": {"validation": np.array([0, 1])}}
    first = store.write_plan(plan_with(*tasks), {"mnli": gold, "rte": gold})
    rewritten = store.write_plan(plan_with(*tasks), {"rte": gold})
    assert rewritten.tasks == first.tasks


@pytest.mark.parametrize("job", [CELL, PRETRAINING], ids=["cell", "pretraining"])
def test_of_a_result_and_a_failure_the_later_one_is_read(store, job):
    stored = store.write(record_of_job(job))
    record = store.folder / job.kind / job.id / "record.json"
    store.write_failure(Failure(id=job.id, error="gone wrong", lost=True))
    failure = store.folder / "failures" / f"{job.id}.json"
    date(record, 1_000)
    date(failure, 2_000)
    assert store.result(job).error == "gone wrong"
    assert store.stored_at(job.id) == 2_000
    date(record, 3_000)
    assert store.result(job) == stored
    assert store.stored_at(job.id) == 3_000


@pytest.mark.parametrize("job", [CELL, PRETRAINING], ids=["cell", "pretraining"])
def test_a_job_that_ends_well_leaves_no_failure_and_one_of_another_job_stays(store, job):
    for name in (job.id, "another"):
        store.write_failure(Failure(id=name, error="gone wrong"))
    store.write(record_of_job(job))
    assert [path.stem for path in (store.folder / "failures").iterdir()] == ["another"]


@pytest.mark.parametrize("job", [CELL, PRETRAINING], ids=["cell", "pretraining"])
def test_every_result_of_a_job_has_another_version(store, job):
    versions = [store.result_version(job.id)]
    for number in range(2):
        store.write(record_of_job(job))
        versions.append(store.result_version(job.id))
        store.write_failure(Failure(id=job.id, error=f"gone wrong {number}"))
        versions.append(store.result_version(job.id))
    assert len(set(versions)) == 5


def test_damaged_records_of_cells_and_of_pretrainings_are_all_named(store):
    jobs: list[Job] = [CELL, cell_with(seed=2), PRETRAINING, pretraining_with(seed=2)]
    for job in jobs:
        store.write(record_of_job(job))
        (store.folder / job.kind / job.id / "record.json").write_text("{}")
    plan = plan_with(*jobs[:2], pretrainings=tuple(jobs[2:]))
    finished = store.finished(plan)
    assert finished.problems.keys() == {job.id for job in jobs}
    assert finished.records == {}
    assert finished.pretrainings == {}


def test_every_whole_record_outside_the_plan_is_found(store):
    outside = [store.write(record_of(cell_with(seed=seed))) for seed in (7, 8, 9)]
    store.write(record_of(CELL))
    records = store.records_outside(plan_with(CELL))
    assert {record.cell.id for record in records} == {record.cell.id for record in outside}
    assert store.finished(plan_with(CELL)).left_out == 3


def test_a_checkpoint_is_held_after_its_own_step_with_its_own_digest_alone(store):
    for step, digest in ((5, "a" * 64), (10, "b" * 64)):
        folder = store.checkpoints.at_step("job", step)
        folder.mkdir(parents=True)
        (folder / "weights.digest").write_text(digest)
    held = set()
    for step, letter in product((5, 10, 15), "ab"):
        if store.checkpoints.has("job", step, letter * 64):
            held.add((step, letter))
    assert held == {(5, "a"), (10, "b")}
    assert not store.checkpoints.has("job", 5, None)


def progress_of(name: str, step: int) -> Progress:
    return Progress(id=name, worker="host:1", began=1.0, updated=2.0, step=step, steps=9)


def test_all_jobs_under_way_are_read_until_each_is_dropped(store):
    for number in (1, 2, 3):
        store.progress.write(progress_of(f"job-{number}", number))
    (store.folder / "progress" / "job-0.json").write_text("{")
    assert [progress.id for progress in store.progress.read()] == ["job-1", "job-2", "job-3"]
    store.progress.write(progress_of("job-2", 5))
    store.progress.drop("job-1")
    store.progress.drop("job-1")
    steps = {progress.id: progress.step for progress in store.progress.read()}
    assert steps == {"job-2": 5, "job-3": 3}


def test_only_one_driver_holds_a_folder_and_the_next_one_may(store):
    in_use = pytest.raises(UserError, match=rf"in use by \S+:{os.getpid()}; wait")
    with store.lock(), in_use, Store(store.folder).lock():
        pass
    with Store(store.folder).lock():
        assert (store.folder / ".driver").is_file()
    assert not (store.folder / ".driver").exists()


@pytest.mark.parametrize("kind", ["cells", "pretrainings"])
def test_a_driver_deletes_incomplete_folders_of_cells_and_of_pretrainings(store, kind):
    abandoned = store.folder / kind / ".making-old"
    abandoned.mkdir(parents=True)
    date(abandoned, 1.0)
    under_way = store.folder / kind / ".making-new"
    under_way.mkdir()
    with store.lock():
        assert not abandoned.exists()
        assert under_way.exists()


def test_to_try_whether_a_folder_can_be_made_makes_none(tmp_path):
    folder = tmp_path / "runs" / "toy"
    Store(folder).prepare(make=False)
    assert not folder.parent.exists()
    Store(folder).prepare()
    assert folder.is_dir()


def test_all_experiments_in_a_folder_are_found_by_name(tmp_path):
    for name in ("b", "a", "c"):
        store = Store(tmp_path / name)
        store.prepare()
        store.write_plan(plan_with(CELL), {})
    (tmp_path / "no-experiment").mkdir()
    assert [store.folder.name for store in experiments_in(tmp_path)] == ["a", "b", "c"]
    with pytest.raises(UserError, match="it holds experiments: a, b, c"):
        open_store(tmp_path)


def test_failures_are_in_the_order_of_the_plan(store):
    cells = [cell_with(seed=seed) for seed in (3, 1, 2)]
    plan = plan_with(*cells, pretrainings=(PRETRAINING,))
    for job in (cells[1], PRETRAINING, cells[0], cells[2]):
        store.write_failure(Failure(id=job.id, error=job.id))
    assert [failure.id for failure in store.failures(plan, ())] == [job.id for job in plan.jobs]


def test_two_cells_that_end_at_once_are_both_stored(store):
    cells = [cell_with(seed=seed) for seed in range(1, 7)]
    with ThreadPoolExecutor(len(cells)) as threads:
        for cell in cells:
            threads.submit(store.write, record_of(cell), save_model)
    assert store.recorded() == {cell.id for cell in cells}


def test_a_file_is_no_experiment(tmp_path):
    path = tmp_path / "mine.yaml"
    path.touch()
    with pytest.raises(
        UserError, match=r"no experiment in '.*mine\.yaml' \(it is a file\); give DIR"
    ):
        open_store(path)
