"""What older recipes have stored: it counts as done, and takes the place of the cell that the plan would ask for.

A cell may be of one recipe and its arm's pretraining of an older one: weights that an older recipe has pretrained are
as good a start as they were, so that new cells start from them. An MNLI cell is taken from an older recipe only if no
other cell waits for its encoder: run again, it would leave another one than its record tells of.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from glue_bench import recipe as recipes
from glue_bench.recipe import older_recipes
from glue_bench.records.identity import digest_of
from glue_bench.records.record import CellKey
from glue_bench.records.store import Store
from glue_bench.sweep.encoders import is_pretrained
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.sweep.plan import as_planned, planned_pretraining, with_sources
from glue_bench.training.inputs import Inputs


def as_stored(
    cells: Sequence[PlannedCell], inputs: Inputs, store: Store, again: Iterable[PlannedCell] = ()
) -> list[PlannedCell]:
    """The cells, those that an older recipe has a record of under their ids there; the newest record counts.

    Cells of `again` stay this version's, and so do the pretrainings that they start from.
    """
    renewed = {planned.id for planned in again}
    starts = _pretrained_by(cells, renewed, inputs, store)
    new = [_under(planned, recipes.RECIPE, starts[planned.pretraining], inputs) for planned in cells]
    settled = [
        mine if planned.id in renewed else _stored(mine, inputs, store) or mine
        for planned, mine in zip(cells, new, strict=True)
    ]
    awaited = {planned.mnli for planned in settled if not store.has_record(planned.id)}
    return with_sources([mine if mine.id in awaited else each for mine, each in zip(new, settled, strict=True)])


def _pretrained_by(
    cells: Iterable[PlannedCell], renewed: Container[str], inputs: Inputs, store: Store
) -> dict[str | None, int]:
    """By the pretraining of this version, the recipe of the one that new cells start from: the newest that is stored.

    This version's where none is stored with its checkpoints, and where a cell of the pretraining is to be renewed.
    """
    anew = {planned.pretraining for planned in cells if planned.id in renewed}
    starts: dict[str | None, int] = {}
    for planned in cells:
        run = inputs.experiment.pretraining_of(planned.cell)
        if planned.pretraining in starts:
            continue
        under = [run.model_copy(update={"recipe": recipe}) for recipe in _recipes()] if run else []
        usable = under if planned.pretraining not in anew else []
        stored = (each.recipe for each in usable if is_pretrained(planned_pretraining(each, inputs), inputs, store))
        starts[planned.pretraining] = next(stored, recipes.RECIPE)
    return starts


def _stored(planned: PlannedCell, inputs: Inputs, store: Store) -> PlannedCell | None:
    """The cell under the newest recipes that have a record of it: its own, and that of its arm's pretraining."""
    for recipe in _recipes():
        for start in range(recipe, 0, -1) if planned.pretraining else [recipe]:
            candidate = _under(planned, recipe, start, inputs)
            former = CellKey(**candidate.cell.key).former_id(digest_of(candidate.id))
            for known in dict.fromkeys((candidate.id, former)):
                if store.has_record(known):
                    return replace(candidate, id=known)
    return None


def _under(planned: PlannedCell, recipe: int, start: int, inputs: Inputs) -> PlannedCell:
    changes = {"recipe": recipe, "pretraining_recipe": start}
    return as_planned(planned.cell.model_copy(update=changes), inputs)


def _recipes() -> list[int]:
    return [recipes.RECIPE, *older_recipes()]
