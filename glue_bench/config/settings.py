"""How a cell is fine-tuned and how an arm is pretrained: sections of an experiment file, frozen and checked."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from glue_bench.data.tasks import TRAINABLE, find_task
from glue_bench.errors import MistakesError, UserError

# Upper bounds are far beyond any encoder or run there is. What exceeds them would end in an error of memory, or of a
# library, only after work has been done.
MOST_TEXT, MOST_POSITIONS, MOST_STEPS, MOST_ROWS = 4096, 2**17, 10**9, 10**9
SCRATCH = "scratch"
LARGEST_FINETUNING_RATE = 1.0


def distinct(values: list[Any], by: Callable[[Any], Any] = str) -> list[Any]:
    """The values. Raises ValueError if two are alike `by` what is said of them."""
    twice = sorted(text for text, count in Counter(map(by, values)).items() if count > 1)
    if twice:
        raise ValueError(f"values must differ; given twice: {', '.join(twice)}")
    return values


def known_tasks(names: Iterable[str]) -> list[str]:
    """The tasks of these names, as GLUE writes them. Raises ValueError if there is none, or one is given twice."""
    tasks: list[str] = []
    mistakes: list[str] = []
    for name in names:
        try:
            tasks.append(find_task(name, TRAINABLE).name)
        except UserError as error:
            mistakes.append(str(error))
    if mistakes:
        raise MistakesError(mistakes)
    return distinct(tasks)


Place = Annotated[str, StringConstraints(max_length=MOST_TEXT, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A file, a folder, a URL, or a name of the hub: one line, not empty."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what numpy's generator takes
Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(distinct)]
LearningRate = Annotated[float, Field(gt=0, le=100)]
LearningRates = Annotated[list[LearningRate], Field(min_length=1), AfterValidator(distinct)]
FromMnli = Literal["rte", "mrpc", "stsb"]
"""What others start from their MNLI model (RoBERTa, DeBERTa, ModernBERT)."""


class Section(BaseModel):
    """A part of the experiment file: immutable, and no key that it does not know."""

    # strict: `epochs: "1"` is a mistake, not the number 1.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if mistakes := list(self.mistakes()):
            raise MistakesError(mistakes)
        return self

    def mistakes(self) -> Iterator[str]:
        """What does not go together."""
        return iter(())


class SectionWithNewKeys(Section):
    """A section with keys that a plan holds only where a file sets them, so that older plans keep their bytes."""

    written_if_set: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_unset_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        for key in self.written_if_set:
            if values.get(key) is None:
                values.pop(key, None)
        return values


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

    def steps_per_epoch(self, rows: int) -> int:
        """The updates of an epoch of so many rows."""
        return -(-rows // self.batch_size)

    def steps(self, in_epoch: int) -> int:
        """The updates of a run whose epochs have so many."""
        steps = in_epoch * self.epochs
        return steps if self.max_steps is None else min(steps, self.max_steps)


class TaskSettings(SectionWithNewKeys):
    """Hyperparameters of fine-tuning on one task. Unset ones are taken from `finetuning`."""

    written_if_set = frozenset({"warmup_ratio", "weight_decay"})

    learning_rates: LearningRates | None = None
    epochs: int | None = Field(None, gt=0, le=10_000)
    batch_size: int | None = Field(None, gt=0, le=2**16)
    max_length: int | None = Field(None, ge=4, le=MOST_POSITIONS)
    warmup_ratio: float | None = Field(None, ge=0, le=1)
    weight_decay: float | None = Field(None, ge=0)
    limit: int | None = Field(None, ge=2, le=MOST_ROWS)


class Finetuning(Section):
    """How every cell is fine-tuned: TUPE's table 2 unless the file says otherwise.

    `predict` and `keep` change no score. `predictions: float16` halves what a cell leaves.
    """

    learning_rates: LearningRates = [2e-5, 3e-5, 4e-5, 5e-5]
    epochs: int = Field(10, gt=0, le=10_000)
    batch_size: int = Field(32, gt=0, le=2**16)
    max_length: int = Field(128, ge=4, le=MOST_POSITIONS)
    warmup_ratio: float = Field(0.06, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    adam_epsilon: float = Field(1e-6, gt=0)
    clip_norm: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, gt=0, le=MOST_STEPS)
    held_out_share: float | None = Field(None, gt=0, le=0.5)
    from_mnli: Annotated[list[FromMnli], AfterValidator(distinct)] = []
    mnli_rate: float | None = Field(None, gt=0)
    predict: Annotated[list[Literal["validation", "test"]], AfterValidator(distinct)] = [
        "validation"
    ]
    predictions: Literal["float16"] | None = None
    keep: Literal["best", "all"] | None = None
    tasks: Annotated[
        dict[str, TaskSettings],
        AfterValidator(lambda tasks: dict(zip(known_tasks(tasks), tasks.values(), strict=True))),
    ] = {}

    def mistakes(self) -> Iterator[str]:
        rates = self.rates("mnli")
        tasks_rates = [settings.learning_rates or [] for settings in self.tasks.values()]
        for rate in sorted({*self.learning_rates, *chain.from_iterable(tasks_rates)}):
            if rate > LARGEST_FINETUNING_RATE:
                yield f"learning rate {rate:g} is above 1; did you mean {rate:g}e-5?"
        if "validation" not in self.predict:
            yield "predict: validation is always predicted; give [validation] or [validation, test]"
        if self.mnli_rate is not None and not self.from_mnli:
            yield "mnli_rate needs from_mnli, the tasks that start from that run"
        if self.from_mnli and self.mnli_rate is None and len(rates) > 1:
            yield f"from_mnli: mnli has the rates {rates}; say with mnli_rate which run to start from"
        if self.mnli_rate is not None and self.mnli_rate not in rates:
            yield f"mnli_rate {self.mnli_rate:g} is none of mnli's learning rates {rates}"

    @property
    def predicts_test(self) -> bool:
        """Whether test splits, and the diagnostic set beside MNLI, are predicted."""
        return "test" in self.predict

    def rates(self, task: str) -> list[float]:
        """The learning rates that are tried on a task."""
        return self.tasks.get(task, TaskSettings()).learning_rates or self.learning_rates

    @property
    def source_rate(self) -> float:
        """The learning rate of the MNLI cells that others start from."""
        return self.mnli_rate or self.rates("mnli")[0]

    def limit(self, task: str) -> int | None:
        """The rows of train that are used of a task; None for all."""
        return self.tasks.get(task, TaskSettings()).limit

    def hyperparameters(self, task: str, learning_rate: float) -> Hyperparameters:
        """What a cell of the task is trained with at one of its rates."""
        shared = {
            key: getattr(self, key)
            for key in Hyperparameters.model_fields
            if key != "learning_rate"
        }
        own = self.tasks.get(task, TaskSettings()).model_dump(
            exclude={"learning_rates", "limit"}, exclude_none=True
        )
        return Hyperparameters(learning_rate=learning_rate, **shared | own)


class RateSearch(Section):
    """How each arm's learning rate is chosen: by the lowest mean validation loss over `seeds`, the lowest of equals."""

    steps: int = Field(gt=0, le=MOST_STEPS)
    seeds: Seeds = [0]


class PretrainingSettings(Section):
    """Masked-LM pretraining, the same for every arm. Defaults of the optimiser: TUPE's table 2.

    All arms of one seed see the same masks and order. The settings of one `run` are those with one seed and, if there
    is no rate to choose, one rate.
    """

    corpus: Annotated[
        list[Place],
        Field(min_length=1),
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        AfterValidator(distinct),
    ]
    documents: Literal["files", "blank_lines"] = "files"
    segments: Literal["one", "pairs"] = "one"
    start: Literal["scratch", "checkpoint"] = Field("scratch", alias="from")
    tokenizer: Place | None = None
    steps: int = Field(gt=0, le=MOST_STEPS)
    batch_tokens: int = Field(8192, gt=0, le=2**30)
    micro_batch_tokens: int | None = Field(None, gt=0, le=2**30)
    length: int = Field(128, ge=8, le=MOST_POSITIONS)
    mask_probability: float = Field(0.15, gt=0, lt=1)
    learning_rates: LearningRates = [1e-4]
    rate_search: RateSearch | None = None
    schedule: Literal["linear", "trapezoid"] = "linear"
    warmup_ratio: float = Field(0.01, ge=0, le=1)
    decay_share: float | None = Field(None, gt=0, le=1)
    dropout: float | None = Field(None, ge=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    adam_epsilon: float = Field(1e-6, gt=0)
    clip_norm: float = Field(1.0, gt=0)
    seeds: Seeds = [1]
    validation_share: float = Field(0.03, gt=0, lt=1)
    validations: int = Field(10, gt=0, le=10_000)
    checkpoints: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(distinct)] = []
    finetune_checkpoints: bool = False

    def mistakes(self) -> Iterator[str]:
        if late := [step for step in self.checkpoints if step >= self.steps]:
            yield f"checkpoints {late} are not before the last step, {self.steps}, which is always kept"
        for key in ("batch_tokens", "micro_batch_tokens"):
            if (getattr(self, key) or self.length) < self.length:
                yield f"{key} {getattr(self, key)} holds no sequence of length {self.length}"
        if self.tokenizer and self.start != SCRATCH:
            yield "tokenizer is that of each arm's checkpoint; leave it out with from: checkpoint"
        search, rates = self.rate_search, self.learning_rates
        if search is None and len(rates) > 1:
            yield f"several learning_rates {rates} need rate_search: {{steps: N}} to choose for each arm"
        if search and len(rates) == 1:
            yield "rate_search has nothing to choose from; give several learning_rates, or leave it out"
        if search and search.steps > self.steps:
            yield f"rate_search.steps {search.steps} is longer than the training of {self.steps} steps"
        if compared := {*(search.seeds if search else ())} & {*self.seeds}:
            chosen = f"the rate would be chosen on a run of the seeds {self.seeds}; give the search other seeds"
            yield f"rate_search.seeds: {min(compared)} is a seed of the pretraining: {chosen}"
        if self.schedule == "linear" and self.decay_share is not None:
            yield "decay_share belongs to schedule: trapezoid; the linear schedule decays after its warm-up"
        if self.schedule == "trapezoid" and self.decay_share is None:
            yield "schedule: trapezoid needs decay_share, the part of the steps in which the rate falls, such as 0.2"
        if self.warmup_ratio + (self.decay_share or 0.0) > 1:
            yield f"warmup_ratio {self.warmup_ratio:g} and decay_share {self.decay_share:g} are together more than 1"

    @property
    def seed(self) -> int:
        return self.seeds[0]

    @property
    def learning_rate(self) -> float:
        return self.learning_rates[0]

    def run(self, seed: int, rate: float | None = None) -> Self:
        """The settings of the run with one of the seeds, at this rate; without one it may still have to be chosen."""
        chosen = {} if rate is None else {"learning_rates": [rate], "rate_search": None}
        return self.model_copy(update={"seeds": [seed], **chosen})

    def searches(self) -> list[Self]:
        """The settings of each run of the rate search: a whole pretraining of its number of steps, at one rate."""
        if self.rate_search is None:
            return []
        kept = {
            "checkpoints": [],
            "finetune_checkpoints": False,
            "validations": 1,
            "steps": self.rate_search.steps,
        }
        runs = [
            self.run(seed, rate) for rate in self.learning_rates for seed in self.rate_search.seeds
        ]
        return [run.model_copy(update=kept) for run in runs]

    @property
    def rows(self) -> int:
        """Sequences in a batch."""
        return self.batch_tokens // self.length

    @property
    def micro_batch_size(self) -> int:
        """Sequences that are computed at once."""
        return min(self.micro_batch_tokens or self.batch_tokens, self.batch_tokens) // self.length

    @property
    def kept_steps(self) -> list[int]:
        """Steps whose checkpoints are kept, the last one included."""
        return [*sorted(self.checkpoints), self.steps]

    @property
    def finetuned_steps(self) -> list[int]:
        return self.kept_steps if self.finetune_checkpoints else [self.steps]
