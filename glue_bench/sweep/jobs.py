"""A job is what a worker does at a time: a cell, or a pretraining that cells wait for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from glue_bench.config import ArmPretraining, Cell, Pretraining
from glue_bench.records.environment import versions
from glue_bench.records.plan import AskedCell, pretraining_label
from glue_bench.records.record import Environment, LossPoint, PretrainingRecord
from glue_bench.training.finetune import Outcome
from glue_bench.training.inputs import Inputs


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its id: a readable slug and a hash of everything that can change the outcome.

    `pretraining` is the id of the pretraining that it starts from, `mnli` that of the MNLI cell; `is_source` says that
    others start from it, `keeps` that its fine-tuned model is to stay.
    """

    kind: ClassVar = "cell"

    id: str
    cell: Cell
    origin: str
    mnli: str | None = None
    pretraining: str | None = None
    is_source: bool = False
    keeps: bool = False

    @property
    def after(self) -> list[str]:
        """The ids of the jobs that have to end before it."""
        return [name for name in (self.pretraining, self.mnli) if name]

    @property
    def arm(self) -> str:
        """The name of its arm."""
        return self.cell.arm.name

    @property
    def recipe(self) -> int:
        """The recipe by which it is trained."""
        return self.cell.recipe

    @property
    def label(self) -> str:
        """It in words."""
        return self.asked.label

    @property
    def asked(self) -> AskedCell:
        """The cell as plan.json lists it."""
        settled = {"recipe": self.cell.recipe, "from_mnli": self.mnli, "pretraining": self.pretraining}
        return AskedCell(cell_id=self.id, origin=self.origin, **self.cell.key, **settled)

    def digest(self, inputs: Inputs) -> str:
        """The end of its id, by these inputs."""
        return inputs.cell_identity(self.cell).digest


@dataclass(frozen=True)
class PlannedPretraining:
    """A pretraining and its id: the arm's name and a hash of everything that decides the weights.

    `searches` are the ids of the runs that its learning rate is chosen from, before it is handed out as `rate`;
    `is_search` says that it is such a run, which keeps no weights.
    """

    kind: ClassVar = "pretraining"

    id: str
    run: ArmPretraining
    searches: tuple[str, ...] = ()
    is_search: bool = False
    rate: float | None = None

    @property
    def after(self) -> tuple[str, ...]:
        """The ids of the jobs that have to end before it."""
        return self.searches

    @property
    def arm(self) -> str:
        """The name of its arm."""
        return self.run.arm.name

    @property
    def recipe(self) -> int:
        """The recipe by which it is trained."""
        return self.run.recipe

    @property
    def settings(self) -> Pretraining:
        """What it is trained with: one seed, and the rate that was chosen."""
        return self.run.settings if self.rate is None else self.run.settings.at(self.rate)

    @property
    def label(self) -> str:
        """It in words."""
        settings = self.run.settings
        searched = {"learning_rate": settings.learning_rate, "steps": settings.steps} if self.is_search else {}
        return pretraining_label(self.arm, settings.seed, searched)

    def digest(self, inputs: Inputs) -> str:
        """The end of its id, by these inputs."""
        return inputs.pretraining_identity(self.run).digest


Job = PlannedCell | PlannedPretraining


@dataclass(frozen=True)
class Failure:
    """Why a job did not end, and where it ran, as far as it began."""

    error: str
    traceback: str
    environment: Environment = field(default_factory=versions)


@dataclass(frozen=True)
class FinishedPretraining:
    """The record of a pretraining, and its last validation losses as `Store.read_validation` returns them."""

    record: PretrainingRecord
    validation: Mapping[str, np.ndarray] = field(default_factory=dict)


Result = Outcome | FinishedPretraining | Failure
"""What comes of a job in the end."""
Said = LossPoint | Result
"""What a job says: a pretraining the points of its loss curve, and each job at last its result."""
