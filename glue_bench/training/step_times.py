"""Times of a few steps, from which a dry run says how long the run takes.

A trial takes steps of an arm's own model, on rows of the task, or on made-up tokens in the shapes
of a pretraining. A step of an evaluation predicts a batch. Where a whole batch would take too long,
a trial takes a part of one, because a CPU takes half the time for half the rows.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from glue_bench.config import Hyperparameters, PretrainingSettings
from glue_bench.data.tasks import find_task
from glue_bench.model.finished import FinishedClassifier, FinishedStart
from glue_bench.model.fresh import fixed_seed, on_threads
from glue_bench.records.values import Cell, Pretraining
from glue_bench.training.device import Compute
from glue_bench.training.evaluate import evaluation_tokens
from glue_bench.training.finetune import Classifier
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import (
    make_optimizer,
    part_losses,
    predict,
    update,
    used_rows_only,
)
from glue_bench.training.masked_lm import build_masked_lm, masked_losses
from glue_bench.training.masking import MaskedBatch, Vocabulary, training_batch
from glue_bench.training.packing import PackedText
from glue_bench.training.tokens import (
    Batch,
    TokenisedTask,
    collate,
    encode_split,
    evaluation_batches,
    training_batches,
)
from glue_bench.training.trial import compute_of, padded_length

MOST_STEPS = 5  # of whole batches
PART_GROWTH = 4  # of the parts of a batch that are tried before a whole one
SAMPLE_BATCHES = 32  # of the rows that are made into tokens
LONG_SECONDS = 0.1  # of a first step that takes as long as later ones
SHORT_TOKENS = 16  # of the sequence that a trial of a pretraining begins with
FORWARD_PASSES = 3  # forward passes that take the time of a step's two passes


class Divisible(Protocol):
    """A batch that can be computed in parts."""

    @property
    def ids(self) -> Tensor:
        """The tokens (b, l)."""

    @property
    def mask(self) -> Tensor | None:
        """Which tokens are real, bool (b, l); None if nothing is padded."""

    def parts(self, rows: int) -> Iterator[Self]:
        """Yield the batch in parts of at most `rows` rows, in order."""


AnyBatch = TypeVar("AnyBatch", bound=Divisible)


@dataclass(frozen=True)
class StepTimes:
    """How long a job of an arm takes here, in seconds.

    - `build`: to build the model.
    - `token`: both passes of a step, or the one of an evaluation, for each of its tokens without
      padding.
    - `update`: the optimiser, for each step.
    - `row_tokens`: how many tokens a row has, on average.
    - `steps`: how many steps were timed, or parts of one.
    """

    build: float
    token: float
    update: float
    row_tokens: float
    steps: int

    def seconds(self, steps: int, tokens: float, read_tokens: float = 0.0) -> float:
        """Return how long a job takes.

        Args:
            steps: how many steps it takes.
            tokens: those of all steps, without padding.
            read_tokens: those that it only predicts from.
        """
        passes = (tokens + read_tokens / FORWARD_PASSES) * self.token
        return self.build + steps * self.update + passes


@dataclass(frozen=True)
class TimedStep:
    """A step, or a part of one, that was timed: its rows and tokens, and the seconds it took."""

    rows: int
    tokens: int
    passes: float
    update: float


@dataclass(frozen=True)
class TrainingStep(Generic[AnyBatch]):
    """A model in training, whose steps are timed; `losses` has the loss of each part of a batch."""

    model: nn.Module
    settings: Hyperparameters | PretrainingSettings
    losses: Callable[[AnyBatch], Iterable[Tensor]]
    device: torch.device
    optimizer: torch.optim.Optimizer

    @classmethod
    def begin(
        cls,
        model: nn.Module,
        settings: Hyperparameters | PretrainingSettings,
        losses: Callable[[AnyBatch], Iterable[Tensor]],
        device: torch.device,
    ) -> Self:
        """Put a model into training, with an optimiser of its own."""
        return cls(model.train(), settings, losses, device, make_optimizer(model, settings))

    def take(self, batch: AnyBatch) -> TimedStep:
        """Take a step."""
        ends_of_passes: list[float] = []

        def watched_losses() -> Iterator[Tensor]:
            yield from self.losses(batch)
            wait_for(self.device)
            ends_of_passes.append(time.perf_counter())

        rate = self.settings.learning_rate
        began = time.perf_counter()
        update(self.model, self.optimizer, rate, self.settings.clip_norm, watched_losses())
        wait_for(self.device)
        ended = time.perf_counter()
        return TimedStep(
            rows=len(batch.ids),
            tokens=_count_tokens(batch),
            passes=ends_of_passes[0] - began,
            update=ended - ends_of_passes[0],
        )


def timed_prediction(model: nn.Module, batch: Batch, compute: Compute) -> TimedStep:
    """Predict a batch, and return how long that took. Nothing is updated."""
    alone = replace(batch, rows=np.arange(len(batch.rows)))
    began = time.perf_counter()
    predict(model, [alone], compute)  # it waits for the device
    return TimedStep(
        rows=len(batch.ids),
        tokens=_count_tokens(batch),
        passes=time.perf_counter() - began,
        update=0.0,
    )


def timed_steps(
    take: Callable[[AnyBatch], TimedStep],
    short: AnyBatch,
    batches: Iterator[AnyBatch],
    deadline: float,
) -> list[TimedStep]:
    """Take steps of growing parts of a batch, then of whole batches.

    Args:
        take: takes a step.
        short: a batch of one short row, which comes first.
        batches: whole batches.
        deadline: until when, by `time.perf_counter`. Steps of the short row are always taken.

    Returns:
        The largest steps; none if there was time for the short row alone.
    """
    last = take(short)
    if last.passes < LONG_SECONDS:  # what the first step takes longer would count
        last = take(short)
    timed: list[TimedStep] = []
    for part in growing_parts(batches):
        expected = last.passes * _count_tokens(part) / last.tokens + last.update
        if len(timed) == MOST_STEPS or time.perf_counter() + expected > deadline:
            break
        last = take(part)
        if timed and last.rows > timed[-1].rows:
            timed.clear()
        timed.append(last)
    return timed


def wait_for(device: torch.device) -> None:
    """Wait until a device has computed what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def growing_parts(batches: Iterator[AnyBatch]) -> Iterator[AnyBatch]:
    """Yield parts of the first batch, each with more rows than the last, then whole batches."""
    rows = 1
    for batch in batches:
        while rows < len(batch.ids):
            yield next(batch.parts(rows))
            rows *= PART_GROWTH
        yield batch


def _count_tokens(batch: Divisible) -> int:
    """Count the tokens of a batch that are no padding."""
    return batch.ids.numel() if batch.mask is None else int(batch.mask.sum())


def step_times(
    timed: list[TimedStep], build: float, row_tokens: float, batch_rows: int, device: torch.device
) -> StepTimes | None:
    """Put the steps of a trial together; None if they say too little.

    A part of a batch says how long the batch takes on a CPU alone.
    """
    most_rows = max((step.rows for step in timed), default=0)
    if not timed or (most_rows < batch_rows and device.type != "cpu"):
        return None
    return StepTimes(
        build=build,
        token=sum(step.passes for step in timed) / sum(step.tokens for step in timed),
        update=statistics.median(step.update for step in timed),
        row_tokens=row_tokens,
        steps=len(timed),
    )


def time_cell(cell: Cell, inputs: Inputs, compute: Compute, deadline: float) -> StepTimes | None:
    """Time steps of a fine-tuning run on a sample of its training rows.

    Args:
        cell: the run.
        inputs: the experiment's arms and tasks.
        compute: where to compute.
        deadline: until when, by `time.perf_counter`.

    Returns:
        The times; None if a step takes too long.
    """
    settings = cell.hyperparameters
    arm = inputs.arm_of(cell)
    start = arm.start
    labels = find_task(cell.task).labels or ("score",)
    compute = compute_of(arm, compute)
    frame = inputs.tasks.train_split(cell.task)
    tokens = _sample(frame, cell, inputs, settings.batch_size * SAMPLE_BATCHES)
    train = tokens.splits["train"]
    padding_id = tokens.padding_id

    def padded(longest: int) -> int:
        return padded_length(longest, start, compute, settings.max_length)

    with fixed_seed(), on_threads(compute.threads_for(start.hidden_size)):
        began = time.perf_counter()
        model = cast(Classifier, start.classifier(labels, cell.seed))
        build = time.perf_counter() - began
        with used_rows_only(model, tokens):
            # transformers declares another first argument of `to`.
            model.to(compute.device)  # type: ignore[arg-type]
            step: TrainingStep[Batch] = TrainingStep.begin(
                model, settings, lambda batch: part_losses(model, batch, compute), compute.device
            )
            shortest = np.array([train.lengths.argmin()])
            timed = timed_steps(
                step.take,
                collate(train, shortest, padding_id, padded),
                training_batches(train, settings.batch_size, padding_id, cell.seed, 1, padded),
                deadline,
            )
    rows = min(settings.batch_size, len(train))
    return step_times(timed, build, float(train.lengths.mean()), rows, compute.device)


def time_evaluation(
    cell: Cell, inputs: Inputs, compute: Compute, deadline: float
) -> StepTimes | None:
    """Time predictions of a finished model; parameters and result as in `time_cell`.

    They are made on a sample of a scored split's rows.
    """
    settings = cell.settings
    start = cast(FinishedStart, inputs.arm_of(cell).start)
    most_tokens = evaluation_tokens(compute)
    frame = inputs.tasks.validation_splits(cell.task)[0]
    tokens = _sample(frame, cell, inputs, MOST_STEPS * most_tokens // SHORT_TOKENS)
    scored = tokens.splits["train"]
    padding_id = tokens.padding_id

    def padded(longest: int) -> int:
        return padded_length(longest, start, compute, settings.max_length)

    batches = list(evaluation_batches(scored, padding_id, most_tokens, padded, settings.batch_size))
    middle = len(batches) // 2  # the first ones have the longest rows
    shortest = np.array([scored.lengths.argmin()])
    with fixed_seed(), on_threads(compute.threads_for(start.hidden_size)):
        began = time.perf_counter()
        model = FinishedClassifier(start)
        build = time.perf_counter() - began
        model.to(compute.device)
        timed = timed_steps(
            lambda batch: timed_prediction(model, batch, compute),
            collate(scored, shortest, padding_id, padded),
            iter(batches[middle:] + batches[:middle]),
            deadline,
        )
    rows = len(batches[middle].rows)
    return step_times(timed, build, float(scored.lengths.mean()), rows, compute.device)


def _sample(frame: pd.DataFrame, cell: Cell, inputs: Inputs, most_rows: int) -> TokenisedTask:
    """Make tokens of some rows of a cell's task, as a split `train`."""
    settings = cell.settings
    encoding = inputs.arm_of(cell).encoding(settings.max_length)
    sample = frame.sample(min(len(frame), most_rows), random_state=0)
    split = encode_split(sample, encoding.tokenizer, settings.max_length)
    tokens = TokenisedTask({"train": split}, int(encoding.tokenizer.pad_token_id))
    return tokens.in_one_segment() if encoding.in_one_segment else tokens


def time_pretraining(
    job: Pretraining, inputs: Inputs, compute: Compute, deadline: float
) -> StepTimes | None:
    """Time steps of a pretraining on made-up tokens; parameters and result as in `time_cell`."""
    settings = job.settings.run(job.seed, job.learning_rate or job.settings.learning_rates[0])
    arm = inputs.arms[job.arm]
    vocabulary = Vocabulary.of(arm.tokenizer)
    threads = compute.threads_for_batch(arm.start.hidden_size, settings.batch_tokens)

    def losses(batch: MaskedBatch) -> Iterator[Tensor]:
        for part in batch.parts(settings.micro_batch_size):
            yield masked_losses(model, part, compute, "sum") / max(1, len(batch.targets))

    with fixed_seed(), on_threads(threads):
        began = time.perf_counter()
        model = build_masked_lm(arm.start, settings.seed, settings.dropout)
        build = time.perf_counter() - began
        # transformers declares another first argument of `to`.
        model.to(compute.device)  # type: ignore[arg-type]
        step: TrainingStep[MaskedBatch] = TrainingStep.begin(
            model, settings, losses, compute.device
        )
        timed = timed_steps(
            step.take,
            next(made_up_batches(vocabulary, settings, rows=1, length=SHORT_TOKENS)),
            made_up_batches(vocabulary, settings, rows=settings.rows, length=settings.length),
            deadline,
        )
    return step_times(timed, build, float(settings.length), settings.rows, compute.device)


def made_up_batches(
    vocabulary: Vocabulary, settings: PretrainingSettings, *, rows: int, length: int
) -> Iterator[MaskedBatch]:
    """Yield batches of random tokens, masked as those of a pretraining.

    Args:
        vocabulary: has the tokens.
        settings: those of one run.
        rows: how many sequences a batch has.
        length: how many tokens a sequence has.
    """
    generator = np.random.default_rng(0)
    sequences = rows * MOST_STEPS
    text = PackedText(
        ids=generator.choice(vocabulary.regular, sequences * length),
        offsets=np.arange(sequences + 1) * length,
    )
    for step in range(MOST_STEPS):
        yield training_batch(
            text,
            vocabulary,
            rows=rows,
            mask_probability=settings.mask_probability,
            seed=settings.seed,
            step=step,
        )
