"""How far an experiment is, from its folder alone."""

import json
import os
from pathlib import Path

import pytest
from stored import plan_with, record_of

from glue_bench.errors import UserError
from glue_bench.records import disk
from glue_bench.records.record import FailureRecord
from glue_bench.records.store import Store
from glue_bench.sweep.claims import Claims
from glue_bench.watch import status as module
from glue_bench.watch.status import Watch
from glue_bench.watch.view import Counts

NOW = 1_000_000.0


class Folder:
    """An experiment's folder with a plan of two arms, on two tasks with five seeds, and what one writes into it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.prepare()
        self.cells = [
            {"cell_id": f"{arm}-{task}-{seed}", "arm": arm, "task": task, "seed": seed}
            for task in ("mnli", "rte")
            for seed in range(5)
            for arm in ("add", "none")
        ]
        self.plan(self.cells, mnli=1000, rte=10)

    def plan(self, cells, **tokens) -> None:
        arms = {"add": {"flops_per_token": 1}, "none": {"flops_per_token": 1}}
        self.store.write_plan(plan_with(*cells, arms=arms, training_tokens=tokens))

    def end(self, cell_id: str, ago: float, seconds: float = 100.0) -> None:
        path = self.store.folder / "records" / f"{cell_id}.json"
        record = record_of(cell_id=cell_id, seconds={"total": seconds}, tokens={"training": 360_000})
        path.write_text(json.dumps(record.document()))
        os.utime(path, (NOW - ago, NOW - ago))

    def fail(self, cell_id: str) -> None:
        self.store.write_failure(FailureRecord(cell_id=cell_id, error="out of luck"))


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path / "x")


@pytest.fixture
def watch(folder) -> Watch:
    return Watch(folder.store, clock=lambda: NOW)


@pytest.fixture
def claims(folder):
    with Claims(folder.store.folder / "claims") as claims:
        yield claims


def test_each_cell_is_in_one_state(folder, watch, claims):
    folder.end("add-mnli-0", ago=10)
    folder.end("none-mnli-0", ago=10)
    folder.fail("none-mnli-0")  # finished since
    folder.fail("add-mnli-1")
    folder.fail("none-mnli-1")
    folder.end("of-an-earlier-plan", ago=10)
    for name in ("add-mnli-0", "none-mnli-1", "none-mnli-2", "add-0123456789ab"):
        claims.take(name)
    snapshot = watch.look()
    assert snapshot.arms == {"add": Counts(1, 0, 1, 8), "none": Counts(1, 2, 0, 7)}
    worker = f"({os.uname().nodename}:{os.getpid()})"
    assert sorted(snapshot.running) == [
        f"none on mnli, rate 0.001, seed 1 {worker}",
        f"none on mnli, rate 0.001, seed 2 {worker}",
        f"pretraining add-0123456789ab {worker}",
    ]


def test_pace_and_end_follow_the_records_of_the_last_hour(folder, watch, claims):
    for number, cell in enumerate(folder.cells[:4]):
        folder.end(cell["cell_id"], ago=3000 - 900 * number)
    folder.end("add-mnli-2", ago=7200)
    assert watch.look().cells_per_hour is None  # nothing runs
    claims.take("none-mnli-2")
    claims.take("add-mnli-3")
    snapshot = watch.look()
    assert snapshot.cells_per_hour == pytest.approx(3600 * 4 / 3100)
    assert snapshot.tokens_per_second == pytest.approx(4 * 360_000 / 3100)
    # Half of two that run, three more like them, and ten of a hundredth of the cost; on two workers.
    assert snapshot.seconds_left == pytest.approx((100 + 300 + 10) / 2)


def test_a_plan_without_costs_gives_no_end(folder, watch, claims):
    folder.plan(folder.cells)
    for cell in folder.cells[:4]:
        folder.end(cell["cell_id"], ago=300)
    claims.take("none-mnli-2")
    snapshot = watch.look()
    assert snapshot.seconds_left is None
    assert snapshot.cells_per_hour is not None


def test_claims_of_the_dead_run_nothing(watch, claims):
    claims.folder.mkdir()
    dead = {"machine": "elsewhere boot table", "pid": 12, "started": 1, "token": "x"}
    for name, machine, age in [("add-rte-0", "elsewhere", 0), ("add-rte-1", "elsewhere", 4000), ("add-rte-2", None, 0)]:
        path = claims.folder / name
        # The third is of a process of this machine that is gone: its start is another one's.
        path.write_text(json.dumps(dead | ({} if machine else {"machine": claims.own.machine, "pid": os.getpid()})))
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    (claims.folder / "add-rte-3").write_text("")  # just being written
    assert [line.split(" (")[1] for line in watch.look().running] == ["elsewhere:12)"]
    assert len(list(claims.folder.iterdir())) == 4  # nothing was taken over


def test_a_file_is_read_once_however_often_one_looks(folder, watch, claims, monkeypatch):
    read, reads = disk.load, []
    monkeypatch.setattr(disk, "load", lambda path: reads.append(path.stem) or read(path))
    claims.take("add-rte-4")
    for number in range(4):
        folder.end(folder.cells[number]["cell_id"], ago=100)
        for _ in range(3):
            assert watch.look().total.done == number + 1
    assert reads == ["plan", *(cell["cell_id"] for cell in folder.cells[:4])]
    folder.plan(folder.cells[:10])
    assert watch.look().total.total == 10


def test_old_records_are_counted_and_not_read(folder, watch, monkeypatch):
    monkeypatch.setattr(module, "AT_LEAST", 3)
    read, reads = disk.load, []
    monkeypatch.setattr(disk, "load", lambda path: reads.append(path.stem) or read(path))
    for number, cell in enumerate(folder.cells[:8]):
        folder.end(cell["cell_id"], ago=10_000 - number)
    assert watch.look().total.done == 8
    assert len(reads) == 1 + 3  # the plan, and the newest


def test_a_damaged_record_is_a_finished_cell_without_a_pace(folder, watch, claims):
    claims.take("add-rte-4")
    for number, content in enumerate(["", "[]", '{"seconds": 3}', '{"seconds": {"total": "x"}, "tokens": {}}']):
        (folder.store.folder / "records" / f"{folder.cells[number]['cell_id']}.json").write_text(content)
    snapshot = watch.look()
    assert (snapshot.total.done, snapshot.cells_per_hour) == (4, None)


def test_a_folder_without_a_plan_is_refused(tmp_path):
    Store(tmp_path).prepare()
    with pytest.raises(UserError, match=r"no plan\.json in"):
        Watch(Store(tmp_path)).look()
