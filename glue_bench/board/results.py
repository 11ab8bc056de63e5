"""The jobs that an experiment asks for, and the results of the finished ones, as frames.

No other file reads records for tables. Only what the plan asks for counts; `Finished.left_out`
counts the records of anything else. A record that cannot be believed has a line in `problems`. Its
cell or pretraining counts as missing, and so does a cell that is `Finished.outdated`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.board.plan_frames import (
    read_arms,
    read_baselines,
    read_cells,
    read_losses,
    read_measures,
    read_pretrainings,
    read_scores,
    read_tasks,
)
from glue_bench.data.task_data import LIMITED, is_demo
from glue_bench.records.finished import Finished
from glue_bench.records.labels import CLUSTERS, GOLD, Labels
from glue_bench.records.store import Store, open_store
from glue_bench.records.values import Plan
from glue_bench.stats.runs import effective_number

MIN_DOCUMENTS = 5
"""With fewer documents of equal size a variance is hardly known, and pieces of text count instead.

A piece has at most 512 tokens.
"""
BANNER = "Made from the embedded demo data: not a benchmark."


@dataclass(frozen=True, kw_only=True)
class Results:
    """The jobs that the plan of an experiment asks for, and their results on disk.

    Each frame is about the jobs of the plan. A value that is not known is NaN, or "" in a text.

    Attributes:
        plan: The plan of the experiment.
        cells: CELL_COLUMNS of each planned cell, in the order of the plan, and RUN_COLUMNS, which
            are known for finished cells. `data` is the digest of the task's data. `collapsed` are
            the splits on which the run gave one answer to everything. `processor` and `precision`
            join the values of all runs that the weights went through: pretraining, MNLI, and the
            cell's own run.
        scores: EPOCH_SCORE_COLUMNS, a row for each score of each epoch of a finished cell. A
            `value` is 0 to 100, and NaN where the metric is undefined.
        arms: ARM_COLUMNS of each arm; its name is the index.
        tasks: TASK_COLUMNS of each task; its name is the index. `rows` are counted by split.
            `differences` and `unchecked` are fields of TaskFacts.
        pretrainings: PRETRAINING_COLUMNS of each arm and seed, and of the runs of rate searches.
        losses: LOSS_COLUMNS of each point of the curves of finished pretrainings.
        measures: MEASURE_COLUMNS of each measure of a finished pretraining.
        baselines: BASELINE_COLUMNS of each score of a trivial baseline, 0 to 100.
        store: The folder of results.
        finished: The records of the plan.
        problems: A line for each record or file that cannot be believed.
    """

    plan: Plan
    cells: pd.DataFrame
    scores: pd.DataFrame
    arms: pd.DataFrame
    tasks: pd.DataFrame
    pretrainings: pd.DataFrame
    losses: pd.DataFrame
    measures: pd.DataFrame
    baselines: pd.DataFrame
    store: Store
    finished: Finished
    problems: tuple[str, ...]

    def logits(self, cell_id: str, *, test: bool = False) -> dict[str, np.ndarray]:
        """Return the logits of a finished cell by split, float32 (rows, labels).

        They are the logits of the scored splits, or with `test` of the test splits and AX, if any.

        Raises:
            UserError: The file is missing, damaged or of another run.
        """
        return self.store.logits(self.finished.records[cell_id], test=test)

    def gold(self, task: str) -> dict[str, np.ndarray]:
        """Return the gold labels of each scored split, (rows,); nothing if none are stored.

        Raises:
            UserError: The file is missing, damaged or of other data.
        """
        labels = self._labels(task)
        return dict(labels[GOLD])

    def clusters(self, task: str) -> dict[str, np.ndarray]:
        """Return the number of each example's cluster by scored split, (rows,).

        There are none if the task has no clusters, or if the labels are older than clusters.

        Raises:
            UserError: The file is missing, damaged or of other data.
        """
        labels = self._labels(task)
        return dict(labels.get(CLUSTERS, {}))

    def _labels(self, task: str) -> Labels:
        """Return the labels of a task's data, as the plan binds them."""
        facts = self.plan.tasks[task]
        return self.store.labels.read(task, facts.digest, facts.labels)

    def sums(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """Return numerators and denominators of pieces of text, (2, pieces), by measure.

        The pieces of one document resemble each other. So a loss has whole documents as its pieces,
        if there are enough documents. The loss is measured on all validation text, and the other
        measures on a part of it.

        Raises:
            UserError: The file is missing, damaged or of another run.
        """
        record = self.finished.pretrainings[pretraining_id]
        sums = self.store.measure_sums(record)
        losses = self.store.losses(record)
        if not losses:
            return sums
        _, places = np.unique(losses["document"], return_inverse=True)
        if effective_number(np.bincount(places, losses["count"])) < MIN_DOCUMENTS:
            places = np.arange(len(places))
        loss_sums = np.bincount(places, losses["loss_sum"])
        counts = np.bincount(places, losses["count"])
        sums["validation_loss"] = np.stack([loss_sums, counts])
        return sums

    @property
    def folder(self) -> Path:
        """Return the folder of the experiment."""
        return self.store.folder

    @property
    def experiment(self) -> str:
        """Return the name of the experiment."""
        return self.plan.experiment.name

    @property
    def data_source(self) -> str:
        """Return where the data are from; several sources are joined by commas."""
        return ", ".join(sorted(set(self.tasks["source"])))

    @property
    def banner(self) -> str:
        """Return the warning above tables whose numbers must not be compared with others, or ""."""
        if self.is_made_up:
            return BANNER
        if LIMITED in self.data_source:
            return f"Made from a part of each split ({self.data_source}): not a benchmark."
        return ""

    @property
    def is_made_up(self) -> bool:
        """Return whether a task has the made-up data of the demo."""
        return any(is_demo(source) for source in self.tasks["source"])

    @property
    def partial_tasks(self) -> tuple[str, ...]:
        """Return the tasks that were run on a part of their official rows, or on other rows.

        Tasks with demo data are left out, because the banner warns of them.
        """
        return tuple(self.tasks.index[self.tasks["partial"]])

    @property
    def altered_tasks(self) -> tuple[str, ...]:
        """Return the partial tasks with a split of the official size, but with other content."""
        return tuple(task for task in self.partial_tasks if self.tasks["differences"][task])

    @property
    def all_steps(self) -> tuple[int, ...]:
        """Return the numbers of steps of pretraining after which cells start, in rising order."""
        steps = self.cells["steps"].dropna().unique()
        return tuple(sorted(map(int, steps)))

    def cells_after(self, steps: int | None) -> pd.DataFrame:
        """Return the cells that start after this many steps of pretraining.

        With None these are the cells that start without any pretraining of ours.
        """
        started_after = self.cells["steps"]
        if steps is None:
            return self.cells[started_after.isna()]
        return self.cells[started_after == steps]


def read_results(folder: str | Path, plan: Plan | None = None) -> Results:
    """Read the jobs that a plan asks for, and the results of the finished ones.

    Args:
        folder: The folder of an experiment.
        plan: The plan; the stored one if it is None.

    Raises:
        UserError: The folder has no experiment, or its plan is damaged.
    """
    store = Store(folder) if plan else open_store(folder)
    plan = plan or store.plan()
    finished = store.finished(plan)
    baselines, problems = read_baselines(store, plan)
    return Results(
        plan=plan,
        cells=read_cells(plan, finished),
        scores=read_scores(plan, finished),
        arms=read_arms(plan),
        tasks=read_tasks(plan),
        pretrainings=read_pretrainings(plan, finished),
        losses=read_losses(plan, finished),
        measures=read_measures(plan, finished),
        baselines=baselines,
        store=store,
        finished=finished,
        problems=(*finished.problems.values(), *problems),
    )
