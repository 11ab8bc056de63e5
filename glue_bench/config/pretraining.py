"""How arms are pretrained."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from glue_bench.config.sections import (
    MOST_POSITIONS,
    MOST_STEPS,
    SCRATCH,
    Brief,
    LearningRates,
    Place,
    Section,
    Seed,
    distinct,
)

SHORT = {"seed": "seeds", "learning_rate": "learning_rates"}


class RateSearch(Section):
    """How each arm's learning rate is chosen: every rate is tried for so many steps, with a seed of its own."""

    steps: int = Field(gt=0, le=MOST_STEPS)
    seed: Seed = 0


_WATCHES_ONLY = {"corpus", "tokenizer", "checkpoints", "finetune_checkpoints", "validations", "micro_batch_tokens"}
"""Settings that do not decide the weights, or whose content is hashed in their place."""


class Pretraining(Brief, Section):
    """Masked-LM pretraining, the same for every arm. Defaults of the optimiser: TUPE's table 2.

    With `from: scratch` every arm starts from fresh weights of `scratch`; with `from: checkpoint` from its own. Every
    arm is pretrained once with each of `seeds`; all arms of one seed see the same masks and order. Of several
    `learning_rates`, each arm is given the one of its lowest validation loss in `rate_search`. `seed: 1` and
    `learning_rate: 1e-4` are short for lists of one. Each key is explained in docs/pretraining.md.
    """

    # Keys that earlier versions did not know: ids, which are hashes of a dump, stay those of earlier versions.
    left_out: ClassVar = frozenset({"documents", "segments", "schedule", "decay_share", "dropout"})

    corpus: Annotated[list[Place], Field(min_length=1), AfterValidator(distinct)]
    documents: Literal["files", "blank_lines"] = "files"
    segments: Literal["one", "pairs"] = "one"
    start: Literal["scratch", "checkpoint"] = Field("scratch", alias="from")
    tokenizer: Place | None = None
    steps: int = Field(gt=0, le=MOST_STEPS)
    batch_tokens: int = Field(8192, gt=0, le=2**30)
    micro_batch_tokens: int | None = Field(None, gt=0)
    length: int = Field(128, ge=8, le=MOST_POSITIONS)
    mask_probability: float = Field(0.15, gt=0, lt=1)
    learning_rates: LearningRates = Field([1e-4])
    rate_search: RateSearch | None = None
    schedule: Literal["linear", "trapezoid"] = "linear"
    warmup_ratio: float = Field(0.01, ge=0, le=1)
    decay_share: float | None = Field(None, gt=0, le=1)
    dropout: float | None = Field(None, ge=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    adam_epsilon: float = Field(1e-6, gt=0)
    clip_norm: float = Field(1.0, gt=0)
    seeds: Annotated[list[Seed], Field(min_length=1), AfterValidator(distinct)] = Field([1])
    validation_share: float = Field(0.03, gt=0, lt=1)
    validations: int = Field(10, gt=0, le=10_000)
    checkpoints: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(distinct)] = Field([])
    finetune_checkpoints: bool = False

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, given: Any) -> Any:
        """One seed and one rate as lists of one."""
        if not isinstance(given, Mapping):
            return given
        for short, full in SHORT.items():
            if short in given and full in given:
                raise ValueError(f"give {short} or {full}, not both")
        return {SHORT.get(key, key): [value] if key in SHORT else value for key, value in given.items()}

    @field_validator("corpus", mode="before")
    @classmethod
    def _one_or_more(cls, corpus: Any) -> Any:
        return [corpus] if isinstance(corpus, str) else corpus

    @model_validator(mode="after")
    def _fits(self) -> "Pretraining":
        late = [step for step in self.checkpoints if step >= self.steps]
        if late:
            raise ValueError(f"checkpoints {late} are not before the last step, {self.steps}, which is always kept")
        for key in ("batch_tokens", "micro_batch_tokens"):
            if (getattr(self, key) or self.length) < self.length:
                raise ValueError(f"{key} {getattr(self, key)} holds no sequence of length {self.length}")
        if self.tokenizer and self.start != SCRATCH:
            raise ValueError("tokenizer is that of each arm's checkpoint; leave it out with from: checkpoint")
        return self

    @model_validator(mode="after")
    def _search_fits(self) -> "Pretraining":
        rates, search = self.learning_rates, self.rate_search
        if search is None:
            if len(rates) > 1:
                raise ValueError(
                    f"several learning_rates {rates} need rate_search: {{steps: N}} to choose for each arm"
                )
            return self
        if len(rates) == 1:
            raise ValueError("rate_search has nothing to choose from; give several learning_rates, or leave it out")
        if search.steps > self.steps:
            raise ValueError(f"rate_search.steps {search.steps} is longer than the training of {self.steps} steps")
        if search.seed in self.seeds:
            raise ValueError(
                f"rate_search.seed {search.seed} is among the seeds {self.seeds}: the rate would be chosen on a run "
                "that is compared; give the search another seed"
            )
        return self

    @property
    def seed(self) -> int:
        """The seed of one run's settings."""
        return self.seeds[0]

    @property
    def learning_rate(self) -> float:
        """The learning rate of one run's settings."""
        return self.learning_rates[0]

    def with_seed(self, seed: int) -> "Pretraining":
        """The settings of the run with one of the seeds; its rate may still have to be chosen."""
        return self.model_copy(update={"seeds": [seed]})

    def at(self, rate: float) -> "Pretraining":
        """The settings at one of the rates, chosen."""
        return self.model_copy(update={"learning_rates": [rate], "rate_search": None})

    def hashed(self) -> dict[str, Any]:
        """What of one run's settings is part of an id: a rate that is searched for follows from rates and search."""
        values = self.model_dump(exclude=_WATCHES_ONLY | {"seeds", "learning_rates", "rate_search"})
        values["seed"] = self.seed
        if self.rate_search is None:
            return values | {"learning_rate": self.learning_rate}
        return values | {"learning_rates": sorted(self.learning_rates), "rate_search": self.rate_search.model_dump()}

    def searches(self) -> "list[Pretraining]":
        """The settings of each run of the rate search: a whole pretraining of its number of steps, at one rate."""
        if self.rate_search is None:
            return []
        kept = {"checkpoints": [], "finetune_checkpoints": False, "validations": 1}
        short = self.model_copy(update={"steps": self.rate_search.steps, "seeds": [self.rate_search.seed], **kept})
        return [short.at(rate) for rate in self.learning_rates]

    @model_validator(mode="after")
    def _schedule_fits(self) -> "Pretraining":
        if self.schedule == "linear" and self.decay_share is not None:
            raise ValueError("decay_share belongs to schedule: trapezoid; the linear schedule decays after its warm-up")
        if self.schedule == "trapezoid" and self.decay_share is None:
            raise ValueError(
                "schedule: trapezoid needs decay_share, the part of the steps at the end in which the rate falls, "
                "such as 0.2"
            )
        if self.warmup_ratio + (self.decay_share or 0.0) > 1:
            raise ValueError(
                f"warmup_ratio {self.warmup_ratio:g} and decay_share {self.decay_share:g} are together more than 1"
            )
        return self

    @property
    def rows(self) -> int:
        """Sequences in a batch."""
        return self.batch_tokens // self.length

    @property
    def rows_at_once(self) -> int:
        """Sequences that are computed at once."""
        return min(self.micro_batch_tokens or self.batch_tokens, self.batch_tokens) // self.length

    @property
    def kept_steps(self) -> list[int]:
        """Steps whose checkpoints are kept, the last one included."""
        return [*sorted(self.checkpoints), self.steps]

    @property
    def finetuned_steps(self) -> list[int]:
        """Steps whose checkpoints are fine-tuned."""
        return self.kept_steps if self.finetune_checkpoints else [self.steps]
