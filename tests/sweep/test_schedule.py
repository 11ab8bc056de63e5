"""The order of cells, what waits for what, and what other sweeps do meanwhile."""

import io
import json
import random

import pytest
from rich.console import Console

from glue_bench.config import parse_experiment
from glue_bench.records.record import FailureRecord
from glue_bench.records.store import Store
from glue_bench.sweep import schedule as module
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.sweep.order import Costs, expected_tokens, longest_first
from glue_bench.sweep.patience import FLOOR_SECONDS, Patience
from glue_bench.sweep.plan import in_order, plan_cells
from glue_bench.sweep.schedule import Schedule
from glue_bench.sweep.stop import Stop
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def inputs(tiny, tmp_path):
    settings = {"learning_rates": [1e-3], "from_mnli": ["rte"], "tasks": {"stsb": {"epochs": 50}}}
    values = tiny(tasks=["rte", "cola", "mnli", "stsb"], seeds=[1, 2], finetuning=settings)
    return Inputs(parse_experiment(values), tmp_path / "checkpoints")


@pytest.fixture
def cells(inputs) -> list[PlannedCell]:
    found = plan_cells(inputs.experiment, inputs)
    return in_order(found, found, inputs)


@pytest.fixture
def make(cells, tmp_path, monkeypatch):
    """A schedule of these cells with claims of its own; `elsewhere` has what ended in other sweeps."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    store = Store(tmp_path / "runs")
    store.prepare()
    opened = []

    def make_one(some=None) -> Schedule:
        claims = Claims(tmp_path / "claims").__enter__()
        opened.append(claims)
        elsewhere, said = [], []
        jobs = cells if some is None else some
        failed = {planned.id for planned in jobs if store.has_failure(planned.id)}

        def ready(job):
            ended = store.has_record(job.id) or (store.has_failure(job.id) and job.id not in failed)
            elsewhere.extend([job] * ended)
            return None if ended else job

        schedule = Schedule(
            jobs,
            claims=claims,
            stop=Stop(Console(file=io.StringIO())),
            ready=ready,
            say=said.append,
        )
        schedule.store, schedule.elsewhere, schedule.said = store, elsewhere, said
        return schedule

    yield make_one
    for claims in opened:
        claims.__exit__(None, None, None)


def finish(store: Store, planned: PlannedCell) -> None:
    (store.folder / "records" / f"{planned.id}.json").write_text("{}")


def fail(store: Store, planned: PlannedCell) -> None:
    store.write_failure(FailureRecord(cell_id=planned.id, error="out of luck"))


def tasks(cells) -> list[str]:
    return [planned.cell.task for planned in cells]


def test_cells_are_handed_out_in_order_and_wait_for_their_own_source_only(make):
    schedule = make()
    handed = [schedule.take() for _ in range(12)]
    assert tasks(handed) == ["mnli"] * 4 + ["cola"] * 4 + ["stsb"] * 4
    assert schedule.take() is None
    assert schedule.open
    schedule.end(handed[2])
    (rte,) = [schedule.take()]
    assert (rte.cell.task, rte.mnli) == ("rte", handed[2].id)
    assert schedule.take() is None
    for planned in [*handed[:2], *handed[3:], rte]:
        schedule.end(planned)
    assert tasks(schedule.take() for _ in range(3)) == ["rte"] * 3
    assert not schedule.open


def test_a_cell_whose_source_is_not_among_them_does_not_wait(make, cells):
    schedule = make([planned for planned in cells if planned.cell.task == "rte"])
    assert schedule.take().cell.task == "rte"


def test_after_ctrl_c_nothing_is_handed_out(make):
    schedule = make()
    schedule.take()
    schedule.stop.asked = True
    assert schedule.take() is None
    assert not schedule.open


def test_a_cell_that_another_sweep_runs_is_left_to_it(make, cells):
    first, second = make(), make()
    mine, theirs = first.take(), second.take()
    assert (mine, theirs) == (cells[0], cells[1])
    finish(first.store, mine)
    first.end(mine)
    assert second.take() == cells[2]
    assert second.elsewhere == [mine]
    fail(first.store, cells[3])  # it ran there, and failed: no second attempt here
    assert second.take() == cells[4]
    assert second.elsewhere == [mine, cells[3]]


def test_a_cell_that_another_sweep_gave_up_is_run(make, cells):
    first, second = make(cells[:1]), make(cells[:1])
    planned = first.take()
    assert second.take() is None
    assert second.take() is None
    assert second.said == ["another sweep is at work on what is left; waiting for it"]
    assert second.open
    first.claims.release(planned.id)
    assert second.take() == planned


def test_a_cell_taken_over_while_suspended_is_the_other_sweeps(make, cells):
    schedule = make(cells)
    planned, *_ = iter(schedule.take, None)
    schedule.claims.release(planned.id)
    other = make([planned])
    assert other.take() == planned
    schedule.lost(planned)
    blocked = [cell.id for cell in cells if cell.mnli == planned.id]
    assert blocked
    assert schedule.take() is None
    finish(other.store, planned)
    other.end(planned)
    assert schedule.take().id in blocked
    assert schedule.elsewhere == [planned]


def test_a_failure_of_an_earlier_day_is_no_reason_not_to_try(make, cells):
    fail(make().store, cells[0])
    schedule = make()
    assert schedule.take() == cells[0]
    assert schedule.elsewhere == []


def test_what_hangs_in_another_sweep_is_taken_over_and_its_result_does_not_count(make, cells):
    hanging, waiting = make(), make()
    planned = hanging.take()
    now, said = [0.0], []
    waiting.patience = Patience({job.id: 1.0 for job in cells}, 10.0, said.append, lambda: now[0])
    for job in cells[1:]:
        finish(waiting.store, job)
    while (taken := waiting.take()) is None:
        now[0] += 1
    assert (taken, now[0]) == (planned, FLOOR_SECONDS + 1)
    assert f"cell {planned.label} on {hanging.claims.own.worker}: nothing heard for" in said[0]
    assert waiting.claims.holds(planned.id)
    assert not hanging.claims.holds(planned.id)


def test_what_may_not_be_taken_over_is_said_once(make, cells, monkeypatch):
    hanging, waiting = make(cells[:1]), make(cells[:1])
    planned, now, said = hanging.take(), [0.0], []
    waiting.patience = Patience({planned.id: 1.0}, 10.0, said.append, lambda: now[0])

    def denied(name, hanging=None):
        waiting.claims.denied |= {name} if hanging else set()
        return False

    monkeypatch.setattr(waiting.claims, "take", denied)
    while now[0] < 3 * FLOOR_SECONDS:
        assert waiting.take() is None
        now[0] += 1
    slow, over = said
    assert slow.endswith("it is given up after 5 min")
    assert over.endswith("it is given up there, and run again")
    assert waiting.said == [
        "another sweep is at work on what is left; waiting for it",
        f"'{waiting.claims.folder / planned.id}' is a claim of another user, who does not work on it; delete it",
    ]


def test_a_slow_cell_of_another_sweep_is_left_to_it_while_its_steps_go_on(make, cells, tmp_path):
    slow, waiting = make(cells[:1]), make(cells[:1])
    planned, now = slow.take(), [0.0]
    waiting.patience = Patience({planned.id: 1.0}, 2.0, lambda _: None, lambda: now[0])
    (tmp_path / "progress").mkdir()
    while now[0] < 3 * FLOOR_SECONDS:
        told = {"step": int(now[0] // 100), "steps": 50, "loss": 1.0, "seconds_left": None}
        (tmp_path / "progress" / f"{planned.id}.json").write_text(json.dumps(told))
        assert waiting.take() is None
        now[0] += 5
    while waiting.take() is None:
        now[0] += 5
    assert now[0] == pytest.approx(800 + 2 * 800, abs=20)  # the last step was seen after 800 s


@pytest.mark.parametrize("seed", range(5))
def test_two_sweeps_that_take_turns_run_each_cell_once(make, cells, seed):
    generator, ran = random.Random(seed), []
    schedules = [make(), make()]
    running: list[tuple[Schedule, PlannedCell]] = []
    while any(schedule.open for schedule in schedules) or running:
        schedule = generator.choice(schedules)
        planned = schedule.take() if generator.random() < 0.6 else None
        if planned:
            running.append((schedule, planned))
        elif running:
            mine, planned = running.pop(generator.randrange(len(running)))
            if planned.mnli:
                assert planned.mnli in {p.id for p in ran}
            finish(mine.store, planned)
            ran.append(planned)
            mine.end(planned)
    assert sorted(p.id for p in ran) == sorted(p.id for p in cells)
    assert len(ran) + sum(len(schedule.elsewhere) for schedule in schedules) == 2 * len(cells)
    assert [schedule.left for schedule in schedules] == [0, 0]


def test_the_longest_cells_come_first_and_sources_before_what_they_hold_up(cells, inputs):
    costs = Costs(expected_tokens(cells, inputs), {"add": 1.0, "none": 2.0})
    ordered = longest_first(cells, costs)
    by_task = {planned.cell.task: costs(planned) for planned in cells if planned.cell.arm.name == "add"}
    assert by_task["stsb"] > by_task["mnli"] > by_task["cola"]
    assert [(p.cell.arm.name, p.cell.task) for p in ordered[::2]] == [
        ("none", "stsb"), ("add", "stsb"), ("none", "mnli"), ("add", "mnli"),
        ("none", "rte"), ("none", "cola"), ("add", "rte"), ("add", "cola"),
    ]  # fmt: skip


def test_expected_tokens_are_near_the_real_ones(inputs, cells):
    costs = Costs(expected_tokens(cells, inputs), {"add": 1.0, "none": 1.0})
    for planned in cells:
        real = int(inputs.tokens(planned.cell).splits["train"].offsets[-1]) * planned.cell.hyperparameters.epochs
        assert 0.5 < costs(planned) / real < 2
    assert json.dumps([costs(planned) for planned in cells])
