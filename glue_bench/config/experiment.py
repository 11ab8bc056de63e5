"""An experiment: arms, tasks, rates and seeds, and the cells that they make."""

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from glue_bench import recipe as recipes
from glue_bench.config.pretraining import Pretraining
from glue_bench.config.protocol import HELD_OUT, Protocol
from glue_bench.config.sections import (
    NATIVE,
    SCRATCH,
    Arm,
    Finetuning,
    Name,
    Place,
    Resources,
    ScratchEncoder,
    Section,
    Seed,
    distinct,
    known_tasks,
)
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import unknown

MOST_CELLS = 50_000


class Hyperparameters(Section):
    """What one cell is trained with: every value settled."""

    learning_rate: float
    epochs: int
    batch_size: int
    max_length: int
    warmup_ratio: float
    weight_decay: float
    adam_epsilon: float
    clip_norm: float
    max_steps: int | None = None
    held_out_share: float | None = None
    predictions: Literal["float16"] | None = None

    def steps(self, in_epoch: int) -> int:
        """The updates of a run whose epochs have so many."""
        steps = in_epoch * self.epochs
        return steps if self.max_steps is None else min(steps, self.max_steps)


class ArmPretraining(Section):
    """One pretraining = arm x seed, or one run of the arm's rate search. `settings` are those of this run alone."""

    arm: Arm
    settings: Pretraining
    recipe: int = Field(default_factory=lambda: recipes.RECIPE)

    def searches(self) -> "list[ArmPretraining]":
        """The runs of which the best one decides its learning rate."""
        return [self.model_copy(update={"settings": settings}) for settings in self.settings.searches()]


class Cell(Section):
    """One fine-tuning run = arm x task x learning rate x seed, after `steps` of pretraining where there is one.

    With `mnli_rate` it starts from what the arm's MNLI cell of the same seed and that rate has learnt. It is trained
    by `recipe`, and its arm is pretrained by `pretraining_recipe`: this version's, unless an older one has stored it.
    """

    arm: Arm
    task: str
    hyperparameters: Hyperparameters
    seed: int
    steps: int | None = None
    pretraining_seed: int | None = None
    mnli_rate: float | None = None
    recipe: int = Field(default_factory=lambda: recipes.RECIPE)
    pretraining_recipe: int = Field(default_factory=lambda: recipes.RECIPE)

    @property
    def key(self) -> dict[str, Any]:
        """The cell as records name it."""
        pretrained = {"steps": self.steps, "pretraining_seed": self.pretraining_seed} if self.steps else {}
        return {
            "arm": self.arm.name,
            "variant": self.arm.variant,
            "task": self.task,
            "learning_rate": self.hyperparameters.learning_rate,
            "seed": self.seed,
            **pretrained,
        }


class Experiment(Section):
    """One experiment file. `plugins` are Python files with variants, relative to the current directory.

    With `limit`, of train and of each validation split that many rows are used, which is no benchmark.
    """

    name: Name
    data: Place
    arms: list[Arm] = Field(min_length=1)
    tasks: Annotated[list[str], AfterValidator(known_tasks)] = Field(list(TRAINABLE), min_length=1)
    seeds: Annotated[list[Seed], AfterValidator(distinct)] = Field([1, 2, 3, 4, 5], min_length=1)
    limit: int | None = Field(None, ge=2)
    plugins: list[Place] = Field([])
    scratch: ScratchEncoder = ScratchEncoder()
    pretraining: Pretraining | None = None
    finetuning: Finetuning = Finetuning()
    protocol: Protocol = Protocol()
    resources: Resources = Resources()

    @field_validator("arms")
    @classmethod
    def _distinct_arms(cls, arms: list[Arm]) -> list[Arm]:
        distinct([arm.name for arm in arms], what="names")
        return arms

    @model_validator(mode="after")
    def _pretraining_fits(self) -> "Experiment":
        if self.pretraining is None:
            return self
        for arm in self.arms:
            if arm.variant == NATIVE:
                raise ValueError(f"arm '{arm.name}' is {NATIVE}, taken as it is published; it is not pretrained here")
            if (arm.checkpoint == SCRATCH) != (self.pretraining.start == SCRATCH):
                raise ValueError(
                    f"arm '{arm.name}' starts from '{arm.checkpoint}', but pretraining is from: "
                    f"{self.pretraining.start}; all arms are pretrained alike"
                )
        longest = self.scratch.max_position_embeddings
        if self.pretraining.start == SCRATCH and self.pretraining.length > longest:
            raise ValueError(f"pretraining.length {self.pretraining.length} exceeds the {longest} positions of scratch")
        return self

    @model_validator(mode="after")
    def _can_be_counted(self) -> "Experiment":
        rates = sum(len(self._settled(task, "learning_rates")) for task in self.tasks)
        pretrained = len(self._steps()) * len(self.pretraining.seeds) if self.pretraining else 1
        cells = rates * len(self.arms) * len(self.seeds) * pretrained
        if cells > MOST_CELLS:
            raise ValueError(f"{cells:,} cells, but at most {MOST_CELLS:,}: each has files of its own in one folder")
        return self

    @model_validator(mode="after")
    def _mnli_fits(self) -> "Experiment":
        if not self.finetuning.from_mnli:
            if self.finetuning.mnli_rate is not None:
                raise ValueError("finetuning.mnli_rate needs finetuning.from_mnli, the tasks that start from that run")
            return self
        if "mnli" not in self.tasks:
            raise ValueError("finetuning.from_mnli needs mnli among the tasks")
        rates, chosen = self._settled("mnli", "learning_rates"), self.finetuning.mnli_rate
        if chosen is None and len(rates) > 1:
            raise ValueError(
                f"finetuning.from_mnli: mnli has the rates {rates}; say with mnli_rate which run to start from"
            )
        if chosen is not None and chosen not in rates:
            raise ValueError(f"finetuning.mnli_rate {chosen:g} is none of mnli's learning rates {rates}")
        return self

    @model_validator(mode="after")
    def _protocol_fits(self) -> "Experiment":
        if self.protocol.choose_on == HELD_OUT and self.finetuning.held_out_share is None:
            raise ValueError(
                "protocol.choose_on: held_out needs finetuning.held_out_share, the part of train to hold out"
            )
        several = [task for task in self.tasks if len(self._settled(task, "learning_rates")) > 1]
        if self.protocol.rate == "fixed" and several:
            raise ValueError(
                f"protocol.rate: fixed needs one learning rate a task; {', '.join(several)} has several "
                "(set finetuning.tasks.<task>.learning_rates)"
            )
        return self

    @model_validator(mode="after")
    def _comparisons_fit(self) -> "Experiment":
        names, protocol = [arm.name for arm in self.arms], self.protocol
        if protocol.reference is not None and protocol.reference not in names:
            raise ValueError(str(unknown("arm", protocol.reference, names, "protocol.reference")))
        for pair in protocol.contrasts:
            for name in pair:
                if name not in names:
                    raise ValueError(str(unknown("arm", name, names, "protocol.contrasts")))
        if len({frozenset(pair) for pair in protocol.contrasts if len(set(pair)) == 2}) < len(protocol.contrasts):
            raise ValueError("protocol.contrasts: each is of two different arms, and none is given twice")
        if protocol.primary == "validation_loss" and self.pretraining is None:
            raise ValueError("protocol.primary: validation_loss needs `pretraining`, which measures it")
        return self

    def cells(self) -> Iterator[Cell]:
        """All cells, last checkpoint first and tasks outermost, so that a sweep cut short has whole columns."""
        pretraining_seeds = [None] if self.pretraining is None else self.pretraining.seeds
        mnli_rate = self.finetuning.mnli_rate or self._settled("mnli", "learning_rates")[0]
        for steps in self._steps():
            for task in self.tasks:
                for rate in self._settled(task, "learning_rates"):
                    settled = self._hyperparameters(task, rate)
                    for pretraining_seed, seed, arm in product(pretraining_seeds, self.seeds, self.arms):
                        yield Cell(
                            arm=arm,
                            task=task,
                            hyperparameters=settled,
                            seed=seed,
                            steps=steps,
                            pretraining_seed=pretraining_seed,
                            mnli_rate=mnli_rate if task in self.finetuning.from_mnli else None,
                        )

    def _steps(self) -> list[int] | list[None]:
        return [None] if self.pretraining is None else self.pretraining.finetuned_steps[::-1]

    def pretraining_of(self, cell: Cell) -> ArmPretraining | None:
        """The pretraining that the cell starts from, None if it starts from its arm's own checkpoint."""
        if self.pretraining is None or cell.pretraining_seed is None:
            return None
        settings = self.pretraining.with_seed(cell.pretraining_seed)
        return ArmPretraining(arm=cell.arm, settings=settings, recipe=cell.pretraining_recipe)

    def mnli_cell(self, cell: Cell) -> Cell | None:
        """The MNLI cell that this one starts from, None if it starts from its arm."""
        if cell.mnli_rate is None:
            return None
        settled = self._hyperparameters("mnli", cell.mnli_rate)
        return cell.model_copy(update={"task": "mnli", "hyperparameters": settled, "mnli_rate": None})

    def _hyperparameters(self, task: str, learning_rate: float) -> Hyperparameters:
        per_task = {key: self._settled(task, key) for key in ("epochs", "batch_size", "max_length")}
        schedule = ("warmup_ratio", "weight_decay", "adam_epsilon", "clip_norm", "max_steps")
        shared = (*schedule, "held_out_share", "predictions")
        values = {key: getattr(self.finetuning, key) for key in shared}
        return Hyperparameters(learning_rate=learning_rate, **per_task, **values)

    def _settled(self, task: str, key: str) -> Any:
        own = getattr(self.finetuning.tasks.get(task), key, None)
        return getattr(self.finetuning, key) if own is None else own
