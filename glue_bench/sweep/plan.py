"""From an experiment to cells with ids, everything checked before any compute is spent."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from glue_bench.config import ArmPretraining, Cell, Experiment
from glue_bench.errors import UserError, unknown
from glue_bench.records.record import CellKey
from glue_bench.sweep.jobs import PlannedCell, PlannedPretraining
from glue_bench.sweep.preflight import check_cell, check_experiment
from glue_bench.training.inputs import Inputs


def plan_cells(experiment: Experiment, inputs: Inputs) -> list[PlannedCell]:
    """Every cell of the experiment, each checked.

    Raises:
        UserError: the first thing that would stop a cell, as `check_experiment` and `check_cell`.
    """
    check_experiment(experiment, inputs)
    cells = list(experiment.cells())
    for cell in cells:
        check_cell(cell, inputs)
    return with_sources([as_planned(cell, inputs) for cell in cells])


def with_sources(cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    """The cells, those marked that others of them start from."""
    sources = {planned.mnli for planned in cells}
    return [replace(planned, is_source=planned.id in sources) for planned in cells]


def as_planned(cell: Cell, inputs: Inputs) -> PlannedCell:
    """The cell with its id, under its recipe."""
    source, run = inputs.experiment.mnli_cell(cell), inputs.experiment.pretraining_of(cell)
    return PlannedCell(
        _cell_id(cell, inputs),
        cell,
        inputs.origin(cell.arm),
        mnli=None if source is None else _cell_id(source, inputs),
        pretraining=None if run is None else f"{run.arm.name}-{inputs.pretraining_identity(run).digest}",
    )


def _cell_id(cell: Cell, inputs: Inputs) -> str:
    return CellKey(**cell.key).id(inputs.cell_identity(cell).digest)


def planned_pretraining(run: ArmPretraining, inputs: Inputs, *, is_search: bool = False) -> PlannedPretraining:
    """The pretraining with its id, and those of the runs that its rate is chosen from."""
    searches = tuple(f"{search.arm.name}-{inputs.pretraining_identity(search).digest}" for search in run.searches())
    return PlannedPretraining(f"{run.arm.name}-{inputs.pretraining_identity(run).digest}", run, searches, is_search)


def pretrainings_of(cells: Iterable[PlannedCell], inputs: Inputs) -> list[PlannedPretraining]:
    """What these cells start from; runs of rate searches first, each once however many seeds there are."""
    runs = {planned.pretraining: inputs.experiment.pretraining_of(planned.cell) for planned in cells}
    wanted = [planned_pretraining(run, inputs) for run in runs.values() if run]
    searches = [planned_pretraining(run, inputs, is_search=True) for one in wanted for run in one.run.searches()]
    return [*{search.id: search for search in searches}.values(), *wanted]


def in_order(waiting: Sequence[PlannedCell], cells: Sequence[PlannedCell], inputs: Inputs) -> list[PlannedCell]:
    """The cells to run, each after the MNLI cell that it starts from.

    Of `cells`, those are added that have to run, perhaps again, because their encoder is needed and is not there.
    """
    needed = {planned.mnli for planned in waiting} - {None}
    sources = [
        planned for planned in cells if planned.id in needed and not inputs.encoder_folder(planned.cell).is_dir()
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
    value = value.lower().replace("-", "") if key == "task" else value
    known = list(dict.fromkeys(planned.cell.key[key] for planned in cells))
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    for candidate in known:
        if str(candidate) == value or (isinstance(candidate, float) and candidate == number):
            return key, str(candidate)
    raise unknown(key, value, map(str, known), "--only")
