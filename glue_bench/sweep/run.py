"""Plan the cells, skip those with a record, run the rest, store each as soon as it is finished."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from glue_bench.benchmark.schema import known_labels
from glue_bench.config import Experiment
from glue_bench.errors import UserError
from glue_bench.files import cache_folder, results_written_to
from glue_bench.records.store import Store
from glue_bench.remote import refuse_url
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.encoders import Done, drop_encoders
from glue_bench.sweep.environment import environment
from glue_bench.sweep.events import (
    CellElsewhere,
    CellEnded,
    CellsStarted,
    CellStarted,
    Observer,
    Observers,
    SweepEnded,
    SweepInterrupted,
    SweepStarted,
)
from glue_bench.sweep.executors import Executor, Failure, InlineExecutor
from glue_bench.sweep.older import as_stored, check_again, older_lines
from glue_bench.sweep.order import Costs, longest_first
from glue_bench.sweep.plan import PlannedCell, in_order, plan_cells, select
from glue_bench.sweep.preflight import check_disks, check_processes, check_starts
from glue_bench.sweep.pretraining import arms_to_pretrain, pretrain_arms
from glue_bench.sweep.records import failure_of, plan_document, record_of
from glue_bench.sweep.remarks import remarks, segment_lines
from glue_bench.sweep.schedule import Schedule
from glue_bench.sweep.stop import Stop
from glue_bench.training.finetune import Outcome
from glue_bench.training.inputs import Inputs
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.runtime import AUTO, accelerator, decided_by_main, describe


@dataclass(frozen=True)
class Summary:
    """What a sweep did. `failed` maps cell ids to errors; `interrupted` is Ctrl-C.

    `waiting` are cells and `pretraining` arms that were not finished when it began. Cells that a sweep beside it
    finished meanwhile are counted `elsewhere`. `is_main` is false in the processes that only help the main one to
    pretrain.
    """

    folder: Path
    planned: int
    skipped: int
    finished: int = 0
    elsewhere: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    pretraining: tuple[str, ...] = ()
    interrupted: bool = False
    is_main: bool = True


def sweep(
    experiment: Experiment,
    results: str | Path,
    only: Iterable[str] = (),
    dry_run: bool = False,
    console: Console | None = None,
    workers: int | None = None,
    address: str | None = None,
    again: str | None = None,
    device: str = AUTO,
    precision: str = AUTO,
    observe: Callable[[Console], Observer] | None = None,
) -> Summary:
    """Bring the store of `results/<experiment>` up to the plan. With `dry_run`, only say what would run.

    Under `accelerate launch` all processes pretrain; the main one alone decides what, writes and runs cells, so that
    results need not lie on a disk that all of them see. Cells run one after another in this process; with `workers` in
    so many processes of this machine, with `address` in those of a Ray cluster. What happens is told to the observer
    that `observe` makes for the console.
    Chosen cells that an older recipe has run count as done, unless `again` is "recipe".
    `device` and `precision` were asked for, and are in force (see `computing`).

    Raises:
        UserError: bad input, before any cell is run and before anything is written; later on, results that cannot be
            written, or workers that cannot start.
    """
    check_again(again)
    refuse_url(cache_folder(), "the cache (GLUE_BENCH_CACHE)")
    quiet_libraries()
    environment()  # before any cell: the commit is that of the code now loaded
    store = Store(Path(results) / experiment.name)
    inputs = Inputs(experiment, store.folder / "checkpoints")
    executor = make_executor(inputs, workers, address)
    asked = plan_cells(experiment, inputs)
    check_processes(experiment, [planned.id for planned in asked])
    renewed = select(asked, only) if again else ()
    cells = decided_by_main(lambda: as_stored(asked, inputs, store, renewed))
    chosen = select(cells, only)
    unfinished = decided_by_main(lambda: [planned for planned in chosen if not store.has_record(planned.id)])
    waiting = decided_by_main(lambda: in_order(unfinished, cells, inputs))
    summary = _summary(chosen, unfinished, waiting, inputs, store)
    console, side_by_side = console or Console(stderr=True), bool(workers or address)
    if summary.is_main:
        _say_where(experiment, console, side_by_side=side_by_side)
        said = remarks(chosen, inputs, store, {"device": device, "precision": precision})
        for line in (*older_lines(chosen), *segment_lines(experiment, inputs), *said):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    unpretrained = [arm for arm in experiment.arms if arm.name in summary.pretraining]
    decided_by_main(lambda: check_disks(store))
    decided_by_main(lambda: check_starts([planned.cell for planned in waiting], unpretrained, inputs))
    if dry_run:
        if summary.is_main and waiting:
            executor.check()
        return summary
    costs: dict[str, float] = {}
    if summary.is_main:
        waiting, costs = _write_plan(cells, waiting, inputs, store, side_by_side=side_by_side)
    watching = observe(console) if observe and summary.is_main else Observers([], console)
    begun = _beginning(summary, experiment, chosen, waiting, costs, workers or (None if address else 1))
    # Connected before any pretraining: what is wrong with a cluster shows within seconds.
    with (
        _told(begun, watching),
        Claims(store.folder / "claims") as claims,
        executor if waiting else nullcontext(),
    ):
        try:
            failed = pretrain_arms(waiting, inputs, store, console, claims, watching)
        except KeyboardInterrupt:
            watching.hear(SweepInterrupted())
            return replace(summary, interrupted=True)
        if not summary.is_main:
            return summary
        run = _Run(summary, inputs, store, claims, console, watching)
        return run.to_the_end(executor, waiting, cells, failed)


def _say_where(experiment: Experiment, console: Console, *, side_by_side: bool) -> None:
    """Where this process computes; workers to whom no GPU is promised are shown none."""
    on_cpus = side_by_side and not experiment.resources.gpus and accelerator().device.type != "cpu"
    cells = "; cells on CPUs, because resources.gpus is 0" if on_cpus else ""
    console.print(f"computing on {describe()}{cells}", highlight=False, soft_wrap=True)


def _beginning(
    summary: Summary,
    experiment: Experiment,
    chosen: list[PlannedCell],
    waiting: list[PlannedCell],
    costs: dict[str, float],
    workers: int | None,
) -> SweepStarted:
    return SweepStarted(
        experiment=experiment.name,
        folder=summary.folder,
        before=_without(chosen, waiting),
        cells=waiting,
        arms=list(dict.fromkeys(planned.cell.arm.name for planned in chosen)),
        costs=costs,
        pretraining=summary.pretraining,
        workers=workers,
    )


def _summary(
    chosen: list[PlannedCell],
    unfinished: list[PlannedCell],
    waiting: list[PlannedCell],
    inputs: Inputs,
    store: Store,
) -> Summary:
    """What there is to do, before anything of it is done."""
    return Summary(
        store.folder,
        planned=len(chosen),
        skipped=len(chosen) - len(unfinished),
        waiting=tuple(planned.id for planned in waiting),
        pretraining=tuple(arm.name for arm in arms_to_pretrain(waiting, inputs, store)),
        is_main=accelerator().is_main_process,
    )


def _write_plan(
    cells: list[PlannedCell], waiting: list[PlannedCell], inputs: Inputs, store: Store, *, side_by_side: bool
) -> tuple[list[PlannedCell], dict[str, float]]:
    """Store the plan and the gold labels; the waiting cells in the order in which they run, and each one's cost."""
    store.prepare()
    plan = plan_document(inputs.experiment, inputs, cells)
    with results_written_to(store.folder):
        store.write_plan(plan)
        _write_labels(inputs, store)
    cost = Costs(plan["training_tokens"], {name: facts["flops_per_token"] for name, facts in plan["arms"].items()})
    if side_by_side:
        waiting = longest_first(waiting, cost)
    return waiting, {planned.id: cost(planned.cell) for planned in waiting}


def _without(cells: list[PlannedCell], others: list[PlannedCell]) -> list[PlannedCell]:
    ids = {planned.id for planned in others}
    return [planned for planned in cells if planned.id not in ids]


@contextmanager
def _told(begun: SweepStarted, watching: Observer) -> Iterator[None]:
    """Whoever watches hears of the beginning and, whatever happens, of the end."""
    watching.hear(begun)
    try:
        yield
    except BaseException as error:
        watching.hear(SweepEnded(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"))
        raise
    watching.hear(SweepEnded())


def make_executor(inputs: Inputs, workers: int | None, address: str | None) -> Executor:
    """What runs the cells: this process, or workers.

    Raises:
        UserError: Ray is not installed, or would be started by each of several processes.
    """
    if workers is None and address is None:
        return InlineExecutor(inputs)
    if accelerator().num_processes > 1:
        raise UserError(
            "--workers and --address do not go together with `accelerate launch`; pretrain with the one, "
            "then run the same experiment with the other"
        )
    try:
        from glue_bench.sweep.ray_executor import RayExecutor
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UserError("--workers and --address need Ray; install it: pip install 'glue-bench[ray]'") from error
    assert inputs.folder is not None, "a sweep has a folder"
    return RayExecutor(inputs.experiment, inputs.folder, workers=workers, address=address)


class _Run:
    """The cells of one sweep under way: each is stored as it ends."""

    def __init__(
        self,
        summary: Summary,
        inputs: Inputs,
        store: Store,
        claims: Claims,
        console: Console,
        watching: Observer,
    ) -> None:
        self.summary, self.inputs, self.store = summary, inputs, store
        self.claims, self.console, self.watching = claims, console, watching
        self.finished, self.elsewhere = 0, 0
        self.failed: dict[str, str] = {}

    def to_the_end(
        self,
        executor: Executor,
        cells: list[PlannedCell],
        all_cells: list[PlannedCell],
        without_start: dict[str, Failure],
    ) -> Summary:
        """Run the cells; of `all_cells` those that wait decide which encoders are kept."""
        self.watching.hear(CellsStarted())
        with Stop(self.console) as stop:
            for planned in cells:
                if planned.cell.arm.name in without_start:
                    self._ended(planned, without_start[planned.cell.arm.name])
            schedule = Schedule(
                [planned for planned in cells if planned.cell.arm.name not in without_start],
                store=self.store,
                claims=self.claims,
                stop=stop,
                is_done=Done(cells, self.inputs, self.store),
                ended_elsewhere=self._ended_elsewhere,
                say=lambda line: self.console.print(line, highlight=False),
            )
            interrupted = self._cells(executor, schedule)
        if interrupted:
            self.watching.hear(SweepInterrupted())
        drop_encoders(all_cells, self.inputs, self.store)
        return replace(
            self.summary,
            finished=self.finished,
            elsewhere=self.elsewhere,
            failed=self.failed,
            interrupted=interrupted,
        )

    def _cells(self, executor: Executor, schedule: Schedule) -> bool:
        """Run what the schedule hands out; whether Ctrl-C ended it."""
        try:
            for planned, result in executor.run(schedule, self._started):
                if self.claims.holds(planned.id):
                    self._ended(planned, result)
                    schedule.end(planned)
                else:  # taken over while this process was suspended
                    schedule.lost(planned)
        except KeyboardInterrupt:
            return True
        return schedule.stop.asked

    def _started(self, planned: PlannedCell, worker: str) -> None:
        self.watching.hear(CellStarted(planned, worker))

    def _ended(self, planned: PlannedCell, result: Outcome | Failure) -> None:
        self._store(planned, result)
        if isinstance(result, Failure):
            self.failed[planned.id] = result.error
        else:
            self.finished += 1
        self.watching.hear(CellEnded(planned, result))

    def _ended_elsewhere(self, planned: PlannedCell) -> None:
        error = None if self.store.has_record(planned.id) else self.store.read_failure(planned.id).error
        if error is None:
            self.elsewhere += 1
        else:
            self.failed[planned.id] = error
        self.watching.hear(CellElsewhere(planned, error))

    def _store(self, planned: PlannedCell, result: Outcome | Failure) -> None:
        with results_written_to(self.store.folder):
            if isinstance(result, Failure):
                self.store.write_failure(failure_of(planned, result))
            elif not self.store.has_record(planned.id):  # an MNLI cell that ran again for its encoder has one
                self.store.write_record(record_of(planned, result, self.inputs), result.predictions)


def _write_labels(inputs: Inputs, store: Store) -> None:
    """Without gold labels beside the predictions, no statistic can be recomputed from the folder alone."""
    for task in inputs.experiment.tasks:
        data = inputs.data(task)
        labels = known_labels(data)
        if labels:
            store.write_labels(task, data.digest, labels)
