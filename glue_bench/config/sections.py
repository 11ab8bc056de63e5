"""The sections of an experiment file, frozen and validated."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    field_validator,
    model_serializer,
    model_validator,
)

from glue_bench.data.tasks import TRAINABLE, find_task
from glue_bench.errors import UserError, unknown

MOST_NAME = 100
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=MOST_NAME)]
"""What files and folders are called by: they may have 255 bytes, of which ids and endings take up to 120."""
Place = Annotated[str, StringConstraints(min_length=1)]
"""A file, a folder, a URL, or a name of the hub."""
# Upper bounds are far beyond any encoder or run there is. What exceeds them would end in an error of memory, or of a
# library, only after work has been done.
MOST_TOKENS, MOST_POSITIONS, MOST_STEPS, MOST_PARAMETERS = 10**6, 2**17, 10**9, 10**10
SCRATCH = "scratch"
NATIVE = "native"
"""In the place of a variant: the checkpoint's own model as transformers has it, nothing of it changed."""
AS_PUBLISHED = "as published"
"""The origin of native arms."""


def distinct(values: list[Any], *, what: str = "values") -> list[Any]:
    twice = {str(value) for value, count in Counter(values).items() if count > 1}
    if twice:
        raise ValueError(f"{what} must differ; given twice: {', '.join(sorted(twice))}")
    return values


def known_tasks(names: Iterable[str]) -> list[str]:
    """The tasks of these names, as GLUE writes them."""
    found = []
    for name in names:
        try:
            task = find_task(name).name
        except UserError:
            task = ""
        if task not in TRAINABLE:
            raise ValueError(str(unknown("task", name, TRAINABLE)))
        found.append(task)
    return distinct(found)


LearningRates = Annotated[list[Annotated[float, Field(gt=0, le=100)]], Field(min_length=1), AfterValidator(distinct)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what numpy's generator takes


class Brief(BaseModel):
    """A value whose dump leaves out the fields `left_out` where they have their defaults."""

    left_out: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {
            name: value
            for name, value in dump(self).items()
            if name not in self.left_out or value != fields[name].default
        }


class Section(BaseModel):
    """A part of the experiment file: immutable, and no key that it does not know."""

    # strict: `seeds: "1"` is a mistake, not the number 1.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ScratchEncoder(Section):
    """Sizes of arms that start from fresh weights, and of the WordPiece vocabulary trained for them.

    `norm_first` and `gated` make the blocks of recent encoders of BERT's: LayerNorm comes before attention and
    feed-forward layers, and these are GeGLU. False ones are not written, so that ids stay as they were.
    """

    vocab_size: int = Field(8000, ge=100, le=MOST_TOKENS)
    hidden_size: int = Field(128, gt=0, le=2**14)
    num_hidden_layers: int = Field(2, gt=0, le=2**8)
    num_attention_heads: int = Field(2, gt=0, le=2**8)
    intermediate_size: int = Field(512, gt=0, le=2**16)
    max_position_embeddings: int = Field(128, gt=0, le=MOST_POSITIONS)
    hidden_dropout_prob: float = Field(0.1, ge=0, lt=1)
    attention_probs_dropout_prob: float = Field(0.1, ge=0, lt=1)
    initializer_range: float = Field(0.02, gt=0, le=1)
    norm_first: bool = False
    gated: bool = False

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in write(self).items() if value is not False}

    @model_validator(mode="after")
    def _heads_divide(self) -> "ScratchEncoder":
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        inner = (2 + self.gated) * self.intermediate_size
        blocks = self.num_hidden_layers * self.hidden_size * (4 * self.hidden_size + inner)
        if blocks + self.hidden_size * (self.vocab_size + self.max_position_embeddings) > MOST_PARAMETERS:
            raise ValueError(f"an encoder of these sizes has more than {MOST_PARAMETERS:.0e} parameters")
        return self


class Arm(Section):
    """One line-up entry: a variant, its options, and the checkpoint it starts from.

    `checkpoint` is a hub id, a folder, an official TUPE file, or `scratch`. `tokenizer` is only needed where the
    checkpoint has none. `embedding_size` is the width of the tables of an arm from scratch where it is not the hidden
    size; the encoder projects them to it.
    """

    name: Name
    variant: str
    options: dict[str, Any] = {}
    checkpoint: Place
    revision: Place | None = None
    tokenizer: Place | None = None
    embedding_size: int | None = Field(None, gt=0, le=2**14)

    @model_validator(mode="after")
    def _tables_are_fresh(self) -> "Arm":
        if self.embedding_size is not None and self.checkpoint != SCRATCH:
            raise ValueError(
                f"embedding_size is of an arm from scratch; the tables of '{self.checkpoint}' have their own width"
            )
        return self

    @model_validator(mode="after")
    def _revision_of_a_hub_id(self) -> "Arm":
        if self.revision is not None and self.checkpoint == SCRATCH:
            raise ValueError(f"revision is of a hub id; an arm from {SCRATCH} has none")
        return self

    @model_validator(mode="after")
    def _native_as_it_is(self) -> "Arm":
        if self.variant == NATIVE and (self.checkpoint == SCRATCH or self.options):
            wrong = "options" if self.options else f"checkpoint '{SCRATCH}'"
            raise ValueError(f"variant {NATIVE} takes a checkpoint as it is published; it knows no {wrong}")
        return self


class TaskSettings(Section):
    """Hyperparameters of fine-tuning on one task. Unset ones are taken from `finetuning`."""

    learning_rates: LearningRates | None = None
    epochs: int | None = Field(None, gt=0, le=10_000)
    batch_size: int | None = Field(None, gt=0, le=2**16)
    max_length: int | None = Field(None, ge=4, le=MOST_POSITIONS)


class Resources(Section):
    """What one cell takes of a machine where cells run side by side: CPUs, which are its threads, and share of GPUs.

    A cell, or a pretraining between two points of its loss curve, that takes `give_up_after` times as long as expected
    is given up on its worker (`sweep/patience.py`); None: never.
    """

    cpus: int = Field(1, gt=0, le=1024)  # more than any machine has
    gpus: float = Field(0.0, ge=0, le=1024)
    give_up_after: float | None = Field(20.0, gt=1)

    @field_validator("gpus")
    @classmethod
    def _shared_or_whole(cls, gpus: float) -> float:
        if gpus > 1 and not gpus.is_integer():
            raise ValueError(f"gpus {gpus:g} is neither a share of one GPU nor a whole number")
        return gpus

    def fitting(self, gpus: float) -> int:
        """How many cells so many GPUs have room for. A cell's share is one of a single GPU."""
        return int(gpus) * int(1 / self.gpus) if self.gpus < 1 else int(gpus / self.gpus)


FROM_MNLI = ("rte", "mrpc", "stsb")
"""What others start from their MNLI model (RoBERTa, DeBERTa, ModernBERT)."""


class Finetuning(Section):
    """How every cell is fine-tuned: TUPE's table 2 unless the file says otherwise.

    With `max_steps` a run ends after so many updates, if its epochs have more. `held_out_share` of each training set is
    kept out of training and scored after every epoch. Tasks of `from_mnli` start from the encoder of the arm's own MNLI
    run with the same seed, at `mnli_rate` where MNLI has several rates. `predict` says which splits are predicted in
    the end; test splits, which a submission reads, cost time alone. With `predictions: float16` logits are rounded
    before they are scored and stored, which halves what a cell leaves. With `order` what a cell has learnt is also
    scored on validation sets whose words are shuffled. With `keep` fine-tuned models stay on the disk: of all runs, or
    of each arm and task that of the run which a submission takes.
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
    from_mnli: Annotated[list[str], AfterValidator(known_tasks)] = Field([])
    mnli_rate: float | None = Field(None, gt=0)
    order: bool = False
    predict: Annotated[list[Literal["validation", "test"]], AfterValidator(distinct)] = Field(["validation"])
    predictions: Literal["float16"] | None = None
    keep: Literal["best", "all"] | None = None
    tasks: dict[str, TaskSettings] = {}

    @field_validator("predict")
    @classmethod
    def _validation_is_scored(cls, splits: list[str]) -> list[str]:
        if "validation" not in splits:
            raise ValueError("validation is always predicted; give [validation] or [validation, test]")
        return splits

    @property
    def predicts_test(self) -> bool:
        """Whether test splits, and the diagnostic set beside MNLI, are predicted."""
        return "test" in self.predict

    @field_validator("from_mnli")
    @classmethod
    def _may_start_from_mnli(cls, tasks: list[str]) -> list[str]:
        for task in tasks:
            if task not in FROM_MNLI:
                raise ValueError(f"'{task}' cannot start from MNLI; those that can: {', '.join(FROM_MNLI)}")
        return tasks

    @field_validator("tasks")
    @classmethod
    def _known_tasks(cls, tasks: dict[str, TaskSettings]) -> dict[str, TaskSettings]:
        return dict(zip(known_tasks(tasks), tasks.values(), strict=True))
