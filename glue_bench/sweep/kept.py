"""Which fine-tuned models stay while a sweep goes on: those that are asked for, or that other cells start from."""

from collections import defaultdict
from collections.abc import Callable, Collection

from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Plan
from glue_bench.sweep.jobs import chosen


class KeptModels:
    """Deletes the models of cells that nobody needs any more; `is_under_way` says it of a job that has yet to end."""

    def __init__(self, store: Store, plan: Plan, is_under_way: Callable[[str], bool]) -> None:
        self.store, self.keep, self.is_under_way = store, plan.experiment.finetuning.keep, is_under_way
        self.cells = {cell.id: cell for cell in plan.cells}
        self.alike = defaultdict[tuple[str, str], set[str]](set)  # cells of an arm and a task
        self.followers = defaultdict[str, set[str]](set)  # of an MNLI cell
        for cell in plan.cells:
            self.alike[cell.arm, cell.task].add(cell.id)
            if cell.mnli:
                self.followers[cell.mnli].add(cell.id)

    def drop_after(self, cell: Cell) -> None:
        """A cell has ended: its model, those beside it, and that which it started from may have to go."""
        self._drop([self.cells[name] for name in (cell.id, cell.mnli) if name])

    def drop_all(self) -> None:
        """Look at every cell, and so at what a killed driver has left."""
        self._drop(self.cells.values())

    def _drop(self, ended: Collection[Cell]) -> None:
        names = {cell.id for cell in ended if self.followers[cell.id]}
        if self.keep == "all":
            return
        if self.keep == "best":
            groups = [self.alike[key] for key in {(cell.arm, cell.task) for cell in ended}]
            over = {name for ids in groups if not any(map(self.is_under_way, ids)) for name in ids}
            names = over - {*chosen(self.store)} if over else set()
        for name in names:
            if all(self.store.record(follower) for follower in self.followers[name]):
                self.store.drop_model(name)
