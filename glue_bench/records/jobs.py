"""The jobs of a plan as frozen values: fine-tuning runs and pretrainings.

Each value has everything that decides the result of its job.
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from glue_bench.config import Evaluation, Hyperparameters, PretrainingSettings
from glue_bench.records.base import NAME, Digest, Text, Value, Whole, Word

COMPUTES = 1
"""Part of every id. If it is raised, every job counts as not run yet.

Raise it when the same settings give other bits."""


class Work(Value):
    """The facts that decide a job and that cells and pretrainings have in common.

    The `id` ends in twelve digits of the SHA-256 of COMPUTES and of all fields but NOT_HASHED. If
    no id is given, it is computed; `model_copy` keeps it.

    Attributes:
        kind: the name of the folder with its results.
        section: the section of the experiment file with its settings.
        resumes: whether the job continues from its last state if it runs again.
        arm: the name of the arm.
        variant: the variant of the arm.
        options: the variant's options that differ from their defaults.
        plugin: the digest of the plugin's source, if the variant is the user's own.
        tokenizer: the digest of the tokenizer.
        checkpoint: the digest of the files that the arm starts from before any pretraining, or the
            sizes of fresh weights.
        origin: the origin of the weights that the arm's cells start from.
    """

    kind: ClassVar[str]
    section: ClassVar[str]
    resumes: ClassVar[bool]

    NOT_HASHED: ClassVar[Mapping[str, Any]] = {"id": True, "origin": True}
    id: Annotated[str, StringConstraints(pattern=f"^$|^{NAME}", max_length=240)] = ""
    arm: Word
    variant: Word
    options: dict[str, Any] = Field({})
    plugin: Digest | None = None
    tokenizer: Digest
    checkpoint: Text
    origin: Literal["pretrained", "adapted", "grafted", "scratch", "as published", "finished"]

    @model_validator(mode="after")
    def _with_id(self) -> Self:
        if not self.id:
            object.__setattr__(self, "id", self.true_id)
        return self

    @property
    def slug(self) -> str:
        """The readable part of the id."""
        return self.arm

    @property
    @abstractmethod
    def label(self) -> str:
        """The job in words, among other jobs of its kind."""

    @property
    @abstractmethod
    def prerequisites(self) -> tuple[str, ...]:
        """The ids of the jobs that have to end before it."""

    @property
    @abstractmethod
    def kind_title(self) -> str:
        """The kind of job in a word: the task of a cell, or pretraining."""

    @abstractmethod
    def describe(self) -> str:
        """Return the job in words: `pretraining add`, `add on rte, rate 2e-05, seed 1`."""

    @abstractmethod
    def tokens(self, tokens_of_tasks: Mapping[str, int]) -> int:
        """Estimate the tokens that the job trains on, from the tokens of a cell of each task."""

    @property
    def hashed(self) -> dict[str, Any]:
        """Return the fields that decide the result."""
        return self.document(exclude=self.NOT_HASHED)

    @property
    def true_id(self) -> str:
        """Return the id that follows from the fields."""
        text = json.dumps({**self.hashed, "computes": COMPUTES}, sort_keys=True)
        return f"{self.slug}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Cell(Work):
    """One fine-tuning run, or one evaluation of a finished model, with all that decides its result.

    A run starts from the pretraining with the id `pretraining` after `steps` steps, or from the
    encoder of the cell with the id `mnli`. `data` is the digest of all rows of the task that the
    run may see. An evaluation has `settings` of its own, rate 0 and seed 0, because it trains
    nothing and draws nothing.
    """

    kind: ClassVar = "cells"
    section: ClassVar = "finetuning"
    resumes: ClassVar = False
    task: Word
    data: Digest
    settings: Hyperparameters | Evaluation
    seed: Whole
    pretraining: Word | None = None
    pretraining_seed: Whole | None = None
    steps: Whole | None = None
    mnli: Word | None = None

    @property
    def prerequisites(self) -> tuple[str, ...]:
        return tuple(job_id for job_id in (self.pretraining, self.mnli) if job_id)

    @property
    def is_trained(self) -> bool:
        """Whether it is a fine-tuning run, and no evaluation."""
        return isinstance(self.settings, Hyperparameters)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The settings of a fine-tuning run. Raises TypeError for an evaluation."""
        if not isinstance(self.settings, Hyperparameters):
            raise TypeError(f"{self.id} is not trained")
        return self.settings

    @property
    def kind_title(self) -> str:
        return self.task

    def describe(self) -> str:
        return self.label

    def tokens(self, tokens_of_tasks: Mapping[str, int]) -> int:
        return tokens_of_tasks[self.task]

    @property
    def slug(self) -> str:
        if not self.is_trained:
            return f"{self.arm}-{self.task}"
        pretraining = "" if self.pretraining_seed in (None, 1) else f"-p{self.pretraining_seed}"
        steps = "" if self.steps is None else f"{pretraining}-step{self.steps}"
        return f"{self.arm}-{self.task}-lr{self.settings.learning_rate:g}-s{self.seed}{steps}"

    @property
    def key(self) -> dict[str, Any]:
        """The facts that tell a cell from other cells of its plan, as `--only` names them."""
        key = {
            "arm": self.arm,
            "variant": self.variant,
            "task": self.task,
            "learning_rate": self.settings.learning_rate,
            "seed": self.seed,
        }
        if self.steps:
            key["steps"] = self.steps
            key["pretraining_seed"] = self.pretraining_seed
        return key

    @property
    def label(self) -> str:
        if not self.is_trained:
            return f"{self.arm} on {self.task}"
        steps = "" if self.steps is None else f" after {self.steps} steps"
        steps += "" if self.pretraining_seed in (None, 1) else f" of seed {self.pretraining_seed}"
        rate = self.settings.learning_rate
        return f"{self.arm}{steps} on {self.task}, rate {rate:g}, seed {self.seed}"


class Pretraining(Work):
    """One pretraining, arm x seed, or a run of the search for its rate.

    A run of a search keeps no weights.

    Attributes:
        NOT_HASHED: the fields that decide no weights, and the fields whose content is hashed
            instead.
        corpus: the digest of the text.
        packing: the version of how sequences are cut from the text.
        settings: the settings of this run alone, with one seed.
        parts: how many tokens are computed at once, if this decides the weights, as it does with
            dropout.
        searches: the ids of the runs that the pretraining's rate is chosen from.
        is_search: whether this pretraining is a run of a search.
        rate: the rate that the search has chosen; None before.
    """

    kind: ClassVar = "pretrainings"
    section: ClassVar = "pretraining"
    resumes: ClassVar = True
    NOT_HASHED: ClassVar[Mapping[str, Any]] = {
        "id": True,
        "origin": True,
        "rate": True,
        "settings": {
            "corpus",
            "tokenizer",
            "checkpoints",
            "finetune_checkpoints",
            "validations",
            "micro_batch_tokens",
        },
    }
    corpus: Digest
    packing: Whole
    settings: PretrainingSettings
    parts: Whole | None = None
    searches: tuple[Word, ...] = ()
    is_search: bool = False
    rate: float | None = None

    @property
    def prerequisites(self) -> tuple[str, ...]:
        return self.searches

    @property
    def kind_title(self) -> str:
        return "pretraining"

    def describe(self) -> str:
        return f"pretraining {self.label}"

    def tokens(self, tokens_of_tasks: Mapping[str, int]) -> int:  # noqa: ARG002
        return self.settings.steps * self.settings.batch_tokens

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def learning_rate(self) -> float | None:
        return self.rate or (None if self.settings.rate_search else self.settings.learning_rate)

    @property
    def label(self) -> str:
        if self.is_search:
            rate = f"rate {self.learning_rate:g} for {self.settings.steps:,} steps"
            return f"{self.arm}, {rate}, seed {self.seed}"
        return self.arm if self.seed == 1 else f"{self.arm}, seed {self.seed}"


Job = Cell | Pretraining
"""A job that a worker runs."""
