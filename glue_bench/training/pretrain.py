"""Masked-LM pretraining of one arm.

Every arm sees the same tokens, masks and order. A run that is killed continues from its last state.
"""

import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from glue_bench.config import PretrainingSettings
from glue_bench.model.fresh import on_threads, seed_of
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.records.values import LossPoint, Pretraining, PretrainingRecord
from glue_bench.training.attempts import run_attempts
from glue_bench.training.device import Compute
from glue_bench.training.fixed_steps import FixedSteps, launches_graphs, make_ahead
from glue_bench.training.inputs import Inputs
from glue_bench.training.interrupts import Interrupts
from glue_bench.training.loop import (
    NonFiniteLossError,
    OnStep,
    ProgressReporter,
    make_optimizer,
    rate_factor,
    report_no_steps,
    update,
)
from glue_bench.training.masked_lm import build_masked_lm, masked_losses
from glue_bench.training.masking import (
    MaskedBatch,
    Vocabulary,
    masked_evaluation_batches,
    masked_training_batches,
)
from glue_bench.training.memory import is_out_of_memory, peak_bytes, reset_peak
from glue_bench.training.pretraining_folder import PretrainingFolder, State

TRAINING_POINTS = 100  # points of a training-loss curve
SAVE_SECONDS = 60.0  # seconds between two saved states


class DivergedPretrainingError(NonFiniteLossError):
    """The loss of a pretraining became NaN or infinite; `record` says what it cost until then."""

    def __init__(self, message: str, record: PretrainingRecord) -> None:
        super().__init__(message)
        self.record = record


@dataclass(frozen=True)
class Pretrained:
    """The outcome of a pretraining.

    - `record`: without the measures of the encoder.
    - `validation`: the last validation losses, piece by piece: `loss_sum` float64, `count` int64
      and `document` int64, each of shape (pieces,).
    - `model`: the encoder under its masked-LM head.
    """

    record: PretrainingRecord
    validation: dict[str, np.ndarray]
    model: EncoderForMaskedLM


def pretrain(
    job: Pretraining, inputs: Inputs, compute: Compute, *, progress: OnStep = report_no_steps
) -> Pretrained:
    """Pretrain an arm to the last step, and keep its checkpoints.

    The run continues from the folder's state if there is one. On a CPU the weights end with the
    same bits as without the interruption. Ctrl-C, SIGTERM and the end of a Slurm job's time leave
    the state of the current step in the folder. The caller deletes the last state once the record
    is safe. If memory is short, the run goes on with half the rows at once, and at last row by row;
    the record has the number of tokens (`micro_batch_tokens`).

    Args:
        job: the pretraining, with the rate that a search has chosen. A run of a search keeps no
            checkpoints.
        inputs: the experiment's arms and text.
        compute: where to compute.
        progress: called after each step.

    Raises:
        DivergedPretrainingError: a loss became NaN or infinite.
        UserError: the state to continue from is damaged, or was computed on another device or in
            another precision.
    """
    settings = job.settings.run(job.seed, job.rate)
    hidden_size = inputs.arms[job.arm].start.config.hidden_size
    with on_threads(compute.threads_for_batch(hidden_size, settings.batch_tokens)):
        return run_attempts(PretrainingAttempt(job, settings, inputs, compute, progress))


@dataclass(frozen=True)
class PretrainingAttempt:
    """One attempt at a pretraining, with a number of rows that are computed at once."""

    job: Pretraining
    settings: PretrainingSettings
    inputs: Inputs
    compute: Compute
    progress: OnStep

    def run(self) -> Pretrained:
        """Train to the last step, from the state in the folder if there is one."""
        loop = PretrainingLoop(self.job, self.settings, self.inputs, self.compute, self.progress)
        loop.train()
        return loop.outcome()

    def after(self, error: Exception) -> "PretrainingAttempt":
        """Return the next attempt after an error of this one. Raises the error if there is none."""
        settings = self.settings
        if not is_out_of_memory(error) or settings.micro_batch_size == 1:
            raise error
        tokens = settings.micro_batch_size // 2 * settings.length
        return replace(self, settings=settings.model_copy(update={"micro_batch_tokens": tokens}))


class PretrainingLoop:
    """The loop of a pretraining. It continues from the state in the folder, if there is one."""

    def __init__(
        self,
        job: Pretraining,
        settings: PretrainingSettings,
        inputs: Inputs,
        compute: Compute,
        progress: OnStep,
    ) -> None:
        arm = inputs.arms[job.arm]
        self.job = job
        self.settings = settings
        self.compute = compute
        self.progress = ProgressReporter(progress)

        self.tokenizer = arm.tokenizer
        self.vocabulary = Vocabulary.of(arm.tokenizer)
        self.text = inputs.text.packed_text(arm.tokenizer)
        self.kept_steps = () if job.is_search else settings.kept_steps

        self.validation: dict[str, np.ndarray] = {}

        reset_peak(compute.device)
        self.model = build_masked_lm(arm.start, settings.seed, settings.dropout)
        # transformers declares another first argument of `to`.
        self.model.to(compute.device)  # type: ignore[arg-type]

        # A batch that is computed in parts has no graph.
        is_fixed = compute.graph and settings.micro_batch_size == settings.rows
        self.optimizer = make_optimizer(self.model, settings, capturable=is_fixed)
        self.state = State()

        self.folder = PretrainingFolder(inputs.store, job.id)
        rate = settings.learning_rate
        saved = self.folder.resumed_state(compute, rate, self.kept_steps)
        if saved is not None:
            self.resume(saved)

        self.fixed_steps: FixedSteps | None = None
        self.batches = masked_training_batches(
            self.text["train"], self.vocabulary, settings, self.state.step, is_fixed=is_fixed
        )
        if is_fixed:
            self.fixed_steps = FixedSteps(
                self.model,
                self.optimizer,
                settings.clip_norm,
                lambda tensors: masked_losses(self.model, MaskedBatch(**tensors), compute, "mean"),
                compute,
            )
            self.batches = make_ahead(self.batches)

        self.interrupts = Interrupts()
        self.is_between_steps = True
        self.saved_step = self.state.step
        self.clock = time.perf_counter()

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continue from the state in the folder."""
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        for group in self.optimizer.param_groups:  # the state's run may have used graphs
            group["capturable"] = self.optimizer.defaults["capturable"]
        self.state = State.from_dict(saved["progress"], self.compute.device)

    def train(self) -> None:
        """Train to the last step. An interrupt leaves the state of the last step in the folder."""
        saved_at = time.perf_counter()
        state = self.state
        last_step = self.settings.steps

        try:
            with self.interrupts.listening():
                while True:
                    self.take_stock()
                    is_last = state.step == last_step
                    if is_last or time.perf_counter() - saved_at > SAVE_SECONDS:
                        self.save()
                        saved_at = time.perf_counter()
                    if is_last:
                        return
                    with self.interrupts.held():
                        self.is_between_steps = False
                        self.advance()
                        self.is_between_steps = True
                    self.progress(state.step, last_step, state.pending[-1].item)
        except (KeyboardInterrupt, SystemExit):  # SystemExit ends a Slurm job whose time is over
            if self.is_between_steps:
                self.save()
            raise

    def take_stock(self) -> None:
        """Add a point to the curve and keep a checkpoint, if they are due and not there yet."""
        state = self.state
        last_step = self.settings.steps
        validates = is_due(state.step, last_step, self.settings.validations)
        if state.pending and (validates or is_due(state.step, last_step, TRAINING_POINTS)):
            self.add_point(validates=validates)
        if state.step not in self.kept_steps:
            return
        if not self.folder.holds(state.step, state.weights.get(state.step)):
            with self.untimed():
                digest = self.folder.save_checkpoint(state.step, self.model, self.tokenizer)
                state.weights[state.step] = digest

    def add_point(self, *, validates: bool) -> None:
        """Add a point to the curve, with the mean training loss since the point before."""
        state = self.state
        loss = float(torch.stack(state.pending).mean())
        validation_loss = None
        with self.untimed():
            self.check(loss, "masked-LM loss")
            if validates:
                validation_loss = self.validate()
        point = LossPoint(
            step=state.step,
            tokens=state.tokens,
            train_loss=loss,
            validation_loss=validation_loss,
            seconds=round(state.seconds, 3),
        )
        with self.interrupts.held():
            state.losses.append(point)
            state.pending = []

    def save(self) -> None:
        """Save the state of this step, unless it is saved."""
        if self.state.step == self.saved_step:
            return
        with self.untimed():
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "progress": self.state.as_dict(),
                "rate": self.settings.learning_rate,
            }
            self.folder.save_state(state, self.compute)
        self.saved_step = self.state.step

    def outcome(self) -> Pretrained:
        """Return the outcome of a run that is at its last step."""
        if not self.validation:  # the last step was taken before this process began
            self.validate()

        state = self.state
        train_text = self.text["train"]
        segment_pairs = 0.0
        if train_text.cuts is not None:
            segment_pairs = round(np.count_nonzero(train_text.cuts) / len(train_text), 4)

        record = PretrainingRecord(
            pretraining=self.job,
            steps=state.step,
            tokens=state.tokens,
            seconds=round(state.seconds, 3),
            tokens_per_second=round(state.tokens / state.seconds, 1),
            peak_memory_bytes=peak_bytes(self.compute.device),
            stream=state.stream,
            train_loss=state.losses[-1].train_loss,
            validation_loss=state.losses[-1].validation_loss,
            validation_tokens=int(self.text["validation"].offsets[-1]),
            corpus_tokens=int(train_text.offsets[-1]),
            losses=tuple(state.losses),
            segment_pairs=segment_pairs,
            micro_batch_tokens=self.settings.micro_batch_size * self.settings.length,
            weights=state.weights,
            environment=self.compute.environment(graphs=launches_graphs(self.fixed_steps)),
        )
        return Pretrained(record, self.validation, self.model)

    def advance(self) -> None:
        """Take one step."""
        state = self.state
        settings = self.settings

        batch, fixed_tensors = next(self.batches)
        self.model.train()
        # Dropout follows from the step alone, so that a continued run needs no generator's state.
        seed = seed_of(settings.seed, state.step, 0)
        rate = settings.learning_rate * rate_factor(settings, state.step)

        if self.fixed_steps:
            loss = self.fixed_steps.take(fixed_tensors, rate, seed)
        else:
            torch.manual_seed(seed)
            losses = (
                masked_losses(self.model, part, self.compute, "sum") / max(1, len(batch.targets))
                for part in batch.parts(settings.micro_batch_size)
            )
            loss = update(self.model, self.optimizer, rate, settings.clip_norm, losses)

        state.pending.append(loss)
        state.stream = hashlib.sha256(state.stream.encode() + batch.digest).hexdigest()
        state.tokens += batch.tokens
        state.step += 1

    @torch.inference_mode()
    def validate(self) -> float:
        """Return the mean loss of the masked tokens of the validation text.

        The masks are the same every time. The losses are kept in `validation`, piece by piece.
        """
        self.model.eval()
        text = self.text["validation"]

        starts, documents = text.pieces
        loss_sum = np.zeros(len(starts))
        count = np.zeros(len(starts), dtype=np.int64)
        first_row = 0
        share = self.settings.mask_probability

        for batch in masked_evaluation_batches(text, self.vocabulary, share):
            # Find for each target the piece of text that it stands in.
            rows, columns = np.divmod(batch.places.numpy(), batch.ids.shape[1])
            places = text.offsets[first_row + rows] + columns
            pieces = np.searchsorted(starts, places, side="right") - 1
            losses = masked_losses(self.model, batch, self.compute, "none")[: len(pieces)]
            np.add.at(loss_sum, pieces, losses.cpu().numpy())
            np.add.at(count, pieces, 1)
            first_row += len(batch.ids)
            self.progress.repeat_last()

        loss = float(loss_sum.sum() / count.sum())
        self.check(loss, "validation loss")
        self.validation = {"loss_sum": loss_sum, "count": count, "document": documents}
        return loss

    def check(self, loss: float, name: str) -> None:
        """Raise DivergedPretrainingError if a loss is NaN or infinite."""
        if math.isfinite(loss):
            return
        state = self.state
        record = PretrainingRecord(
            pretraining=self.job,
            steps=state.step,
            tokens=state.tokens,
            seconds=round(state.seconds, 3),
            stream="",
            losses=tuple(state.losses),
            environment=self.compute.environment(),
        )
        raise DivergedPretrainingError(f"{name} is {loss} at step {state.step}", record)

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Stop the clock in this block, because it does not train."""
        self.state.seconds += time.perf_counter() - self.clock
        try:
            yield
        finally:
            self.clock = time.perf_counter()


def is_due(step: int, steps: int, times: int) -> bool:
    """Return whether `step`, from 1 to `steps`, is one of `times` evenly spread steps.

    The last step always is one of them. If there are fewer steps than times, every step is.
    """
    return step * times % steps < times
