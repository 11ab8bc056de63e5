"""The experiment file: YAML to frozen, validated values, and those to cells."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from glue_bench.benchmark.tasks import TRAINABLE
from glue_bench.errors import UserError, unknown
from glue_bench.values import read_mapping

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
SCRATCH = "scratch"


def _distinct(values: list[Any], *, what: str = "values") -> list[Any]:
    twice = {str(value) for value in values if values.count(value) > 1}
    if twice:
        raise ValueError(f"{what} must differ; given twice: {', '.join(sorted(twice))}")
    return values


LearningRates = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1), AfterValidator(_distinct)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what numpy's generator takes


class Section(BaseModel):
    """A part of the experiment file: immutable, and no key that it does not know."""

    # strict: `seeds: "1"` is a mistake, not the number 1.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ScratchEncoder(Section):
    """Sizes of arms that start from fresh weights, and of the WordPiece vocabulary trained for them."""

    vocab_size: int = Field(8000, ge=100)
    hidden_size: int = Field(128, gt=0)
    num_hidden_layers: int = Field(2, gt=0)
    num_attention_heads: int = Field(2, gt=0)
    intermediate_size: int = Field(512, gt=0)
    max_position_embeddings: int = Field(128, gt=0)
    hidden_dropout_prob: float = Field(0.1, ge=0, lt=1)
    attention_probs_dropout_prob: float = Field(0.1, ge=0, lt=1)
    initializer_range: float = Field(0.02, gt=0)

    @model_validator(mode="after")
    def _heads_divide(self) -> "ScratchEncoder":
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        return self


class Arm(Section):
    """One line-up entry: a variant, its options, and the checkpoint it starts from.

    `checkpoint` is a hub id, a folder, an official TUPE file, or `scratch`. `tokenizer` is only needed where the
    checkpoint has none.
    """

    name: Name
    variant: str
    options: dict[str, Any] = {}
    checkpoint: str = Field(min_length=1)
    revision: str | None = None
    tokenizer: str | None = None


class TaskSettings(Section):
    """Hyperparameters of fine-tuning on one task. Unset ones are taken from `finetuning`."""

    learning_rates: LearningRates | None = None
    epochs: int | None = Field(None, gt=0)
    batch_size: int | None = Field(None, gt=0)
    max_length: int | None = Field(None, ge=4)


class Finetuning(Section):
    """How every cell is fine-tuned: TUPE's table 2 unless the file says otherwise."""

    learning_rates: LearningRates = [2e-5, 3e-5, 4e-5, 5e-5]
    epochs: int = Field(10, gt=0)
    batch_size: int = Field(32, gt=0)
    max_length: int = Field(128, ge=4)
    warmup_ratio: float = Field(0.06, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    adam_epsilon: float = Field(1e-6, gt=0)
    clip_norm: float = Field(1.0, gt=0)
    tasks: dict[str, TaskSettings] = {}

    @field_validator("tasks")
    @classmethod
    def _known_tasks(cls, tasks: dict[str, TaskSettings]) -> dict[str, TaskSettings]:
        return {_known_task(name): settings for name, settings in tasks.items()}


class Pretraining(Section):
    """Masked-LM pretraining, the same for every arm. Defaults of the optimiser: TUPE's table 2.

    With `from: scratch` every arm starts from fresh weights of `scratch`; with `from: checkpoint` from its own.
    """

    corpus: Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)]
    start: Literal["scratch", "checkpoint"] = Field("scratch", alias="from")
    tokenizer: str | None = None
    steps: int = Field(gt=0)
    batch_tokens: int = Field(8192, gt=0)
    micro_batch_tokens: int | None = Field(None, gt=0)
    length: int = Field(128, ge=8)
    mask_probability: float = Field(0.15, gt=0, lt=1)
    learning_rate: float = Field(1e-4, gt=0)
    warmup_ratio: float = Field(0.01, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    adam_epsilon: float = Field(1e-6, gt=0)
    clip_norm: float = Field(1.0, gt=0)
    seed: Seed = 1
    validation_share: float = Field(0.01, gt=0, lt=1)
    validations: int = Field(10, gt=0)
    checkpoints: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(_distinct)] = []
    finetune_checkpoints: bool = False

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

    @property
    def rows(self) -> int:
        """Sequences in a batch."""
        return self.batch_tokens // self.length

    @property
    def kept_steps(self) -> list[int]:
        """Steps whose checkpoints are kept, the last one included."""
        return [*sorted(self.checkpoints), self.steps]

    @property
    def finetuned_steps(self) -> list[int]:
        """Steps whose checkpoints are fine-tuned."""
        return self.kept_steps if self.finetune_checkpoints else [self.steps]


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


class Cell(Section):
    """One fine-tuning run = arm x task x learning rate x seed, after `steps` of pretraining where there is one."""

    arm: Arm
    task: str
    hyperparameters: Hyperparameters
    seed: int
    steps: int | None = None

    @property
    def key(self) -> dict[str, Any]:
        """The cell as records name it."""
        pretrained = {} if self.steps is None else {"steps": self.steps}
        return {
            "arm": self.arm.name,
            "variant": self.arm.variant,
            "task": self.task,
            "learning_rate": self.hyperparameters.learning_rate,
            "seed": self.seed,
            **pretrained,
        }


class Experiment(Section):
    """One experiment file. `plugins` are Python files with variants, relative to the current directory."""

    name: Name
    data: str
    arms: list[Arm] = Field(min_length=1)
    tasks: Annotated[list[str], AfterValidator(_distinct)] = Field(list(TRAINABLE), min_length=1)
    seeds: Annotated[list[Seed], AfterValidator(_distinct)] = Field([1, 2, 3, 4, 5], min_length=1)
    plugins: list[str] = []
    scratch: ScratchEncoder = ScratchEncoder()
    pretraining: Pretraining | None = None
    finetuning: Finetuning = Finetuning()

    @field_validator("tasks")
    @classmethod
    def _known_tasks(cls, tasks: list[str]) -> list[str]:
        return [_known_task(task) for task in tasks]

    @field_validator("arms")
    @classmethod
    def _distinct_arms(cls, arms: list[Arm]) -> list[Arm]:
        _distinct([arm.name for arm in arms], what="names")
        return arms

    @model_validator(mode="after")
    def _pretraining_fits(self) -> "Experiment":
        if self.pretraining is None:
            return self
        for arm in self.arms:
            if (arm.checkpoint == SCRATCH) != (self.pretraining.start == SCRATCH):
                raise ValueError(
                    f"arm '{arm.name}' starts from '{arm.checkpoint}', but pretraining is from: "
                    f"{self.pretraining.start}; all arms are pretrained alike"
                )
        longest = self.scratch.max_position_embeddings
        if self.pretraining.start == SCRATCH and self.pretraining.length > longest:
            raise ValueError(f"pretraining.length {self.pretraining.length} exceeds the {longest} positions of scratch")
        return self

    def cells(self) -> Iterator[Cell]:
        """All cells, last checkpoint first and tasks outermost, so that a sweep cut short has whole columns."""
        for steps in self._steps():
            for task in self.tasks:
                for rate in self._settled(task, "learning_rates"):
                    settled = self._hyperparameters(task, rate)
                    for seed in self.seeds:
                        for arm in self.arms:
                            yield Cell(arm=arm, task=task, hyperparameters=settled, seed=seed, steps=steps)

    def _steps(self) -> list[int] | list[None]:
        return [None] if self.pretraining is None else self.pretraining.finetuned_steps[::-1]

    def _hyperparameters(self, task: str, learning_rate: float) -> Hyperparameters:
        per_task = {key: self._settled(task, key) for key in ("epochs", "batch_size", "max_length")}
        shared = ("warmup_ratio", "weight_decay", "adam_epsilon", "clip_norm")
        values = {key: getattr(self.finetuning, key) for key in shared}
        return Hyperparameters(learning_rate=learning_rate, **per_task, **values)

    def _settled(self, task: str, key: str) -> Any:
        own = getattr(self.finetuning.tasks.get(task), key, None)
        return getattr(self.finetuning, key) if own is None else own


def load_experiment(path: str | Path, data: str | None = None, corpus: Sequence[str] = ()) -> Experiment:
    """Read an experiment file; `data` and `corpus` take the place of the file's own sources.

    Raises:
        UserError: no such file, not YAML, or a key, name or type that does not fit: what and where.
    """
    raw = read_mapping(Path(path), Experiment.model_fields)
    return parse_experiment(with_sources(raw, data, corpus), str(path))


def with_sources(raw: Mapping[str, Any], data: str | None, corpus: Sequence[str]) -> dict[str, Any]:
    """An experiment's plain values with another data source, or another text to pretrain on.

    Raises:
        UserError: a corpus is given to an experiment without pretraining.
    """
    changed = dict(raw)
    if data is not None:
        changed["data"] = data
    if corpus:
        if not isinstance(raw.get("pretraining"), Mapping):
            raise UserError("a corpus is given, but the experiment has no `pretraining`")
        changed["pretraining"] = {**raw["pretraining"], "corpus": list(corpus)}
    return changed


def parse_experiment(raw: Mapping[str, Any], where: str = "experiment") -> Experiment:
    """Validate an experiment given as plain values.

    `checkpoint`, `revision` and `tokenizer` at the top stand for every arm that has none; an arm may be just a
    variant's name, and its `name` defaults to its variant.

    Raises:
        UserError: as `load_experiment`.
    """
    try:
        return Experiment.model_validate(_with_defaults(raw))
    except ValidationError as error:
        raise UserError(_explain(error, where)) from error


def _with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    filled = dict(raw)
    shared: dict[str, Any] = {key: filled.pop(key) for key in ("checkpoint", "revision", "tokenizer") if key in filled}
    pretraining = filled.get("pretraining")
    if isinstance(pretraining, dict) and pretraining.get("from", SCRATCH) == SCRATCH:
        shared = {"checkpoint": SCRATCH} | shared
    if isinstance(filled.get("arms"), list):
        filled["arms"] = [_full_arm(arm, shared) for arm in filled["arms"]]
    return filled


def _full_arm(arm: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(arm, str):
        arm = {"variant": arm}
    if not isinstance(arm, dict):
        return arm
    # A revision or tokenizer belongs to the checkpoint beside which it stands.
    inherited = {} if "checkpoint" in arm else shared
    return {"name": arm.get("variant"), **inherited, **arm}


def _known_task(name: str) -> str:
    if name not in TRAINABLE:
        raise ValueError(str(unknown("task", name, TRAINABLE)))
    return name


_SECTIONS: dict[str, type[Section]] = {
    "arms": Arm,
    "scratch": ScratchEncoder,
    "pretraining": Pretraining,
    "finetuning": Finetuning,
}


def _explain(error: ValidationError, where: str) -> str:
    lines = [f"{where}: {_explain_one(dict(problem))}" for problem in error.errors(include_url=False)]
    return "\n".join(lines)


def _explain_one(problem: dict[str, Any]) -> str:
    *parents, key = problem["loc"] or ("experiment",)
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        fields = _section_of(parents).model_fields
        keys = [field.alias or name for name, field in fields.items()]
        return str(unknown("key", str(key), keys, ".".join(map(str, parents))))
    if problem["type"] == "missing":
        return f"missing key '{place}'"
    message = problem["msg"].removeprefix("Value error, ")
    given = problem["input"]
    shown = "" if isinstance(given, dict | list) or problem["type"] == "value_error" else f", not {given!r}"
    return f"{place}: {message[0].lower()}{message[1:]}{shown}"


def _section_of(parents: list[Any]) -> type[Section]:
    if parents[:2] and parents[0] == "finetuning" and "tasks" in parents:
        return TaskSettings
    return _SECTIONS.get(parents[0], Experiment) if parents else Experiment
