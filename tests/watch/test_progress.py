"""What a person sees of a sweep: counts, how long still, lines in a log, a table that fits into the window."""

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

from glue_bench.config import parse_experiment
from glue_bench.records.record import RunFacts
from glue_bench.sweep.events import (
    JobElsewhere,
    JobEnded,
    JobStarted,
    Observers,
    SweepEnded,
    SweepInterrupted,
    SweepStarted,
)
from glue_bench.sweep.jobs import Failure, PlannedCell
from glue_bench.sweep.options import RunOptions
from glue_bench.training.finetune import Outcome
from glue_bench.values import duration
from glue_bench.watch.estimate import Estimate
from glue_bench.watch.observers import make_observers
from glue_bench.watch.progress import PACE_SECONDS, LiveTable, PlainLines, describe
from glue_bench.watch.tally import Tally
from glue_bench.watch.view import Counts, Snapshot, describe_pace, view


def outcome(seconds: float, tokens: int = 1000) -> Outcome:
    scores = {"validation": {"matthews_correlation": 0.5}}
    record = {"origin": "scratch", "scores": scores, "history": [], "collapsed": [], "parameters": 1}
    ran = {"seconds": {"total": seconds}, "tokens": {"training": tokens}}
    return Outcome(RunFacts.model_validate(record | ran), {})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cells(tiny) -> list[PlannedCell]:
    """Two arms on two tasks with three seeds."""
    found = parse_experiment(tiny(seeds=[1, 2, 3])).cells()
    return [PlannedCell(f"{c.arm.name}-{c.task}-{c.seed}", c, "scratch") for c in found]


@pytest.fixture
def begin(cells, clock, tmp_path):
    """A sweep of these cells, the first of which was done before, and a tally of it."""

    def start(workers: int | None = 1) -> tuple[Tally, SweepStarted]:
        costs = {p.id: 10.0 if p.cell.task == "stsb" else 1.0 for p in cells}
        begun = SweepStarted("tiny", tmp_path, cells[:1], cells[1:], ["add", "none"], costs, workers=workers)
        tally = Tally(clock)
        tally.hear(begun)
        return tally, begun

    return start


def test_what_an_interruption_stopped_is_queued_again(cells, begin):
    tally, _ = begin()
    for planned in cells[1:3]:
        tally.hear(JobStarted(planned, "here:1"))
    tally.hear(JobEnded(cells[1], outcome(1.0)))
    tally.hear(SweepInterrupted())
    assert (tally.snapshot().total.running, tally.snapshot().total.queued) == (0, len(cells) - 2)
    assert not tally.snapshot().running


# The estimate


def test_nothing_is_said_before_there_is_ground():
    estimate = Estimate(dict.fromkeys("abcde", 1.0), dict.fromkeys("abcde", "cola"))
    for name in "ab":
        estimate.learn(name, 10)
        assert estimate.seconds_left("cde", {}, 1) is None
    estimate.learn("c", 10)
    assert estimate.seconds_left("de", {}, 1) == pytest.approx(20)


def test_what_is_left_follows_costs_tasks_workers_and_running_cells():
    tasks = {"a": "cola", "b": "cola", "c": "cola", "d": "cola", "e": "mnli", "f": "mnli", "g": "rte"}
    costs = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 3.0, "e": 100.0, "f": 100.0, "g": 10.0}
    estimate = Estimate(costs, tasks)
    for name in "abc":
        estimate.learn(name, 2.0)
    assert estimate.seconds_left("d", {}, 1) == pytest.approx(6)  # three times the cost
    assert estimate.seconds_left("g", {}, 1) == pytest.approx(20)  # of a task nothing has ended of
    estimate.learn("e", 1000.0)
    assert estimate.seconds_left("f", {}, 1) == pytest.approx(1000)  # its task's own seconds per cost
    assert estimate.seconds_left("d", {"f": 998.0}, 2) == pytest.approx(4)
    assert estimate.seconds_left("d", {"f": 100.0}, 8) == pytest.approx(900)  # one cell is not shared
    assert estimate.seconds_left("", {"f": 5000.0}, 1) == 0.0
    assert estimate.seconds_left("", {"f": None}, 1) == pytest.approx(500)


def test_a_simulated_sweep_of_unequal_cells_is_foreseen(cells, begin, clock):
    tally, _ = begin()
    true = {p.id: 100.0 if p.cell.task == "stsb" else 10.0 for p in cells}
    told = []
    for number, planned in enumerate(cells[1:]):
        tally.hear(JobStarted(planned, "here:1"))
        left = sum(true[p.id] for p in cells[1 + number :])
        told.append((tally.snapshot().seconds_left, left))
        clock.now += true[planned.id]
        tally.hear(JobEnded(planned, outcome(true[planned.id])))
    assert [guess for guess, _ in told[:3]] == [None] * 3
    for guess, left in told[3:]:
        assert guess == pytest.approx(left)
    assert tally.snapshot().seconds_left == 0


# The tally


def test_each_cell_is_counted_once_in_one_state(cells, begin, clock):
    tally, _ = begin()
    assert tally.snapshot().total == Counts(done=1, queued=11)
    tally.hear(JobStarted(cells[1], "here:1"))
    tally.hear(JobStarted(cells[1], "there:2"))  # its worker was lost
    assert tally.snapshot().total == Counts(done=1, running=1, queued=10)
    clock.now += 90
    tally.hear(JobEnded(cells[1], Failure("out of luck", "")))
    tally.hear(JobEnded(cells[2], Failure("its arm was not pretrained", "")))  # never started
    tally.hear(JobElsewhere(cells[3], None))
    tally.hear(JobElsewhere(cells[4], "failed there"))
    assert tally.snapshot().total == Counts(done=2, failed=3, queued=7)
    assert (tally.ended, tally.total) == (4, 11)
    assert sum(counts.total for counts in tally.counts.values()) == len(cells)
    assert tally.snapshot().cells_per_hour is None


def test_rates_are_of_cells_that_ran_here(cells, begin, clock):
    tally, _ = begin()
    for planned in cells[1:4]:
        tally.hear(JobStarted(planned, "here:1"))
        clock.now += 20
        tally.hear(JobEnded(planned, outcome(20, tokens=600)))
    tally.hear(JobElsewhere(cells[4], None))
    snapshot = tally.snapshot()
    assert snapshot.cells_per_hour == pytest.approx(180)
    assert snapshot.tokens_per_second == pytest.approx(30)
    assert describe_pace(snapshot).endswith("left, 180 cells/h, 30 tokens/s")


# Lines


def test_a_log_has_a_line_at_the_start_and_one_a_cell_and_the_pace_now_and_then(cells, begin, clock):
    console = Console(file=io.StringIO(), width=40)
    tally, begun = begin(workers=2)
    lines = PlainLines(console, tally, clock)
    lines.hear(begun)
    for number, planned in enumerate(cells[1:]):
        result = Failure("RuntimeError: [bold]out of luck", "") if number == 1 else outcome(20)
        tally.hear(JobStarted(planned, "here:1"))
        clock.now += PACE_SECONDS / 3
        for observer in (tally, lines):
            observer.hear(JobEnded(planned, result))
    said = console.file.getvalue().splitlines()
    assert len(said) == 12
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in said)
    assert "11 cells to run, 1 done before, on 2 workers" in said[0]
    assert said[1].endswith("[1/11] none on cola, rate 0.001, seed 1: matthews_correlation 50.00, 20.0 s")
    assert said[2].endswith("[2/11] add on cola, rate 0.001, seed 2: FAILED RuntimeError: [bold]out of luck")
    assert [number for number, line in enumerate(said) if " tokens/s)" in line] == [3, 6, 9]
    assert "left" in said[6]


def test_an_undefined_score_is_said(cells):
    ran = outcome(20)
    undefined = ran.facts.model_copy(update={"scores": {"validation": {"pearson": None}}})
    assert describe(JobEnded(cells[0], Outcome(undefined, {}))) == "pearson NaN, 20.0 s"


# The table


def shown(snapshot: Snapshot, width: int = 80, height: int = 24, latest=()) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(view(snapshot, console, latest))
    return console.file.getvalue().splitlines()


def arms(number: int) -> dict[str, Counts]:
    return {f"arm-{i}": Counts(done=60, running=i % 2, failed=3 * (i == 4), queued=120) for i in range(number)}


def test_eighteen_arms_fit_into_a_terminal_of_80_by_24():
    running = [f"add on mnli, rate 3e-05, seed {i}" for i in range(8)]
    snapshot = Snapshot(arms(18), running, 123456, 7654, 123.4, 123456)
    lines = shown(snapshot, latest=[Text("latest " + "x" * 200)] * 8)
    assert len(lines) == 23  # one is the cursor's
    assert max(map(len, lines)) <= 80
    assert lines[0] == "1,080 of 3,252 done, 9 running, 3 failed, 2,160 queued"
    assert lines[1] == "34 h 18 min so far, about 2 h 08 min left, 123 cells/h, 123,456 tokens/s"
    assert all(any(line.startswith(f"arm-{i} ") for line in lines) for i in range(18))
    assert re.fullmatch(r"arm-4 +━+ +34% +60 +0 +3 +120", lines[7])
    assert lines[-2].startswith("latest x")
    assert lines[-1] == "running 8 cells"


@pytest.mark.parametrize(("number", "width", "height"), [(60, 80, 24), (18, 80, 10), (18, 50, 24), (3, 80, 24)])
def test_every_window_shows_all_cells_and_never_more_than_fits(number, width, height):
    snapshot = Snapshot(arms(number), ["a cell"] * 30)
    lines = shown(snapshot, width, height, [Text("latest")] * 8)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    rows = [line.split() for line in lines if "%" in line]
    assert sum(int(row[-4].replace(",", "")) for row in rows) == snapshot.total.done
    assert sum(int(row[-3]) for row in rows) == snapshot.total.running


def test_durations_are_said_as_people_say_them():
    assert [duration(s) for s in (5, 89, 90, 3540, 3600, 7500, 86400 * 3)] == [
        "5 s", "89 s", "2 min", "59 min", "1 h 00 min", "2 h 05 min", "3 d 0 h",
    ]  # fmt: skip


def test_the_live_table_shows_cells_and_leaves_failures_behind(cells, begin):
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    tally, begun = begin()
    table = LiveTable(console, tally)
    table.hear(begun)
    for event in (
        JobStarted(cells[1], "here:1"),
        JobEnded(cells[1], Failure("[bold]no luck", "")),
        JobStarted(cells[2], "here:1"),
    ):
        tally.hear(event)
        table.hear(event)
    table.live.refresh()
    table.hear(SweepEnded())
    said = console.file.getvalue()
    assert "none on cola, rate 0.001, seed 1: FAILED [bold]no luck\r\n" in said or "FAILED [bold]no luck\n" in said
    assert "1 of 12 done, 1 running, 1 failed, 9 queued" in said
    assert "running add on cola, rate 0.001, seed 2" in said
    assert not table.live.is_started


# Several


def test_an_observer_that_fails_is_left_out_and_the_others_go_on(cells):
    class Broken:
        heard = 0

        def __str__(self) -> str:
            return "the broken one"

        def hear(self, _) -> None:
            self.heard += 1
            raise ValueError("[bold]no\nreason")

    class Sound:
        heard = 0

        def hear(self, _) -> None:
            self.heard += 1

    console = Console(file=io.StringIO())
    broken, sound = Broken(), Sound()
    both = Observers([broken, sound], console)
    for _ in range(3):
        both.hear(JobStarted(cells[0], "here:1"))
    assert (broken.heard, sound.heard) == (1, 3)
    assert " ".join(console.file.getvalue().split()) == (
        "the broken one failed and is left out from here on; the sweep goes on (ValueError: [bold]no reason)"
    )


@pytest.mark.parametrize(
    ("console", "lines"),
    [
        (Console(file=io.StringIO()), PlainLines),
        (Console(force_jupyter=True), PlainLines),
        (Console(file=io.StringIO(), force_terminal=True), LiveTable),
    ],
    ids=["pipe", "notebook", "terminal"],
)
def test_only_a_terminal_has_the_live_table(console, lines):
    made = {type(observer) for observer in make_observers(console, RunOptions()).observers}
    assert made & {LiveTable, PlainLines} == {lines}
