"""What finished cells and pretrainings leave, and what a failed cell says of itself."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from glue_bench.records.identity import CellIdentity, PretrainingIdentity, digest_of, pretraining_of
from glue_bench.records.value import StoredValue, Whole, Word

_ALMOST = 1 + 1e-6
Score = Annotated[float, Field(gt=-_ALMOST, lt=_ALMOST)]
Scores = dict[str, dict[str, Score | None]]
"""split -> metric -> value (at most 1); null where the metric is undefined."""


class CellKey(StoredValue):
    """What a cell is called by; `steps` of pretraining with `pretraining_seed` came before it."""

    left_out: ClassVar = frozenset({"steps", "pretraining_seed"})

    arm: Word
    variant: Word
    task: Word
    learning_rate: float
    seed: Whole
    steps: Whole | None = None
    pretraining_seed: Whole | None = None

    @property
    def label(self) -> str:
        """It in words."""
        steps = "" if self.steps is None else f" after {self.steps} steps"
        return f"{self.arm}{steps} on {self.task}, rate {self.learning_rate:g}, seed {self.seed}"

    def id(self, digest: str) -> str:
        """The id of the cell whose identity has this digest: a readable part, then the digest.

        Seed 1 of a pretraining is not said.
        """
        pretraining = "" if self.pretraining_seed in (None, 1) else f"-p{self.pretraining_seed}"
        steps = "" if self.steps is None else f"{pretraining}-step{self.steps}"
        return f"{self.arm}-{self.task}-lr{self.learning_rate:g}-s{self.seed}{steps}-{digest}"

    def former_id(self, digest: str) -> str:
        """The id that the cell had in versions with one seed of pretraining, which they never said."""
        return self.model_copy(update={"pretraining_seed": None}).id(digest)


class Named(StoredValue):
    """The id of a cell, and how the weights came to be that it starts from."""

    cell_id: Word
    origin: str


class Shape(StoredValue):
    """The sizes that arms share if tables rank them together."""

    num_hidden_layers: Whole
    hidden_size: Whole
    num_attention_heads: Whole
    intermediate_size: Whole
    embedding_size: Whole
    vocab_size: Whole


class Checkpoint(StoredValue):
    """What a cell started from. Of weights that were pretrained here, `recipe` says by which recipe."""

    left_out: ClassVar = frozenset({"recipe"})

    name: str = ""
    revision: str | None = None
    digest: str = ""
    recipe: Whole = 1


class Environment(StoredValue):
    """Where something was computed. Keys of other versions are kept, because bundles repeat what records say."""

    model_config = ConfigDict(extra="allow")

    glue_bench: str | None = None
    git_commit: str | None = None
    python: str | None = None
    packages: dict[str, str] = Field({})
    platform: str | None = None
    processor: str | None = None
    device: str | None = None
    precision: str | None = None
    threads: Whole | None = None


class Epoch(StoredValue):
    """One epoch of a run; the scores include those on rows held out of train."""

    epoch: Whole
    train_loss: float
    scores: Scores


class Seconds(StoredValue):
    """What a run took in all, and in training steps alone."""

    total: float
    training: float | None = None


class Tokens(StoredValue):
    """How many tokens a run was trained on."""

    training: Whole = 0


class DataFacts(StoredValue):
    """The data of a task: where they are from, the digest of their content, and whether official rows are missing.

    Of partial data `rows` has how many examples each split has. `revision` is that of the hub, where it is known.
    """

    left_out: ClassVar = frozenset({"rows", "revision"})

    source: str
    digest: Word
    partial: bool = False
    rows: dict[str, Whole] = Field({})
    revision: str | None = None


class Diagnostic(StoredValue):
    """The diagnostic data (AX) that a run predicted."""

    digest: str


class _Asked(StoredValue):
    """What was known of a finished cell before it ran. Fields with a default are not in records of all versions."""

    schema_version: Whole
    cell_id: Word
    experiment: str | None = None
    recipe: Whole = 1
    cell: CellKey
    options: dict[str, Any] = Field({})
    plugin: str | None = None
    checkpoint: Checkpoint = Checkpoint()
    shape: Shape | None = None
    tokenizer: str | None = None
    hyperparameters: dict[str, Any] = Field({})
    from_mnli: Word | None = None


class RunFacts(StoredValue):
    """What a finished run says of itself. `scores` and `collapsed` are those after its last epoch.

    `order` has the scores on validation sets with shuffled words, where the experiment asks for them.
    `micro_batch_size` is set where memory was too short for whole batches, `precision` where it had to run in another
    one than the environment says.
    """

    left_out: ClassVar = frozenset({"order", "micro_batch_size", "precision"})

    origin: str
    scores: Scores
    history: tuple[Epoch, ...]
    collapsed: tuple[str, ...]
    seconds: Seconds
    tokens: Tokens
    parameters: Whole
    order: Scores = Field({})
    micro_batch_size: Whole | None = None
    environment: Environment = Environment()
    precision: str | None = None


class Record(RunFacts, _Asked):
    """A finished cell: what was asked for, what the run says of itself, and what is known of its start and data.

    `pretraining_curve` is that of the pretraining that it started from; records of earlier versions do not have it. On
    disk the fields of the bases come first, those of the last base before the others.
    """

    left_out: ClassVar = RunFacts.left_out | {
        "recipe",
        "from_mnli",
        "variance_kept",
        "diagnostic",
        "pretraining_curve",
    }

    environment: Environment
    graft_is_exact: bool | None = None
    variance_kept: dict[str, float] = Field({})
    data: DataFacts
    diagnostic: Diagnostic | None = None
    pretraining_curve: str | None = None
    predictions_sha256: str | None = None
    digest: str | None = None

    def identity(self, pretrainings: Mapping[str, PretrainingIdentity]) -> CellIdentity:
        """What the cell's id ends in the digest of.

        A record of an earlier version does not tell the tokenizer, but its pretraining does, if it is among
        `pretrainings` (by digest).
        """
        pretrained = pretraining_of(self.checkpoint.digest)
        pretraining = pretrainings.get(pretrained[0]) if pretrained else None
        return CellIdentity(
            variant=self.cell.variant,
            options=self.options,
            tokenizer=self.tokenizer or (pretraining.tokenizer if pretraining else ""),
            plugin=self.plugin,
            recipe=self.recipe,
            start=self.checkpoint.digest,
            arm=self.cell.arm,
            task=self.cell.task,
            data=self.data.digest,
            hyperparameters=self.hyperparameters,
            seed=self.cell.seed,
            from_mnli=digest_of(self.from_mnli) if self.from_mnli else None,
        )


class LossPoint(StoredValue):
    """A point of a loss curve; without a validation loss where it was not measured."""

    step: Whole
    tokens: Whole
    train_loss: float
    validation_loss: float | None
    seconds: float


def curve_digest(points: Iterable[LossPoint], steps: int) -> str:
    """A digest of the losses of the first `steps` steps."""
    known = [[point.step, point.train_loss, point.validation_loss] for point in points if point.step <= steps]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


class PretrainingRecord(StoredValue):
    """How an arm was pretrained: what decides its weights, what it cost, and its loss curve.

    `stream` is a hash over everything that the arm was shown, in order; `segment_pairs` the share of the training
    sequences that had two segments. Where the rate was searched for, `learning_rate` is the chosen one and `searches`
    are the ids of the runs that it was chosen from. A run of a search that diverged has no `validation_loss`.
    `micro_batch_tokens` were computed at once in the end; records of earlier versions have them only where memory was
    too short for those that were asked for.
    """

    left_out: ClassVar = frozenset(
        {"recipe", "micro_batch_tokens", "learning_rate", "searches", "segment_pairs", "validation_sha256"}
    )

    schema_version: Whole
    pretraining_id: Word
    recipe: Whole = 1
    arm: Word
    origin: str
    identity: PretrainingIdentity
    learning_rate: float | None = None
    searches: tuple[Word, ...] = ()
    steps: Whole
    tokens: Whole
    seconds: float
    tokens_per_second: float | None = None
    peak_memory_bytes: Whole | None = None
    stream: str
    train_loss: float | None = None
    validation_loss: float | None = None
    validation_tokens: Whole | None = None
    corpus_tokens: Whole | None = None
    processes: Whole = 1
    losses: tuple[LossPoint, ...]
    segment_pairs: float = 0.0
    micro_batch_tokens: Whole | None = None
    environment: Environment = Environment()
    validation_sha256: str | None = None
    digest: str | None = None

    @property
    def curve(self) -> str:
        """A digest of the losses: runs of one identity that differ in it, on two processors, made other weights."""
        return curve_digest(self.losses, self.steps)


class FailureRecord(StoredValue):
    """Why the last attempt of a cell, or of a pretraining with its id as `cell_id` and no `task`, failed.

    A file that cannot be read is a failure, too, and `damaged`.
    """

    left_out: ClassVar = frozenset({"steps", "pretraining_seed", "recipe", "from_mnli", "damaged"})

    cell_id: Word = ""
    origin: str | None = None
    arm: Word | None = None
    variant: Word | None = None
    task: str | None = None
    learning_rate: float | None = None
    seed: Whole | None = None
    steps: Whole | None = None
    pretraining_seed: Whole | None = None
    recipe: Whole = 1
    from_mnli: Word | None = None
    error: str = ""
    traceback: str = ""
    environment: Environment = Environment()
    damaged: bool = False
