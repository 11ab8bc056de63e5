"""What older recipes have stored: it counts as done, and takes the place of the cell that the plan would ask for.

A cell may be of one recipe and its arm's pretraining of an older one: weights that an older recipe has pretrained are
as good a start as they were, so that new cells start from them. An MNLI cell is taken from an older recipe only if no
other cell waits for its encoder: run again, it would leave another one than its record tells of.
"""

from collections.abc import Container, Iterable, Sequence

from glue_bench import recipe as recipes
from glue_bench.recipe import older_recipes
from glue_bench.records.store import Store
from glue_bench.sweep.plan import PlannedCell, as_planned, with_sources
from glue_bench.sweep.pretraining import is_pretrained
from glue_bench.training.inputs import Inputs


def as_stored(
    cells: Sequence[PlannedCell], inputs: Inputs, store: Store, again: Iterable[PlannedCell] = ()
) -> list[PlannedCell]:
    """The cells, those that an older recipe has a record of under their ids there; the newest record counts.

    Cells of `again` stay this version's, and so do the pretrainings that they start from.
    """
    renewed = {planned.id for planned in again}
    starts = _pretrained_by(cells, renewed, inputs, store)
    new = [_under(planned, recipes.RECIPE, starts[planned.cell.arm.name], inputs) for planned in cells]
    settled = [
        mine if planned.id in renewed else _stored(mine, inputs, store) or mine
        for planned, mine in zip(cells, new, strict=True)
    ]
    awaited = {planned.mnli for planned in settled if not store.has_record(planned.id)}
    return with_sources([mine if mine.id in awaited else each for mine, each in zip(new, settled, strict=True)])


def _pretrained_by(
    cells: Iterable[PlannedCell], renewed: Container[str], inputs: Inputs, store: Store
) -> dict[str, int]:
    """By arm, the recipe of the pretraining that new cells start from: the newest that is stored with its checkpoints.

    This version's where none is, and where a cell of the arm is to be renewed.
    """
    if inputs.experiment.pretraining is None:
        return {planned.cell.arm.name: recipes.RECIPE for planned in cells}
    anew = {planned.cell.arm.name for planned in cells if planned.id in renewed}
    starts = {}
    for arm in inputs.experiment.arms:
        usable = _recipes() if arm.name not in anew else []
        stored = (recipe for recipe in usable if is_pretrained(arm, inputs, store, recipe))
        starts[arm.name] = next(stored, recipes.RECIPE)
    return starts


def _stored(planned: PlannedCell, inputs: Inputs, store: Store) -> PlannedCell | None:
    """The cell under the newest recipes that have a record of it: its own, and that of its arm's pretraining."""
    for recipe in _recipes():
        for start in range(recipe, 0, -1) if planned.cell.steps is not None else [recipe]:
            candidate = _under(planned, recipe, start, inputs)
            if store.has_record(candidate.id):
                return candidate
    return None


def _under(planned: PlannedCell, recipe: int, start: int, inputs: Inputs) -> PlannedCell:
    changes = {"recipe": recipe, "pretraining_recipe": start}
    return as_planned(planned.cell.model_copy(update=changes), inputs)


def _recipes() -> list[int]:
    return [recipes.RECIPE, *older_recipes()]
