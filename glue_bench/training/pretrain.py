"""Masked-LM pretraining of one arm. Every arm sees the same tokens, masks and order; a killed run continues."""

import hashlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from glue_bench.config import Pretraining
from glue_bench.model.checkpoints import Start
from glue_bench.model.fresh import fresh, number
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.records.record import LossPoint, curve_digest
from glue_bench.training.loop import NonFiniteLossError, linear_factor, make_optimizer, set_rate
from glue_bench.training.masking import MaskedBatch, Vocabulary, evaluation_batches, target_pieces, training_batch
from glue_bench.training.memory import peak_bytes, reset_peak
from glue_bench.training.packing import PackedText
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.progress import tell
from glue_bench.training.runtime import accelerator, all_threads, few_sizes

LOSSES = 100  # points of a training-loss curve
SHARED_WORK = 2**18  # hidden size x tokens of a batch
IGNORED = -100  # a target that cross_entropy leaves out
SAVE_SECONDS = 60.0  # between two states to continue from
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")

Report = Callable[[LossPoint], None]


@dataclass
class State:
    """How far a run is. `stream` is a hash over every batch so far, `losses` the curve, `pending` since its last point.

    `tokens` are real ones, padding left out; `seconds` are those of training alone.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stream: str = ""
    losses: list[dict[str, Any]] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PretrainingTask:
    """What is learnt: text (`train` and `validation`), its tokenizer, and by which settings."""

    text: dict[str, PackedText]
    tokenizer: PreTrainedTokenizerBase
    settings: Pretraining


@dataclass(frozen=True)
class Pretrained:
    """What a pretraining leaves: facts for its record, and its last validation losses as `Store.read_validation`'s."""

    facts: dict[str, Any]
    validation: dict[str, np.ndarray]


def pretrain(
    start: Start,
    task: PretrainingTask,
    folder: PretrainingFolder,
    report: Report = lambda _: None,
    save_seconds: float | None = None,
) -> Pretrained:
    """`pretraining` to its end; `report` is told each point of the loss curve."""
    points = pretraining(start, task, folder, save_seconds)
    while True:
        try:
            report(next(points))
        except StopIteration as end:
            return end.value


def pretraining(
    start: Start, task: PretrainingTask, folder: PretrainingFolder, save_seconds: float | None = None
) -> Generator[LossPoint, None, Pretrained]:
    """Train `start` to the last step and keep its checkpoints; yields the points of the loss curve as they are made.

    Returns what is stored of the run. Continues from the folder's state if there is one; on a CPU the weights
    end with the same bits as without the interruption. `save_seconds`, SAVE_SECONDS unless given, lie between two such
    states. The caller drops the last one once the record is safe.

    Raises:
        NonFiniteLossError: training diverged.
        UserError: the folder holds another configuration, or a state that was computed elsewhere.
    """
    runtime = accelerator()
    of_all = all_threads()  # asked for first: the number of threads is about to be another
    # One thread for steps too small to share: their operations end before a second thread has joined in.
    small = start.config.hidden_size * task.settings.batch_tokens < SHARED_WORK
    torch.set_num_threads(1 if small else of_all)
    reset_peak()
    model = build_masked_lm(start, task.settings.seed, task.settings.dropout)
    wrapped, optimizer = runtime.prepare(model, make_optimizer(model, task.settings))
    state = _restore(folder, model, optimizer, task.settings.kept_steps)
    run = _PretrainingRun(wrapped, optimizer, task, state, folder)
    try:
        yield from run.points(SAVE_SECONDS if save_seconds is None else save_seconds)
    finally:
        runtime.free_memory()
    return run.outcome()


def build_masked_lm(start: Start, seed: int, dropout: float | None = None) -> EncoderForMaskedLM:
    """The start's encoder under its masked-LM head; what it has no weights for is fresh and decided by `seed`.

    With `dropout` it drops at this rate; its configuration, which fine-tuning goes by, keeps the start's rates.
    """
    kept = {name: getattr(start.config, name) for name in DROPOUTS}
    config = deepcopy(start.config)
    config.update(kept if dropout is None else dict.fromkeys(DROPOUTS, dropout))
    model = fresh(EncoderForMaskedLM, config, seed)
    model.config.update(kept)
    weights = {f"base.{name}": tensor for name, tensor in start.weights.items()} | dict(start.head)
    model.load_state_dict(weights, strict=False)
    model.base.pooler.requires_grad_(False)  # it gets no gradient
    model.config.origin = trained_origin(start.origin)
    return model


def trained_origin(origin: str) -> str:
    """What an arm is after pretraining: grafted weights become adapted, fresh ones pretrained."""
    return {"scratch": "pretrained", "grafted": "adapted"}.get(origin, origin)


class _PretrainingRun:
    """A pretraining under way."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        task: PretrainingTask,
        state: State,
        folder: PretrainingFolder,
    ) -> None:
        self.model, self.optimizer, self.state, self.folder = model, optimizer, state, folder
        self.settings, self.text, self.tokenizer = task.settings, task.text, task.tokenizer
        self.vocabulary = Vocabulary.of(task.tokenizer)
        self.runtime = accelerator()
        self.inner = self.runtime.unwrap_model(model)
        self.clock = time.perf_counter()
        self.validation: dict[str, np.ndarray] = {}

    def points(self, save_seconds: float) -> Iterator[LossPoint]:
        """Go to the last step; yields each new point of the loss curve."""
        saved = self.clock = time.perf_counter()
        while self.state.step < self.settings.steps:
            self._advance()
            tell(self.state.step, self.settings.steps, self.state.pending[-1].item)
            if self._due(LOSSES) or self._due(self.settings.validations):
                point = self._point()
                with self._untimed():  # whoever is shown it may take its time
                    yield point
            if self.state.step in self.settings.kept_steps:
                with self._untimed():
                    curve = curve_digest((LossPoint(**point) for point in self.state.losses), self.state.step)
                    self.folder.save_checkpoint(self.state.step, self.inner, self.tokenizer, curve)
            if self.state.step == self.settings.steps or time.perf_counter() - saved > save_seconds:
                with self._untimed():
                    weights = {"model": self.inner.state_dict(), "optimizer": self.optimizer.state_dict()}
                    self.folder.save_state({**weights, "progress": asdict(self.state)})
                saved = time.perf_counter()

    def outcome(self) -> Pretrained:
        """What the run leaves."""
        if not self.validation:  # this process has found the last step done
            self._validate()
        train, last = self.text["train"], self.state.losses[-1]
        facts = {
            "steps": self.state.step,
            "tokens": self.state.tokens,
            "seconds": round(self.state.seconds, 3),
            "tokens_per_second": round(self.state.tokens / self.state.seconds, 1),
            "peak_memory_bytes": peak_bytes(),
            "stream": self.state.stream,
            "train_loss": last["train_loss"],
            "validation_loss": last["validation_loss"],
            "validation_tokens": int(self.text["validation"].offsets[-1]),
            "corpus_tokens": int(train.offsets[-1]),
            "losses": self.state.losses,
        }
        if train.cuts is not None:
            facts["segment_pairs"] = round(np.count_nonzero(train.cuts) / len(train), 4)
        return Pretrained(facts, self.validation)

    def _due(self, times: int) -> bool:
        return is_due(self.state.step, self.settings.steps, times)

    def _advance(self) -> None:
        state, settings = self.state, self.settings
        batch = training_batch(
            self.text["train"],
            self.vocabulary,
            rows=settings.rows,
            share=settings.mask_probability,
            seed=settings.seed,
            step=state.step,
        )
        self.model.train()
        # Dropout's numbers follow from the step alone, so that a continued run needs no generator's state.
        torch.manual_seed(number(settings.seed, state.step, 0))
        set_rate(self.optimizer, settings.learning_rate * rate_factor(settings, state.step))
        state.pending.append(self._step(batch))
        state.stream = hashlib.sha256(state.stream.encode() + batch.digest).hexdigest()
        state.tokens += batch.tokens
        state.step += 1

    def _step(self, batch: MaskedBatch) -> Tensor:
        """One update; returns the mean loss over the masked tokens of the batch."""
        rows, size = len(batch.ids), self.settings.rows_at_once
        total, loss = len(batch.targets), torch.zeros((), device=self.runtime.device)
        for start in range(0, rows, size):
            part = batch.rows(start, min(start + size, rows))
            share = _losses(self.model, part.to(self.runtime.device), "sum") / total
            self.runtime.backward(share)
            loss += share.detach()
        self.runtime.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def _point(self) -> LossPoint:
        """Close the mean since the last point, with the validation loss where it is due."""
        state = self.state
        loss = float(torch.stack(state.pending).mean())
        with self._untimed():
            self._check(loss, "masked-LM loss")
            validation = self._validate() if self._due(self.settings.validations) else None
        state.losses.append(
            {
                "step": state.step,
                "tokens": state.tokens,
                "train_loss": loss,
                "validation_loss": validation,
                "seconds": round(state.seconds, 3),
            }
        )
        state.pending = []
        return LossPoint(**state.losses[-1])

    @torch.inference_mode()
    def _validate(self) -> float:
        """The validation loss: a mean over the masked tokens of the validation text, with the same masks every time."""
        self.inner.eval()
        text = self.text["validation"]
        starts, documents = text.pieces
        loss_sum, count = np.zeros(len(starts)), np.zeros(len(starts), dtype=np.int64)
        first = 0
        for batch in evaluation_batches(text, self.vocabulary, self.settings.mask_probability):
            pieces = target_pieces(text, batch, first)
            losses = _losses(self.inner, batch.to(self.runtime.device), "none")[: len(pieces)]
            np.add.at(loss_sum, pieces, losses.cpu().numpy())
            np.add.at(count, pieces, 1)
            first += len(batch.ids)
        loss = float(loss_sum.sum() / count.sum())
        self._check(loss, "validation loss")
        self.validation = {"loss_sum": loss_sum, "count": count, "document": documents}
        return loss

    def _check(self, loss: float, name: str) -> None:
        if not math.isfinite(loss):
            state = self.state
            spent = {"steps": state.step, "tokens": state.tokens, "seconds": round(state.seconds, 3)}
            raise NonFiniteLossError(f"{name} is {loss} at step {state.step}", {**spent, "losses": state.losses})

    @contextmanager
    def _untimed(self) -> Iterator[None]:
        """For what is not training: the clock stands still."""
        self.state.seconds += time.perf_counter() - self.clock
        yield
        self.clock = time.perf_counter()


def is_due(step: int, steps: int, times: int) -> bool:
    """Whether `step`, from 1 to `steps`, is one of `times` that are spread evenly. The last step always is.

    No more steps than `times` are due: all of them, where there are no more.
    """
    return step * times % steps < times


def rate_factor(settings: Pretraining, step: int) -> float:
    """The part of the learning rate at `step` (from 0).

    `linear` is that of fine-tuning. `trapezoid` stays at 1 between warm-up and a linear decay to zero over the last
    ceil(decay_share * steps) steps (Hägele et al. 2024, arXiv 2405.18392): before
    the decay only the length of the warm-up depends on `steps`.
    """
    if settings.decay_share is None:
        return linear_factor(step, settings.steps, settings.warmup_ratio)
    warmup, decay = (math.ceil(share * settings.steps) for share in (settings.warmup_ratio, settings.decay_share))
    return min(1.0, step / max(1, warmup) if step < warmup else 1.0, (settings.steps - step) / decay)


def _losses(model: nn.Module, batch: MaskedBatch, reduction: str) -> Tensor:
    """The summed loss of a batch, or without reduction that of each target, and after these zeros."""
    more = (0, few_sizes(len(batch.places)) - len(batch.places))
    logits = model(batch.ids, batch.mask, batch.segments, places=F.pad(batch.places, more)).logits
    targets = F.pad(batch.targets, more, value=IGNORED)
    return F.cross_entropy(logits.float(), targets, reduction=reduction, ignore_index=IGNORED)


def _restore(
    folder: PretrainingFolder, model: EncoderForMaskedLM, optimizer: torch.optim.Optimizer, kept_steps: list[int]
) -> State:
    """The state in the folder, else a new one. One past a checkpoint that is wanted since counts as none."""
    saved = folder.resumed_state()
    if saved is None or folder.lacks([step for step in kept_steps if step <= saved["progress"]["step"]]):
        return State()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    state = State(**saved["progress"])
    state.pending = [loss.to(model.device) for loss in state.pending]
    return state
