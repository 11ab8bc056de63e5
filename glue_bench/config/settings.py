"""The sections of an experiment file that say how cells are fine-tuned and arms are pretrained."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from glue_bench.config.section import Section, SectionWithNewKeys
from glue_bench.data.tasks import find_task, trainable_tasks
from glue_bench.errors import MistakesError, UserError

# Upper bounds are far beyond any encoder or run there is. A larger value would end in an error of
# memory, or of a library, only after work has been done.
MAX_CHARACTERS = 4096
MAX_POSITIONS = 2**17
MAX_STEPS = 10**9
MAX_LIMIT = 10**9
SCRATCH = "scratch"
MAX_FINETUNING_RATE = 1.0


def distinct(values: list[Any], key: Callable[[Any], Any] = str) -> list[Any]:
    """Return the values. Raises ValueError if `key` gives the same for two of them."""
    counts = Counter(key(value) for value in values)
    repeated = sorted(text for text, count in counts.items() if count > 1)
    if repeated:
        raise ValueError(f"values must differ; given twice: {', '.join(repeated)}")
    return values


OWN_TASK_HINT = "; a task of your own is described in a file: --task FILE.yaml"


def known_tasks(names: Iterable[str], *, with_own: bool = True) -> list[str]:
    """Find the tasks by their names in any spelling.

    Raises ValueError for a name that no task has, and for a task that is given twice.
    """
    permitted = trainable_tasks(with_own=with_own)
    tasks: list[str] = []
    mistakes: list[str] = []
    for name in names:
        try:
            tasks.append(find_task(name, permitted).name)
        except UserError as error:
            hint = "" if "did you mean" in str(error) else OWN_TASK_HINT
            mistakes.append(f"{error}{hint}")
    if mistakes:
        raise MistakesError(mistakes)
    return distinct(tasks)


Place = Annotated[
    str, StringConstraints(max_length=MAX_CHARACTERS, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
"""A file, a folder, a URL, or a name of the hub: a line that is not empty."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what numpy's generator takes
Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(distinct)]
LearningRate = Annotated[float, Field(gt=0, le=100)]
LearningRates = Annotated[list[LearningRate], Field(min_length=1), AfterValidator(distinct)]
FromMnli = Literal["rte", "mrpc", "stsb"]
"""The tasks that RoBERTa, DeBERTa and ModernBERT start from their MNLI model."""


class Hyperparameters(Section):
    """The settled values that one cell is trained with."""

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
        """Count the updates of an epoch that reads `rows` rows; the last batch may be smaller."""
        return math.ceil(rows / self.batch_size)

    def steps(self, in_epoch: int) -> int:
        """Count the updates of a run whose epochs have `in_epoch` updates."""
        steps = in_epoch * self.epochs
        return steps if self.max_steps is None else min(steps, self.max_steps)


class Evaluation(Section):
    """The settled values that decide what a finished model predicts. Nothing is trained."""

    learning_rate: ClassVar[float] = 0.0
    held_out_share: ClassVar[None] = None

    max_length: int
    batch_size: int | None = None
    predictions: Literal["float16"] | None = None


class TaskSettings(SectionWithNewKeys):
    """Hyperparameters of fine-tuning on one task; `finetuning` gives those that are not set."""

    written_if_set = frozenset({"warmup_ratio", "weight_decay"})

    learning_rates: LearningRates | None = None
    epochs: int | None = Field(None, gt=0, le=10_000)
    batch_size: int | None = Field(None, gt=0, le=2**16)
    max_length: int | None = Field(None, ge=4, le=MAX_POSITIONS)
    warmup_ratio: float | None = Field(None, ge=0, le=1)
    weight_decay: float | None = Field(None, ge=0)
    limit: int | None = Field(None, ge=2, le=MAX_LIMIT)


def by_task_name(settings: dict[str, TaskSettings]) -> dict[str, TaskSettings]:
    """Return settings of tasks by GLUE's own names. Raises ValueError as `known_tasks` does."""
    names = known_tasks(settings)
    return dict(zip(names, settings.values(), strict=True))


class Finetuning(SectionWithNewKeys):
    """How every cell is fine-tuned: TUPE's table 2 unless the file says otherwise.

    `predict` and `keep` change no score. `predictions: float16` halves what a cell leaves.
    `evaluation_batch_size` is of finished models alone.
    """

    written_if_set = frozenset({"evaluation_batch_size"})

    learning_rates: LearningRates = Field([2e-5, 3e-5, 4e-5, 5e-5])
    epochs: int = Field(10, gt=0, le=10_000)
    batch_size: int = Field(32, gt=0, le=2**16)
    max_length: int = Field(128, ge=4, le=MAX_POSITIONS)
    warmup_ratio: float = Field(0.06, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    adam_epsilon: float = Field(1e-6, gt=0)
    clip_norm: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, gt=0, le=MAX_STEPS)
    held_out_share: float | None = Field(None, gt=0, le=0.5)
    from_mnli: Annotated[list[FromMnli], AfterValidator(distinct)] = Field([])
    mnli_rate: float | None = Field(None, gt=0)
    predict: Annotated[list[Literal["validation", "test"]], AfterValidator(distinct)] = Field(
        ["validation"]
    )
    predictions: Literal["float16"] | None = None
    keep: Literal["best", "all"] | None = None
    evaluation_batch_size: int | None = Field(None, gt=0, le=2**16)
    tasks: Annotated[dict[str, TaskSettings], AfterValidator(by_task_name)] = Field({})

    def mistakes(self) -> Iterator[str]:
        all_rates = set(self.learning_rates)
        for settings in self.tasks.values():
            all_rates.update(settings.learning_rates or [])
        for rate in sorted(all_rates):
            if rate > MAX_FINETUNING_RATE:
                yield f"learning rate {rate:g} is above 1; did you mean {rate:g}e-5?"
        if "validation" not in self.predict:
            yield "predict: validation is always predicted; give [validation] or [validation, test]"
        mnli_rates = self.rates("mnli")
        if self.mnli_rate is not None and not self.from_mnli:
            yield "mnli_rate needs from_mnli, the tasks that start from that run"
        if self.from_mnli and self.mnli_rate is None and len(mnli_rates) > 1:
            yield (
                f"from_mnli: mnli has the rates {mnli_rates}; "
                "say with mnli_rate which run to start from"
            )
        if self.mnli_rate is not None and self.mnli_rate not in mnli_rates:
            yield f"mnli_rate {self.mnli_rate:g} is none of mnli's learning rates {mnli_rates}"

    @property
    def predicts_test(self) -> bool:
        """Whether test splits, and the diagnostic set beside MNLI, are predicted."""
        return "test" in self.predict

    def rates(self, task: str) -> list[float]:
        """Return the learning rates that are tried on a task."""
        return self._settings_of(task).learning_rates or self.learning_rates

    @property
    def source_rate(self) -> float:
        """The learning rate of the MNLI cells that others start from."""
        return self.mnli_rate or self.rates("mnli")[0]

    def limit(self, task: str) -> int | None:
        """Return how many training rows of a task are used; None for all."""
        return self._settings_of(task).limit

    def _settings_of(self, task: str) -> TaskSettings:
        return self.tasks.get(task, TaskSettings())

    def hyperparameters(self, task: str, learning_rate: float) -> Hyperparameters:
        """Return the values that a cell of the task is trained with at one of its rates."""
        keys = Hyperparameters.model_fields.keys() - {"learning_rate"}
        values = {key: getattr(self, key) for key in keys}
        task_settings = self._settings_of(task)
        values |= task_settings.model_dump(exclude={"learning_rates", "limit"}, exclude_none=True)
        return Hyperparameters(learning_rate=learning_rate, **values)

    def evaluation(self, task: str) -> Evaluation:
        """Return the values with which finished models predict a task."""
        return Evaluation(
            max_length=self.hyperparameters(task, 0.0).max_length,
            batch_size=self.evaluation_batch_size,
            predictions=self.predictions,
        )


class RateSearch(Section):
    """A search for each arm's learning rate.

    The rate with the lowest mean validation loss over `seeds` wins; of equal ones the lowest rate.
    """

    steps: int = Field(gt=0, le=MAX_STEPS)
    seeds: Seeds = Field([0])


class PretrainingSettings(Section):
    """Masked-LM pretraining, the same for every arm. Defaults of the optimiser: TUPE's table 2.

    All arms of one seed see the same masks and order. `run(seed)` gives the settings of one run,
    which have one seed and, unless the rate is still to be chosen, one rate.
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
    steps: int = Field(gt=0, le=MAX_STEPS)
    batch_tokens: int = Field(8192, gt=0, le=2**30)
    micro_batch_tokens: int | None = Field(None, gt=0, le=2**30)
    length: int = Field(128, ge=8, le=MAX_POSITIONS)
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
    seeds: Seeds = Field([1])
    validation_share: float = Field(0.03, gt=0, lt=1)
    validations: int = Field(10, gt=0, le=10_000)
    checkpoints: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(distinct)] = Field([])
    finetune_checkpoints: bool = False

    def mistakes(self) -> Iterator[str]:
        late = [step for step in self.checkpoints if step >= self.steps]
        if late:
            yield (
                f"checkpoints {late} are not before the last step, {self.steps}, "
                "which is always kept"
            )
        for key in ("batch_tokens", "micro_batch_tokens"):
            tokens = getattr(self, key)
            if tokens and tokens < self.length:
                yield f"{key} {tokens} holds no sequence of length {self.length}"
        if self.tokenizer and self.start != SCRATCH:
            yield "tokenizer is that of each arm's checkpoint; leave it out with from: checkpoint"
        yield from self._mistakes_of_rates()
        yield from self._mistakes_of_schedule()

    def _mistakes_of_rates(self) -> Iterator[str]:
        """Yield a line for each mistake about `learning_rates` and the search among them."""
        search = self.rate_search
        if search is None:
            if len(self.learning_rates) > 1:
                yield (
                    f"several learning_rates {self.learning_rates} need rate_search: {{steps: N}} "
                    "to choose for each arm"
                )
            return

        if len(self.learning_rates) == 1:
            yield (
                "rate_search has nothing to choose from; "
                "give several learning_rates, or leave it out"
            )
        if search.steps > self.steps:
            yield (
                f"rate_search.steps {search.steps} is longer than the training of "
                f"{self.steps} steps"
            )

        shared_seeds = set(search.seeds) & set(self.seeds)
        if shared_seeds:
            yield (
                f"rate_search.seeds: {min(shared_seeds)} is a seed of the pretraining: the rate "
                f"would be chosen on a run of the seeds {self.seeds}; give the search other seeds"
            )

    def _mistakes_of_schedule(self) -> Iterator[str]:
        """Yield a line for each setting that does not go with the schedule."""
        if self.schedule == "linear" and self.decay_share is not None:
            yield (
                "decay_share belongs to schedule: trapezoid; "
                "the linear schedule decays after its warm-up"
            )
        if self.schedule == "trapezoid" and self.decay_share is None:
            yield (
                "schedule: trapezoid needs decay_share, the part of the steps in which the rate "
                "falls, such as 0.2"
            )
        if self.warmup_ratio + (self.decay_share or 0.0) > 1:
            yield (
                f"warmup_ratio {self.warmup_ratio:g} and decay_share {self.decay_share:g} "
                "are together more than 1"
            )

    @property
    def seed(self) -> int:
        return self.seeds[0]

    @property
    def learning_rate(self) -> float:
        return self.learning_rates[0]

    def run(self, seed: int, rate: float | None = None) -> Self:
        """Return the settings of one seed's run.

        Args:
            seed: One of the seeds.
            rate: The rate of the run. Without it the settings keep their rates and their search.
        """
        changes: dict[str, Any] = {"seeds": [seed]}
        if rate is not None:
            changes["learning_rates"] = [rate]
            changes["rate_search"] = None
        return self.model_copy(update=changes)

    def searches(self) -> list[Self]:
        """Return the settings of each run of the rate search.

        Each is a complete pretraining of the search's number of steps, at one rate.
        """
        if self.rate_search is None:
            return []
        changes = {
            "checkpoints": [],
            "finetune_checkpoints": False,
            "validations": 1,
            "steps": self.rate_search.steps,
        }
        runs = []
        for rate in self.learning_rates:
            for seed in self.rate_search.seeds:
                run = self.run(seed, rate)
                runs.append(run.model_copy(update=changes))
        return runs

    @property
    def rows(self) -> int:
        """The number of sequences in a batch."""
        return self.batch_tokens // self.length

    @property
    def micro_batch_size(self) -> int:
        """The number of sequences that are computed at once."""
        tokens = self.micro_batch_tokens or self.batch_tokens
        return min(tokens, self.batch_tokens) // self.length

    @property
    def kept_steps(self) -> list[int]:
        """The steps whose checkpoints are kept, the last step included."""
        return [*sorted(self.checkpoints), self.steps]

    @property
    def finetuned_steps(self) -> list[int]:
        return self.kept_steps if self.finetune_checkpoints else [self.steps]
