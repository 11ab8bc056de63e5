"""What is on disk, as frozen values: what is asked for, what is run, and what comes of it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, field_serializer, model_validator

from glue_bench.config import Experiment, Hyperparameters, PretrainingSettings
from glue_bench.data.tasks import TRAINABLE
from glue_bench.files import read_file
from glue_bench.records.base import NAME, Digest, Lines, Place, Scores, Sealed, Text, Value, Whole, Word
from glue_bench.records.environment import Environment

COMPUTES = 1
"""Part of every id. Raise it when the same settings give other bits: then everything counts as not run yet."""


class Work(Value):
    """What cells and pretrainings have in common: what decides them.

    The `id` ends in twelve digits of the SHA-256 of all fields but NOT_HASHED, and of COMPUTES. It is made when none is
    given; `model_copy` keeps it. `options` are those of the variant that differ from their defaults, `plugin` is the
    digest of the source of a variant of the user's own.
    `checkpoint` is what the arm starts from before any pretraining: the digest of its files, or the sizes of fresh
    weights. `origin` says how the weights come to be that the arm's cells start from. Beside these fields, `after` are
    the ids of the jobs that have to end before it, and `label` is it in words.
    """

    NOT_HASHED: ClassVar[Mapping[str, Any]] = {"id": True, "origin": True}
    id: Annotated[str, StringConstraints(pattern=f"^$|^{NAME}", max_length=240)] = ""
    arm: Word
    variant: Word
    options: dict[str, Any] = Field({})
    plugin: Digest | None = None
    tokenizer: Digest
    checkpoint: Text
    origin: Literal["pretrained", "adapted", "grafted", "scratch", "as published"]

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
    def hashed(self) -> dict[str, Any]:
        """The fields that decide the result."""
        return self.document(exclude=self.NOT_HASHED)

    @property
    def true_id(self) -> str:
        """The id that follows from the fields."""
        text = json.dumps({**self.hashed, "computes": COMPUTES}, sort_keys=True)
        return f"{self.slug}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Cell(Work):
    """One fine-tuning run, with all that decides its result.

    `data` is the digest of all rows of the task that the run may see. It starts from the `pretraining` of this id after
    so many `steps`, or from the encoder of the cell `mnli`.
    """

    kind: ClassVar = "cells"
    task: Annotated[str, StringConstraints(pattern=f"^({'|'.join(TRAINABLE)})$")]
    data: Digest
    settings: Hyperparameters
    seed: Whole
    pretraining: Word | None = None
    pretraining_seed: Whole | None = None
    steps: Whole | None = None
    mnli: Word | None = None

    @property
    def after(self) -> tuple[str, ...]:
        return tuple(name for name in (self.pretraining, self.mnli) if name)

    @property
    def slug(self) -> str:
        pretraining = "" if self.pretraining_seed in (None, 1) else f"-p{self.pretraining_seed}"
        steps = "" if self.steps is None else f"{pretraining}-step{self.steps}"
        return f"{self.arm}-{self.task}-lr{self.settings.learning_rate:g}-s{self.seed}{steps}"

    @property
    def key(self) -> dict[str, Any]:
        """What tells a cell of a plan from the others, as `--only` and tables name it."""
        pretrained = {"steps": self.steps, "pretraining_seed": self.pretraining_seed} if self.steps else {}
        rate, of_arm = self.settings.learning_rate, {"arm": self.arm, "variant": self.variant}
        return {**of_arm, "task": self.task, "learning_rate": rate, "seed": self.seed, **pretrained}

    @property
    def label(self) -> str:
        steps = "" if self.steps is None else f" after {self.steps} steps"
        steps += "" if self.pretraining_seed in (None, 1) else f" of seed {self.pretraining_seed}"
        return f"{self.arm}{steps} on {self.task}, rate {self.settings.learning_rate:g}, seed {self.seed}"


class Pretraining(Work):
    """One pretraining = arm x seed, or a run of the search for its rate, with all that decides its weights.

    `packing` is the version of how sequences are cut from the text. `settings` are those of this run alone, with one
    seed; not hashed are those that decide no weights, or whose content is hashed in their place. `parts` is how many
    tokens are computed at once, if that decides the weights: with dropout.
    `searches` are the runs that its rate is chosen from, `rate` is the chosen one: before that it has no
    `learning_rate`. A run of a search keeps no weights.
    """

    kind: ClassVar = "pretrainings"
    NOT_HASHED: ClassVar[Mapping[str, Any]] = {
        "id": True,
        "origin": True,
        "rate": True,
        "settings": {"corpus", "tokenizer", "checkpoints", "finetune_checkpoints", "validations", "micro_batch_tokens"},
    }
    corpus: Digest
    packing: Whole
    settings: PretrainingSettings
    parts: Whole | None = None
    searches: tuple[Word, ...] = ()
    is_search: bool = False
    rate: float | None = None

    @property
    def after(self) -> tuple[str, ...]:
        return self.searches

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def learning_rate(self) -> float | None:
        return self.rate or (None if self.settings.rate_search else self.settings.learning_rate)

    @property
    def label(self) -> str:
        if self.is_search:
            return f"{self.arm}, rate {self.learning_rate:g} for {self.settings.steps:,} steps, seed {self.seed}"
        return self.arm if self.seed == 1 else f"{self.arm}, seed {self.seed}"


Job = Cell | Pretraining


class Shape(Value):
    """What arms share if tables rank them together: sizes, and the blocks if they are not BERT's."""

    num_hidden_layers: Whole
    hidden_size: Whole
    num_attention_heads: Whole
    intermediate_size: Whole
    embedding_size: Whole
    vocab_size: Whole
    norm_first: bool | None = None
    gated: bool | None = None


class ArmFacts(Value):
    """What an arm is (`summary`: its variant in words) and costs, as `model.checks.budget` has it."""

    summary: Text
    shape: Shape | None = None
    parameters: Whole | None = None
    non_embedding_parameters: Whole | None = None
    added_over_add: Whole | None = None
    flops_per_token: Whole | None = None
    length: Whole | None = None


class TaskFacts(Value):
    """The data of a task: where they are from, the digest of their content, and whether official rows are missing.

    Of partial data `rows` has the examples of each split. `differences` says of splits with the official number of rows
    how their content differs from the official one, and `unchecked` names those whose official digest is not known, so
    that their content could not be compared; both are None where there is no such split. `revision` is that of the hub,
    if it is known. `labels` is the `arrays_digest` of the file of labels, which `Store.write_plan` fills in. `predicts`
    are the test splits that its cells are asked to predict, and `diagnostic` is the digest of AX, if that is one of
    them.
    """

    source: Text
    digest: Digest
    partial: bool = False
    rows: dict[Word, Whole] = Field({})
    differences: dict[Word, Text] | None = None
    unchecked: tuple[Word, ...] | None = None
    revision: Text | None = None
    labels: Digest | None = None
    predicts: tuple[Word, ...] | None = None
    diagnostic: Digest | None = None


class Plan(Sealed):
    """The cells and pretrainings that an experiment asks for: its `jobs`, each after those that it starts from.

    `experiment` is the file without the places of data, text and plugins. `tokens` is about how many tokens a cell of
    each task trains on.
    """

    experiment: Experiment
    arms: dict[Word, ArmFacts]
    tasks: dict[Word, TaskFacts]
    tokens: dict[Word, Whole]
    pretrainings: tuple[Pretraining, ...] = ()
    cells: tuple[Cell, ...]

    @field_serializer("experiment")
    def _whole(self, experiment: Experiment) -> dict[str, Any]:
        return experiment.model_dump(mode="json", by_alias=True)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (*self.pretrainings, *self.cells)


class Epoch(Value):
    epoch: Whole
    train_loss: float
    scores: Scores


class Record(Sealed):
    """A finished cell. `scores` and `collapsed` are those after its last epoch.

    `collapsed` are the splits on which it gave one answer to everything. `order` is always empty; the digests of the
    committed results cover it. `training_seconds` are those of training steps alone. `micro_batch_size` is set where
    memory was too short for whole batches, `precision` where it is not that of the environment. `diagnostic` is the
    digest of the diagnostic set (AX), if that was predicted. `started_from` is the `weights_digest` of the encoder that
    it started from (None: fresh weights, or a committed result, older than this field), and `weights` that of its own
    encoder, on MNLI or if its model is kept. `Store.write` fills in the `arrays_digest` of its `logits` and `tests`,
    and the SHA-256 of the files of its `model`.
    """

    scores: Scores
    history: tuple[Epoch, ...]
    collapsed: tuple[Word, ...] = ()
    order: dict[str, Any] = Field({}, max_length=0)
    seconds: float
    training_seconds: float | None = None
    training_tokens: Whole
    parameters: Whole
    graft_is_exact: bool | None = None
    variance_kept: dict[str, float] = Field({})
    micro_batch_size: Whole | None = None
    precision: Text | None = None
    diagnostic: Digest | None = None
    started_from: Digest | None = None
    weights: Digest | None = None
    environment: Environment
    cell: Cell
    logits: Digest | None = None
    tests: Digest | None = None
    model: dict[Place, Digest] | None = None

    @property
    def job(self) -> Cell:
        return self.cell


class LossPoint(Value):
    step: Whole
    tokens: Whole
    train_loss: float
    validation_loss: float | None = None
    seconds: float


class Measure(Value):
    """A measure of a pretrained encoder over `n` sequences: a loss or its rise in nats, or a share from 0 to 1."""

    name: Word
    value: float
    standard_error: float | None = None
    n: Whole


class PretrainingRecord(Sealed):
    """A finished pretraining, its `rate` the one that its search has chosen: what it cost, and its loss curve.

    `stream` is a hash over all that the arm was shown, in order; `segment_pairs` the share of the training sequences
    that had two segments. A run of a search that diverged has no `validation_loss`. `micro_batch_tokens` were computed
    at once in the end. `weights` has by step the `weights_digest` of the encoder in its checkpoint; None for searches
    and in committed results, which are older than this field. `measures` are those of the last checkpoint, taken on
    `measure_tokens` tokens of validation text; empty for searches. `piece_losses` and `sums` are the `arrays_digest` of
    the arrays beside it, which `Store.write` fills in.
    """

    steps: Whole
    tokens: Whole
    seconds: float
    tokens_per_second: float | None = None
    peak_memory_bytes: Whole | None = None
    stream: Text
    train_loss: float | None = None
    validation_loss: float | None = None
    validation_tokens: Whole | None = None
    corpus_tokens: Whole | None = None
    losses: tuple[LossPoint, ...]
    segment_pairs: float = 0.0
    micro_batch_tokens: Whole | None = None
    weights: dict[Whole, Digest] | None = None
    environment: Environment
    pretraining: Pretraining
    measures: tuple[Measure, ...] = ()
    measure_tokens: Whole | None = None
    piece_losses: Digest | None = None
    sums: Digest | None = None

    @property
    def job(self) -> Pretraining:
        return self.pretraining


class Failure(Value):
    """Why the last attempt of a job failed. `lost`: its worker ended without a word, or was silent for too long."""

    id: Word
    error: Lines
    traceback: Lines = ""
    environment: Environment = Environment()
    lost: bool = False

    def file(self) -> bytes:
        """The content of its file."""
        return self.model_dump_json(indent=1, exclude_none=True).encode()

    @classmethod
    def of(cls, path: Path) -> Self:
        """The one in a file; of a file that cannot be read, that."""
        try:
            return cls.read(read_file(path))
        except (OSError, ValueError) as error:
            return cls(id=path.stem, error=f"failures/{path.name} cannot be read: {type(error).__name__}")


class Progress(Value):
    """How far a job under way is. Times are seconds since 1970, `worker` is host:pid; no `steps` before training."""

    id: Word
    worker: Text
    began: float
    updated: float
    step: Whole = 0
    steps: Whole | None = None
    loss: float | None = None


Result = Record | PretrainingRecord | Failure
"""What comes of a job."""
