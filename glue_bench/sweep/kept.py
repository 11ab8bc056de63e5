"""Which fine-tuned models stay while a sweep goes on: those that are asked for, or that other cells start from."""

from collections import defaultdict
from collections.abc import Callable

from glue_bench.records.done import replaced_start
from glue_bench.records.store import Store
from glue_bench.records.values import Plan
from glue_bench.sweep.jobs import chosen


class KeptModels:
    """Of a plan's cells, some of which have yet to end, as `is_under_way` says."""

    def __init__(self, store: Store, plan: Plan, is_under_way: Callable[[str], bool]) -> None:
        self.store, self.plan, self.is_under_way = store, plan, is_under_way
        self.keep = plan.experiment.finetuning.keep
        places = defaultdict[tuple[str, str], set[str]](set)
        self.alike = dict[str, set[str]]()  # by each cell all of its arm and task
        self.followers = defaultdict[str, set[str]](set)  # of an MNLI cell
        for cell in plan.cells:
            self.alike[cell.id] = places[cell.arm, cell.task]
            self.alike[cell.id].add(cell.id)
            if cell.mnli:
                self.followers[cell.mnli].add(cell.id)

    def drop(self, *ended: str | None) -> None:
        """Delete the models of these cells, and of those beside them, that nobody needs any more."""
        if self.keep == "all":
            return
        names = {name for name in ended if name and (self.keep == "best" or self.followers[name])}
        if self.keep == "best":
            groups = {id(self.alike[name]): self.alike[name] for name in names}.values()
            names = {name for group in groups if not any(map(self.is_under_way, group)) for name in group}
        names = {name for name in names if self.store.has_model(name) and not self._waits(name)}
        if names and self.keep == "best":
            names -= {*chosen(self.store, self.plan)}
        for name in names:
            self.store.drop_model(name)

    def _waits(self, name: str) -> bool:
        """Whether a cell has yet to start from this one: it has no record, or runs again."""
        source = self.store.record(name)
        sources = {name: source} if source else {}
        for follower in self.followers[name]:
            record = self.store.record(follower)
            if self.is_under_way(follower) or record is None or replaced_start(record, sources, {}):
                return True
        return False
