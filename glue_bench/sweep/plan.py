"""From an experiment to cells with ids, everything checked before any compute is spent."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from glue_bench.config import Cell, Experiment
from glue_bench.errors import UserError, unknown
from glue_bench.model.order import check_order
from glue_bench.model.plugins import check_plugin, load_plugins
from glue_bench.model.variants import check_variant
from glue_bench.training.workspace import Workspace, check_cell, check_pretraining


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its id: a readable slug and a hash of everything that can change the outcome."""

    id: str
    cell: Cell
    origin: str

    @property
    def summary(self) -> dict[str, Any]:
        """The cell as plan.json lists it."""
        return {"cell_id": self.id, "origin": self.origin, **self.cell.key}


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
    return [_planned(cell, workspace) for cell in experiment.cells()]


def _check_tasks(experiment: Experiment, workspace: Workspace) -> None:
    present = workspace.source.tasks()
    missing = [task for task in experiment.tasks if task not in present]
    if missing:
        raise UserError(
            f"data '{experiment.data}' has no {', '.join(missing)}; "
            f"complete it, or set `tasks: [{', '.join(t for t in experiment.tasks if t in present)}]`"
        )


def _planned(cell: Cell, workspace: Workspace) -> PlannedCell:
    check_cell(cell, workspace)
    identity = json.dumps(workspace.identity(cell), sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    rate = f"{cell.hyperparameters.learning_rate:g}"
    steps = "" if cell.steps is None else f"-step{cell.steps}"
    slug = f"{cell.arm.name}-{cell.task}-lr{rate}-s{cell.seed}{steps}-{digest}"
    return PlannedCell(slug, cell, workspace.origin(cell.arm))


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
