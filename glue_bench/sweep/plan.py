"""From an experiment to cells with ids, everything checked before any compute is spent."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glue_bench.config import Cell, Experiment, cell_id
from glue_bench.errors import UserError, unknown
from glue_bench.model.variants import check_variant
from glue_bench.recipe import recipe_key
from glue_bench.testing.order import check_order
from glue_bench.testing.plugins import check_plugin, load_plugins
from glue_bench.training.runtime import accelerator, decided_by_main, precision_name
from glue_bench.training.workspace import Workspace, check_cell, check_pretraining


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its id: a readable slug and a hash of everything that can change the outcome.

    `mnli` is the id of the MNLI cell that it starts from; `is_source` says that others start from it.
    """

    id: str
    cell: Cell
    origin: str
    mnli: str | None = None
    is_source: bool = False

    @property
    def summary(self) -> dict[str, Any]:
        """The cell as plan.json lists it."""
        start = {"from_mnli": self.mnli} if self.mnli else {}
        return {"cell_id": self.id, "origin": self.origin, **self.cell.key, **recipe_key(self.cell.recipe), **start}


def plan_cells(experiment: Experiment, workspace: Workspace) -> list[PlannedCell]:
    """Every cell of the experiment, each checked.

    Raises:
        UserError: the first thing that would stop a cell: plugin, variant, option, data, checkpoint, vocabulary,
            length, dead positions.
    """
    load_plugins(experiment.plugins)
    for arm in experiment.arms:
        check_variant(arm.variant, arm.options, f"arm '{arm.name}'")
        check_plugin(arm.variant)
    _check_tasks(experiment, workspace)
    for arm in experiment.arms:
        check_order(workspace.initial(arm), arm.name, arm.checkpoint)
    if experiment.pretraining:
        check_pretraining(experiment, workspace)
    cells = list(experiment.cells())
    for cell in cells:
        check_cell(cell, workspace)
    return with_sources([as_planned(cell, workspace) for cell in cells])


def segment_lines(experiment: Experiment, workspace: Workspace) -> Iterator[str]:
    """A line about the arms whose encoder does not tell the segments apart that their tokenizer does."""
    segments = {arm.name: workspace.segments(arm) for arm in experiment.arms}
    without = [name for name, (told, embedded) in segments.items() if told > 1 >= embedded]
    if without:
        yield f"both texts of a pair are segment 0, because the encoder has no other: {', '.join(without)}"


def with_sources(cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    """The cells, those marked that others of them start from."""
    sources = {planned.mnli for planned in cells}
    return [replace(planned, is_source=planned.id in sources) for planned in cells]


def check_processes(experiment: Experiment, cells: Sequence[PlannedCell]) -> None:
    """Refuse processes that `accelerate launch` has started but that would not train the same together.

    Each has read its own disk, and a process on another machine may compute in another precision.

    Raises:
        UserError: this process differs from the main one.
    """
    mine = {
        "the experiment or its options; give all machines the same files": experiment.model_dump(mode="json"),
        "its data, text, checkpoints or plugins; give all machines the same files": [planned.id for planned in cells],
        "the precision it computes in; name one with --precision": precision_name(),
    }
    main = decided_by_main(lambda: mine)
    for difference, value in mine.items():
        if value != main[difference]:
            raise UserError(f"process {accelerator().process_index} differs from the main one in {difference}")


def _check_tasks(experiment: Experiment, workspace: Workspace) -> None:
    present = workspace.source.tasks()
    missing = [task for task in experiment.tasks if task not in present]
    if missing:
        raise UserError(
            f"data '{experiment.data}' has no {', '.join(missing)}; "
            f"complete it, or set `tasks: [{', '.join(t for t in experiment.tasks if t in present)}]`"
        )


def as_planned(cell: Cell, workspace: Workspace) -> PlannedCell:
    """The cell with its id, under its recipe."""
    source = workspace.experiment.mnli_cell(cell)
    mnli = None if source is None else _cell_id(source, workspace)
    return PlannedCell(_cell_id(cell, workspace), cell, workspace.origin(cell.arm), mnli)


def _cell_id(cell: Cell, workspace: Workspace) -> str:
    return cell_id(cell.key, workspace.digest(cell))


def in_order(waiting: Sequence[PlannedCell], cells: Sequence[PlannedCell], workspace: Workspace) -> list[PlannedCell]:
    """The cells to run, each after the MNLI cell that it starts from.

    Of `cells`, those are added that have to run, perhaps again, because their encoder is needed and is not there.
    """
    needed = {planned.mnli for planned in waiting} - {None}
    sources = [
        planned for planned in cells if planned.id in needed and not workspace.encoder_folder(planned.cell).is_dir()
    ]
    first = {planned.id for planned in sources}
    rest = [planned for planned in waiting if planned.id not in first]
    return [*sources, *sorted(rest, key=lambda planned: planned.mnli is not None)]


def select(cells: Sequence[PlannedCell], only: Iterable[str]) -> list[PlannedCell]:
    """The cells that match every `KEY=VALUE`; a key given twice permits either value.

    Raises:
        UserError: not KEY=VALUE, an unknown key, or a value that no cell has.
    """
    wanted: dict[str, set[str]] = {}
    for condition in only:
        key, value = _parse_condition(condition, cells)
        wanted.setdefault(key, set()).add(value)
    return [planned for planned in cells if all(str(planned.cell.key[key]) in wanted[key] for key in wanted)]


def _parse_condition(condition: str, cells: Sequence[PlannedCell]) -> tuple[str, str]:
    key, equals, value = condition.partition("=")
    keys = list(cells[0].cell.key)
    if not equals:
        raise UserError(f"--only takes KEY=VALUE, not '{condition}'; keys: {', '.join(keys)}")
    if key not in keys:
        raise unknown("key", key, keys, "--only")
    known = list(dict.fromkeys(planned.cell.key[key] for planned in cells))
    for candidate in known:
        if str(candidate) == value or (isinstance(candidate, float) and _same_number(candidate, value)):
            return key, str(candidate)
    raise unknown(key, value, map(str, known), "--only")


def _same_number(number: float, text: str) -> bool:
    try:
        return number == float(text)
    except ValueError:
        return False
