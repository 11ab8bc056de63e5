"""The values on disk: what is asked for, what is run, and the results. All of them are frozen."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_serializer, model_validator

from glue_bench.config import Experiment
from glue_bench.data.tasks import KNOWN
from glue_bench.errors import format_duration
from glue_bench.records.base import Digest, Lines, Place, Scores, Sealed, Text, Value, Whole, Word
from glue_bench.records.environment import Environment
from glue_bench.records.jobs import Cell, Job, Pretraining


class Shape(Value):
    """The sizes that arms must share to be ranked together, and their blocks if not BERT's."""

    num_hidden_layers: Whole
    hidden_size: Whole
    num_attention_heads: Whole
    intermediate_size: Whole
    embedding_size: Whole
    vocab_size: Whole
    norm_first: bool | None = None
    gated: bool | None = None


class ArmFacts(Value):
    """The sizes and costs of an arm, as `model.checks.budget` returns them.

    `summary` says the variant in words.
    """

    summary: Text
    shape: Shape | None = None
    parameters: Whole | None = None
    non_embedding_parameters: Whole | None = None
    added_over_add: Whole | None = None
    flops_per_token: Whole | None = None
    length: Whole | None = None


class TaskFacts(Value):
    """The data of a task.

    Attributes:
        source: where the data are from.
        digest: the digest of the content of the data.
        partial: whether official rows are missing.
        rows: how many examples each split has, if the data are partial.
        differences: how the content of a split with the official number of rows differs from the
            official one, by split; None if no split differs.
        unchecked: the splits that could not be compared, because the official digest is not known;
            None if there is no such split.
        revision: the revision of the data on the hub, if it is known.
        labels: the `arrays_digest` of the file of labels, which `Store.write_plan` fills in.
        predicts: the test splits that the task's cells are asked to predict.
        diagnostic: the digest of AX, or of the other diagnostic sets, among the splits to predict.
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
    """The cells and pretrainings that an experiment asks for.

    Attributes:
        experiment: the experiment file, without the places of data, text and plugins.
        arms: the sizes and costs of each arm.
        tasks: the data of each task.
        tokens: about how many tokens a cell of each task trains on.
        pretrainings: all pretrainings, with the runs of the searches for their rates.
        cells: all fine-tuning runs.
    """

    experiment: Experiment
    arms: dict[Word, ArmFacts]
    tasks: dict[Word, TaskFacts]
    tokens: dict[Word, Whole]
    pretrainings: tuple[Pretraining, ...] = ()
    cells: tuple[Cell, ...]

    @model_validator(mode="after")
    def _knows_tasks(self) -> Self:
        for cell in self.cells:
            if cell.task not in KNOWN or "train" not in KNOWN[cell.task].splits:
                raise ValueError(f"unknown task {cell.task}")
        return self

    @field_serializer("experiment")
    def _complete(self, experiment: Experiment) -> dict[str, Any]:
        return experiment.model_dump(mode="json", by_alias=True)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (*self.pretrainings, *self.cells)

    def cost(self, job: Job) -> float:
        """Return the expected operations of a job's training: tokens x operations per token."""
        return job.tokens(self.tokens) * (self.arms[job.arm].flops_per_token or 0)


class Epoch(Value):
    """An epoch of a fine-tuning run: its mean training loss, and the scores after it."""

    epoch: Whole
    train_loss: float
    scores: Scores


class Record(Sealed):
    """A finished cell.

    Attributes:
        scores: the scores after the last epoch, by split and metric.
        history: the loss and the scores of each epoch.
        collapsed: the splits on which the model gave one answer to everything after the last epoch.
        seconds: how long the job took.
        training_seconds: how long its training steps took.
        training_tokens: how many tokens it trained on.
        parameters: how many weights the model has.
        graft_is_exact: whether a conversion of its checkpoint changed no output.
        variance_kept: the share of its sum of squares that a conversion kept, by table.
        micro_batch_size: how many rows were computed at once, if memory was too short for whole
            batches.
        precision: the precision of this job, if it is not the one of the environment.
        diagnostic: the digest of the diagnostic set (AX), if it was predicted.
        started_from: the `weights_digest` of the encoder that it started from; None for fresh
            weights, and in committed results, which are older than this field.
        weights: the `weights_digest` of the fine-tuned encoder, for MNLI, or if the model is kept.
        environment: the machine and the code.
        cell: what was asked for.
        logits: the `arrays_digest` of its predictions, which `Store.write` fills in.
        tests: the `arrays_digest` of its test predictions, which `Store.write` fills in.
        model: the SHA-256 of the files of its model, which `Store.write` fills in.
    """

    ok: ClassVar[Literal[True]] = True
    scores: Scores
    history: tuple[Epoch, ...]
    collapsed: tuple[Word, ...] = ()
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
        """Return the scores x 100, and how long the cell took."""
        parts = []
        for split, values in self.scores.items():
            metric, value = next(iter(values.items()))
            place = f" {split.removeprefix('validation_')}" if len(self.scores) > 1 else ""
            score = "NaN" if value is None else f"{100 * value:.2f}"
            parts.append(f"{metric}{place} {score}")
        answers = " (one answer to everything)" if self.collapsed else ""
        return f"{', '.join(parts)}{answers}, {format_duration(self.seconds)}"


class LossPoint(Value):
    """The losses of a pretraining at a step."""

    step: Whole
    tokens: Whole
    train_loss: float
    validation_loss: float | None = None
    seconds: float


class Measure(Value):
    """A measure of a pretrained encoder over `n` sequences.

    The value is a loss in nats, a rise of a loss, or a share from 0 to 1.
    """

    name: Word
    value: float
    standard_error: float | None = None
    n: Whole


class PretrainingRecord(Sealed):
    """A finished pretraining: what it cost, and its loss curve.

    Attributes:
        steps: how many steps it took.
        tokens: how many tokens it trained on.
        seconds: how long the job took.
        tokens_per_second: the speed of training alone.
        peak_memory_bytes: the peak of the device's memory.
        stream: a hash over all that the arm was shown, in order.
        train_loss: the training loss after the last step.
        validation_loss: the validation loss after the last step; None for a run of a search that
            diverged.
        validation_tokens: how many tokens the validation text has.
        corpus_tokens: how many tokens the training text has.
        losses: the loss curve.
        segment_pairs: the share of the training sequences that had two segments.
        micro_batch_tokens: how many tokens were computed at once at the end of the run.
        weights: the `weights_digest` of the encoder in each checkpoint, by step; None for runs of
            a search, and in committed results, which are older than this field.
        environment: the machine and the code.
        pretraining: the pretraining that was asked for. Its `rate` is the one that its search has
            chosen.
        measures: the measures of the last checkpoint; empty for runs of a search.
        measure_tokens: how many tokens of validation text the measures were taken on.
        piece_losses: the `arrays_digest` of its losses, which `Store.write` fills in.
        sums: the `arrays_digest` of the sums behind its measures, which `Store.write` fills in.
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
        """Return the loss, and how long the pretraining took."""
        loss = self.validation_loss
        text = "diverged" if loss is None else f"validation loss {loss:.3f}"
        return f"{text}, {format_duration(self.seconds)}"


class Failure(Value):
    """The reason why the last attempt of a job failed.

    If `lost`, the worker ended without a message, or was silent for too long.
    """

    ok: ClassVar[Literal[False]] = False
    id: Word
    error: Lines
    traceback: Lines = ""
    environment: Environment = Environment()
    lost: bool = False

    def describe(self) -> str:
        """Return that the job failed, and why."""
        return f"FAILED {self.error}"

    def file(self) -> bytes:
        """Return the content of the failure's file."""
        return self.model_dump_json(indent=1, exclude_none=True).encode()


class Progress(Value):
    """The progress of a job under way.

    Times are seconds since 1970, `worker` is host:pid. There are no `steps` before training.
    """

    id: Word
    worker: Text
    began: float
    updated: float
    step: Whole = 0
    steps: Whole | None = None
    loss: float | None = None


Result = Record | PretrainingRecord | Failure
"""The result of a job. It is `ok`, or a failure; `describe` says it in a few words."""
