"""The need for weights: which cells store a model, and which models may be deleted."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from glue_bench.board.board import make_board
from glue_bench.board.chosen import chosen_runs
from glue_bench.board.results import read_results
from glue_bench.config import Experiment
from glue_bench.records.done import replaced_start
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Job, Plan

ArmAndTask = tuple[str, str]
"""With `keep: best` one model of each arm on each task stays."""


def leaves_model(cell: Cell, experiment: Experiment) -> bool:
    """Return whether a cell stores its model: if models are kept, or if other cells start from it.

    A worker asks this, because it has no plan. With a plan, `NeededWeights.followers` has the cells
    that start from a cell.
    """
    tuning = experiment.finetuning
    if not cell.is_trained:
        return False
    if tuning.keep is not None:
        return True
    has_followers = any(task in tuning.from_mnli for task in experiment.tasks)
    is_source = cell.task == "mnli" and cell.settings.learning_rate == tuning.source_rate
    return has_followers and is_source


class NeededWeights:
    """Says which models and checkpoints of a plan are needed.

    Args:
        plan: the plan of the cells, whose experiment says which models to keep.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.keep = plan.experiment.finetuning.keep
        self.cells = {cell.id: cell for cell in plan.cells}
        # The cells that start from an MNLI cell, by the id of that cell.
        self.followers: defaultdict[str, set[str]] = defaultdict(set)
        for cell in plan.cells:
            if cell.mnli:
                self.followers[cell.mnli].add(cell.id)

    def cells_asked(self, store: Store) -> set[str]:
        """Return the cells that should have a model or test predictions beside their record.

        With `keep: all` these are all cells, else the finished cells that a submission takes.
        """
        if self.keep == "all":
            return {*self.cells}
        return {*chosen_runs(make_board(read_results(store.folder, self.plan)))}

    def models_wanted(self, store: Store) -> set[str]:
        """Return the cells whose models the experiment asks to keep."""
        return self.cells_asked(store) if self.keep else set()

    def sources_wanted(self, names: Iterable[str]) -> set[str]:
        """Return the MNLI cells whose models these cells start from."""
        sources: set[str] = set()
        for name in names:
            source = self.cells[name].mnli
            if source:
                sources.add(source)
        return sources

    def checkpoints_wanted(self, names: Iterable[str]) -> defaultdict[str, set[int]]:
        """Return the steps of the checkpoints that these cells start from, by pretraining."""
        steps: defaultdict[str, set[int]] = defaultdict(set)
        for name in names:
            cell = self.cells[name]
            if cell.pretraining and cell.steps:
                steps[cell.pretraining].add(cell.steps)
        return steps


class ModelCleaner:
    """Deletes fine-tuned models that neither the user nor another cell needs, during a sweep.

    Args:
        store: where the models are.
        plan: the plan of the sweep.
        is_under_way: whether the cell with an id has not ended yet in this sweep.
    """

    def __init__(self, store: Store, plan: Plan, is_under_way: Callable[[str], bool]) -> None:
        self.store = store
        self.needed = NeededWeights(plan)
        self.is_under_way = is_under_way
        self.groups: defaultdict[ArmAndTask, list[str]] = defaultdict(list)
        for cell in plan.cells:
            self.groups[cell.arm, cell.task].append(cell.id)

    def drop_after(self, job: Job) -> None:
        """Delete the models that nobody needs any more after a job has ended."""
        cell = self.needed.cells.get(job.id)
        if cell:
            self._drop([cell.id, cell.mnli] if cell.mnli else [cell.id])

    def drop_all(self) -> None:
        """Delete every model that nobody needs, even models that a killed driver has left."""
        self._drop(self.needed.cells)

    def _drop(self, ended: Iterable[str]) -> None:
        """Delete the models that nobody needs any more, once these jobs have ended."""
        if self.needed.keep == "all":
            return
        candidates = self._candidates(ended)
        unused = []
        for name in candidates:
            if self.store.models.exists(name) and not self._is_awaited(name):
                unused.append(name)
        if not unused:  # the board is made only if a model may be deleted
            return
        models_to_keep = self.needed.models_wanted(self.store)
        for name in unused:
            if name not in models_to_keep:
                self.store.models.drop(name)

    def _candidates(self, ended: Iterable[str]) -> list[str]:
        """Return the cells whose models may be deleted.

        They are cells that other cells start from. With `keep: best` they are all cells of an arm
        on a task, once all of them have ended.
        """
        if self.needed.keep != "best":
            return [name for name in ended if self.needed.followers.get(name)]
        cells = self.needed.cells
        ended_groups: dict[ArmAndTask, None] = {}  # in the order of the plan
        for name in ended:
            ended_groups[cells[name].arm, cells[name].task] = None
        candidates: list[str] = []
        for arm_and_task in ended_groups:
            group = self.groups[arm_and_task]
            if not any(self.is_under_way(name) for name in group):
                candidates += group
        return candidates

    def _is_awaited(self, name: str) -> bool:
        """Return whether a cell will start from this one: it has no record, or runs again."""
        source = self.store.record(name)
        sources = {name: source} if source else {}
        for follower in self.needed.followers.get(name, ()):
            record = self.store.record(follower)
            if self.is_under_way(follower) or record is None:
                return True
            if replaced_start(record, sources, {}):
                return True
        return False
