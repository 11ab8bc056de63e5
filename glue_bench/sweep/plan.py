"""From an experiment to cells with ids, everything checked before any compute is spent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from glue_bench.config import Cell, Experiment
from glue_bench.errors import UserError, unknown
from glue_bench.records.plan import AskedCell
from glue_bench.records.record import CellKey
from glue_bench.sweep.preflight import check_cell, check_experiment
from glue_bench.training.identities import cell_identity
from glue_bench.training.inputs import Inputs
from glue_bench.training.starts import encoder_folder


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
    def asked(self) -> AskedCell:
        """The cell as plan.json lists it."""
        cell, settled = self.cell, {"recipe": self.cell.recipe, "from_mnli": self.mnli}
        return AskedCell(cell_id=self.id, origin=self.origin, **cell.key, **settled)


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
    source = inputs.experiment.mnli_cell(cell)
    mnli = None if source is None else _cell_id(source, inputs)
    return PlannedCell(_cell_id(cell, inputs), cell, inputs.origin(cell.arm), mnli)


def _cell_id(cell: Cell, inputs: Inputs) -> str:
    return CellKey(**cell.key).id(cell_identity(cell, inputs).digest)


def in_order(waiting: Sequence[PlannedCell], cells: Sequence[PlannedCell], inputs: Inputs) -> list[PlannedCell]:
    """The cells to run, each after the MNLI cell that it starts from.

    Of `cells`, those are added that have to run, perhaps again, because their encoder is needed and is not there.
    """
    needed = {planned.mnli for planned in waiting} - {None}
    sources = [
        planned for planned in cells if planned.id in needed and not encoder_folder(planned.cell, inputs).is_dir()
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
