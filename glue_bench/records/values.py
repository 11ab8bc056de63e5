"""What is on disk, as frozen values: what is asked for, what is run, and what comes of it."""

from typing import Any, ClassVar, Literal

from pydantic import Field, field_serializer

from glue_bench.config import Experiment
from glue_bench.errors import format_duration
from glue_bench.records.base import Digest, Lines, Place, Scores, Sealed, Text, Value, Whole, Word
from glue_bench.records.environment import Environment
from glue_bench.records.jobs import Cell, Job, Pretraining


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

    def cost(self, job: Job) -> float:
        """The expected operations of a job's training: tokens x operations a token."""
        return job.tokens(self.tokens) * (self.arms[job.arm].flops_per_token or 0)


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

    ok: ClassVar[Literal[True]] = True
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

    def describe(self) -> str:
        """Its scores x 100, and how long it took."""
        parts = []
        for split, values in self.scores.items():
            metric, value = next(iter(values.items()))
            place = f" {split.removeprefix('validation_')}" if len(self.scores) > 1 else ""
            parts.append(f"{metric}{place} {'NaN' if value is None else f'{100 * value:.2f}'}")
        answers = " (one answer to everything)" if self.collapsed else ""
        return f"{', '.join(parts)}{answers}, {format_duration(self.seconds)}"


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

    ok: ClassVar[Literal[True]] = True
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

    def describe(self) -> str:
        """Its loss, and how long it took."""
        loss = self.validation_loss
        text = "diverged" if loss is None else f"validation loss {loss:.3f}"
        return f"{text}, {format_duration(self.seconds)}"


class Failure(Value):
    """Why the last attempt of a job failed. `lost`: its worker ended without a word, or was silent for too long."""

    ok: ClassVar[Literal[False]] = False
    id: Word
    error: Lines
    traceback: Lines = ""
    environment: Environment = Environment()
    lost: bool = False

    def describe(self) -> str:
        """That it failed, and why."""
        return f"FAILED {self.error}"

    def file(self) -> bytes:
        """The content of its file."""
        return self.model_dump_json(indent=1, exclude_none=True).encode()


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
"""What comes of a job. It is `ok`, or a failure; `describe` says it in a few words."""
