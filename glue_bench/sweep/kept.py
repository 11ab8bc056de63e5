"""Which fine-tuned models stay while a sweep goes on: those that are asked for, or that other cells start from."""

from collections import defaultdict
from collections.abc import Callable

from glue_bench.records.store import Store
from glue_bench.records.values import Plan
from glue_bench.sweep.jobs import chosen


class KeptModels:
    """Of a plan's cells, some of which have yet to end, as `is_under_way` says."""

    def __init__(self, store: Store, plan: Plan, is_under_way: Callable[[str], bool]) -> None:
        self.store, self.keep, self.is_under_way = store, plan.experiment.finetuning.keep, is_under_way
        self.places = {cell.id: (cell.arm, cell.task) for cell in plan.cells}
        self.alike = defaultdict[tuple[str, str], set[str]](set)  # cells of one place
        self.followers = defaultdict[str, set[str]](set)  # of an MNLI cell
        for cell in plan.cells:
            self.alike[self.places[cell.id]].add(cell.id)
            if cell.mnli:
                self.followers[cell.mnli].add(cell.id)

    def drop(self, *ended: str | None) -> None:
        """Delete the models of these cells, and of those beside them, that nobody needs any more."""
        names = {name for name in ended if name and self.followers[name]}
        if self.keep == "all":
            return
        if self.keep == "best":
            groups = [self.alike[key] for key in {self.places[name] for name in ended if name}]
            over = {name for ids in groups if not any(map(self.is_under_way, ids)) for name in ids}
            names = over - {*chosen(self.store)} if over else set()
        for name in names:
            if all(self.store.record(follower) for follower in self.followers[name]):
                self.store.drop_model(name)
