"""Masked-LM pretraining of one arm. Every arm sees the same tokens, masks and order; a killed run continues."""

import hashlib
import io
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from glue_bench.config import PretrainingSettings
from glue_bench.errors import UserError, first_line
from glue_bench.files import (
    check_file,
    is_damage,
    opened_zip,
    results_written_to,
    whole_folder,
    write_atomically,
)
from glue_bench.model.checkpoints import Start, under_head, weights_digest
from glue_bench.model.fresh import on_threads, seed_of
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.records.store import WEIGHTS, Store
from glue_bench.records.values import Pretraining
from glue_bench.training.arm_inputs import TRAINED_ORIGINS
from glue_bench.training.compute import (
    Compute,
    is_out_of_memory,
    peak_bytes,
    release_memory,
    reset_peak,
)
from glue_bench.training.inputs import Inputs
from glue_bench.training.interrupts import Interrupts
from glue_bench.training.loop import (
    NonFiniteLossError,
    OnStep,
    ProgressReporter,
    linear_factor,
    make_optimizer,
    silent,
    update,
)
from glue_bench.training.masking import MaskedBatch, Vocabulary, evaluation_batches, training_batch
from glue_bench.training.tokenizers import save_tokenizer

LOSSES = 100  # points of a training-loss curve
SHARED_WORK = 2**18  # hidden size x tokens of a batch
SAVE_SECONDS = 60.0  # between two states to continue from
GOES_ON = "the same command goes on from the last state"  # where the disk is full
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


@dataclass
class State:
    """How far a run is. `stream` is a hash over every batch so far, `losses` the curve, `pending` since its last point.

    `tokens` are without padding, `seconds` of training alone; `weights` has the digest of each checkpoint by its step.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stream: str = ""
    losses: list[dict[str, Any]] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)
    weights: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pretrained:
    """What a pretraining leaves: facts for its record, the last validation losses piece by piece, and the model.

    `validation` has `loss_sum` float64, `count` int64 and `document` int64, each of shape (pieces,).
    """

    facts: dict[str, Any]
    validation: dict[str, np.ndarray]
    model: EncoderForMaskedLM


def pretrain(
    job: Pretraining, inputs: Inputs, compute: Compute, *, progress: OnStep = silent
) -> Pretrained:
    """Pretrain an arm to the last step, at the job's rate, and keep its checkpoints; a run of a search keeps none.

    It continues from the folder's state if there is one; on a CPU the weights end with the same bits as without the
    interruption. Ctrl-C, SIGTERM and the end of a Slurm job's time leave the state of the step under way. The caller
    drops the last state once the record is safe. Where memory is short, it goes on with half the rows at once, at last
    row by row; the facts say with how many tokens (`micro_batch_tokens`).
    Raises NonFiniteLossError where training diverged, and UserError where the state to continue from is damaged, or was
    computed on another device or in another precision.
    """
    settings = job.settings.run(job.seed, job.rate)  # that a search has chosen
    # One thread for steps too small to share: their operations end before a second thread has joined in.
    is_small = inputs.arms[job.arm].start.config.hidden_size * settings.batch_tokens < SHARED_WORK
    with on_threads(1 if is_small else compute.threads):
        while True:
            try:
                run = Run(job, settings, inputs, compute, progress)
                run.train()
                return run.outcome()
            except Exception as error:
                if not (is_out_of_memory(error) and settings.micro_batch_size > 1):
                    raise
            release_memory()  # the failed attempt's is free only now that its traceback is gone
            less = settings.micro_batch_size // 2 * settings.length
            settings = settings.model_copy(update={"micro_batch_tokens": less})


def build_masked_lm(start: Start, seed: int, dropout: float | None = None) -> EncoderForMaskedLM:
    """The start's encoder under its masked-LM head; what it has no weights for is fresh and decided by `seed`.

    With `dropout` it drops at this rate; its configuration, which fine-tuning goes by, keeps the start's.
    """
    kept = {name: getattr(start.config, name) for name in DROPOUTS}
    config = deepcopy(start.config)
    config.update(kept if dropout is None else dict.fromkeys(DROPOUTS, dropout))
    model = under_head(start, config, seed)
    model.config.update(kept)
    model.base.pooler.requires_grad_(False)  # it gets no gradient
    model.config.origin = TRAINED_ORIGINS.get(start.origin, start.origin)
    return model


class Run:
    """A pretraining under way: the model, the optimiser and the state, which continue those in the folder."""

    def __init__(
        self,
        job: Pretraining,
        settings: PretrainingSettings,
        inputs: Inputs,
        compute: Compute,
        progress: OnStep,
    ) -> None:
        arm = inputs.arms[job.arm]
        self.tokenizer = arm.tokenizer
        self.text = inputs.text.packed_text(arm.tokenizer)
        self.folder = PretrainingFolder(inputs.store, job.id)
        self.settings, self.compute, self.progress = settings, compute, ProgressReporter(progress)
        self.keeps = () if job.is_search else settings.kept_steps
        self.vocabulary, self.validation = Vocabulary.of(self.tokenizer), dict[str, np.ndarray]()
        reset_peak(compute.device)
        self.model = build_masked_lm(arm.start, settings.seed, settings.dropout)
        self.model.to(compute.device)  # type: ignore[arg-type]  # transformers declares another first argument
        self.optimizer = make_optimizer(self.model, settings)
        self.state = State()
        saved = self.folder.resumed_state(compute, settings.learning_rate)
        past = [step for step in self.keeps if saved and step < saved["progress"]["step"]]
        # A state past a checkpoint that is wanted since counts as none.
        if saved and all(
            self.folder.holds(step, saved["progress"]["weights"].get(step)) for step in past
        ):
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.state = State(**saved["progress"])
            self.state.pending = [loss.to(compute.device) for loss in self.state.pending]
        self.interrupts, self.is_whole = Interrupts(), True
        self.saved_step = self.state.step
        self.clock = time.perf_counter()

    def train(self) -> None:
        """Go to the last step. Whoever interrupts it finds the state of the last whole step in the folder."""
        last_saved = time.perf_counter()
        state, last = self.state, self.settings.steps
        try:
            with self.interrupts.listening():
                while True:
                    self.take_stock()
                    if state.step == last or time.perf_counter() - last_saved > SAVE_SECONDS:
                        self.save()
                        last_saved = time.perf_counter()
                    if state.step == last:
                        return
                    with self.interrupts.held():
                        self.is_whole = False
                        self.advance()
                        self.is_whole = True
                    self.progress(state.step, last, state.pending[-1].item)
        except (KeyboardInterrupt, SystemExit):  # the latter in a Slurm job whose time is over
            if self.is_whole:
                self.save()
            raise

    def take_stock(self) -> None:
        """Add a point to the curve and keep a checkpoint, if they are due at this step and not there yet.

        A point has the mean loss since the one before.
        """
        state, last = self.state, self.settings.steps
        validates = is_due(state.step, last, self.settings.validations)
        if state.pending and (validates or is_due(state.step, last, LOSSES)):
            loss = float(torch.stack(state.pending).mean())
            with self.untimed():
                self.check(loss, "masked-LM loss")
                validation = self.validate() if validates else None
            point = {
                "step": state.step,
                "tokens": state.tokens,
                "train_loss": loss,
                "validation_loss": validation,
            }
            with self.interrupts.held():
                state.losses.append(point | {"seconds": round(state.seconds, 3)})
                state.pending = []
        if state.step in self.keeps and not self.folder.holds(
            state.step, state.weights.get(state.step)
        ):
            with self.untimed():
                state.weights[state.step] = self.folder.save_checkpoint(
                    state.step, self.model, self.tokenizer
                )

    def save(self) -> None:
        """Keep the state of this step, unless that is there."""
        if self.state.step == self.saved_step:
            return
        with self.untimed():
            now: dict[str, Any] = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            }
            now |= {"progress": asdict(self.state), "rate": self.settings.learning_rate}
            self.folder.save_state(now, self.compute)
        self.saved_step = self.state.step

    def outcome(self) -> Pretrained:
        """What the run leaves."""
        if not self.validation:  # this process has found the last step done
            self.validate()
        state, train, last = self.state, self.text["train"], self.state.losses[-1]
        facts = {
            **{name: getattr(state, name) for name in ("tokens", "stream", "losses", "weights")},
            **{name: last[name] for name in ("train_loss", "validation_loss")},
            "steps": state.step,
            "seconds": round(state.seconds, 3),
            "tokens_per_second": round(state.tokens / state.seconds, 1),
            "peak_memory_bytes": peak_bytes(self.compute.device),
            "validation_tokens": int(self.text["validation"].offsets[-1]),
            "corpus_tokens": int(train.offsets[-1]),
            "micro_batch_tokens": self.settings.micro_batch_size * self.settings.length,
            "environment": self.compute.environment(),
        }
        if train.cuts is not None:
            facts["segment_pairs"] = round(np.count_nonzero(train.cuts) / len(train), 4)
        return Pretrained(facts, self.validation, self.model)

    def advance(self) -> None:
        """One step."""
        state, settings, text = self.state, self.settings, self.text["train"]
        chosen = {"rows": settings.rows, "seed": settings.seed, "step": state.step}
        batch = training_batch(
            text, self.vocabulary, mask_probability=settings.mask_probability, **chosen
        )
        self.model.train()
        # Dropout's numbers follow from the step alone, so that a continued run needs no generator's state.
        torch.manual_seed(seed_of(settings.seed, state.step, 0))
        rate = settings.learning_rate * rate_factor(settings, state.step)
        parts = batch.parts(settings.micro_batch_size)
        losses = (
            masked_losses(self.model, part, self.compute, "sum") / max(1, len(batch.targets))
            for part in parts
        )
        state.pending.append(update(self.model, self.optimizer, rate, settings.clip_norm, losses))
        state.stream = hashlib.sha256(state.stream.encode() + batch.digest).hexdigest()
        state.tokens += batch.tokens
        state.step += 1

    @torch.inference_mode()
    def validate(self) -> float:
        """The validation loss: a mean over the masked tokens of the validation text, with the same masks every time."""
        self.model.eval()
        text, first = self.text["validation"], 0
        starts, documents = text.pieces
        loss_sum, count = np.zeros(len(starts)), np.zeros(len(starts), dtype=np.int64)
        for batch in evaluation_batches(text, self.vocabulary, self.settings.mask_probability):
            # In which of the text's pieces each target stands.
            row, column = np.divmod(batch.places.numpy(), batch.ids.shape[1])
            pieces = np.searchsorted(starts, text.offsets[first + row] + column, side="right") - 1
            losses = masked_losses(self.model, batch, self.compute, "none")[: len(pieces)]
            np.add.at(loss_sum, pieces, losses.cpu().numpy())
            np.add.at(count, pieces, 1)
            first += len(batch.ids)
            self.progress.repeat_last()
        loss = float(loss_sum.sum() / count.sum())
        self.check(loss, "validation loss")
        self.validation = {"loss_sum": loss_sum, "count": count, "document": documents}
        return loss

    def check(self, loss: float, name: str) -> None:
        """Raises NonFiniteLossError for a loss that is no number."""
        if not math.isfinite(loss):
            state = self.state
            spent = {
                "steps": state.step,
                "tokens": state.tokens,
                "seconds": round(state.seconds, 3),
            }
            raise NonFiniteLossError(
                f"{name} is {loss} at step {state.step}", {**spent, "losses": state.losses}
            )

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """For what is not training: the clock stands still."""
        self.state.seconds += time.perf_counter() - self.clock
        try:
            yield
        finally:
            self.clock = time.perf_counter()


def masked_losses(
    model: EncoderForMaskedLM, batch: MaskedBatch, compute: Compute, reduction: str
) -> Tensor:
    """The summed loss of a batch, or without reduction that of each target, and after these zeros."""
    more = (0, compute.few_sizes(len(batch.places)) - len(batch.places))
    batch = batch.to(compute.device)
    with compute.autocast():
        logits = model(
            batch.ids, batch.mask, batch.segments, places=F.pad(batch.places, more)
        ).logits
    targets = F.pad(batch.targets, more, value=-100)  # which cross_entropy leaves out
    return F.cross_entropy(logits.float(), targets, reduction=reduction)


def is_due(step: int, steps: int, times: int) -> bool:
    """Whether `step`, from 1 to `steps`, is one of `times`, or of all, that are spread evenly; the last always is."""
    return step * times % steps < times


def rate_factor(settings: PretrainingSettings, step: int) -> float:
    """The part of the learning rate at `step` (from 0): `linear` as in fine-tuning, or `trapezoid`.

    That stays at 1 between warm-up and a linear decay to zero over the last ceil(decay_share * steps) steps (Hägele et
    al. 2024, arXiv 2405.18392).
    """
    if settings.decay_share is None:
        return linear_factor(step, settings.steps, settings.warmup_ratio)
    warmup, decay = (
        math.ceil(share * settings.steps) for share in (settings.warmup_ratio, settings.decay_share)
    )
    return min(
        1.0, step / max(1, warmup) if step < warmup else 1.0, (settings.steps - step) / decay
    )


class OtherComputerError(UserError):
    """A state that only another kind of device, or another precision, may go on from; other arms are not concerned."""


class PretrainingFolder:
    """Where the pretraining of an id is kept."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name, self.folder = store, name, store.checkpoints(name)
        self.resume = self.folder / "resume.pt"

    def holds(self, step: int, digest: str | None) -> bool:
        """Whether the checkpoint after `step` steps is there with the weights of this digest."""
        return self.store.holds(self.name, step, digest)

    def save_checkpoint(
        self, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> str:
        """Keep the model with its tokenizer, without the pooler, which nothing has trained; its encoder's digest."""
        weights = {
            name: tensor for name, tensor in model.state_dict().items() if ".pooler." not in name
        }
        inside = {
            name.removeprefix("base."): tensor
            for name, tensor in weights.items()
            if name.startswith("base.")
        }
        digest = weights_digest(inside)
        place = self.store.checkpoint(self.name, step)
        with results_written_to(self.folder, GOES_ON), whole_folder(place, replaces=True) as aside:
            model.save_pretrained(aside, state_dict=weights)
            save_tokenizer(tokenizer, aside)
            (aside / WEIGHTS).write_text(digest)
        return digest

    def save_state(self, state: Mapping[str, Any], compute: Compute) -> None:
        """Replace the state to continue from, which notes where it was computed."""
        content = io.BytesIO()
        torch.save({"computed": [compute.device.type, compute.precision], **state}, content)
        with results_written_to(self.folder, GOES_ON):
            write_atomically(self.resume, content.getvalue())

    def read_state(self) -> dict[str, Any] | None:
        """The state last saved, or None; raises UserError where the file is damaged."""
        try:
            check_file(self.resume, 2**37)
            with opened_zip(self.resume) as archive:
                # torch.save notes the CRC-32 of every tensor; torch.load does not look at it.
                if damaged := archive.testzip():
                    raise ValueError(f"its part {damaged} is damaged")
            state: dict[str, Any] = torch.load(self.resume, map_location="cpu", weights_only=True)
            return {
                name: state[name] for name in ("computed", "rate", "model", "optimizer", "progress")
            }
        except FileNotFoundError:
            return None
        except Exception as error:  # what a damaged pickle raises is anything
            if is_out_of_memory(error):
                raise
            advice = "; delete it to start this arm anew" if is_damage(error) else ""
            raise UserError(f"cannot read '{self.resume}' ({first_line(error)}){advice}") from error

    def resumed_state(self, compute: Compute, rate: float) -> dict[str, Any] | None:
        """The state last saved, or None; one of another rate, which another search has chosen, counts as none.

        Raises as `read_state`, and OtherComputerError for one of another kind of device or another precision.
        """
        state, here = self.read_state(), [compute.device.type, compute.precision]
        if state is None or state["rate"] != rate:
            return None
        if state["computed"] != here:
            device, precision = state["computed"]
            wrong = f"was computed on {device} in {precision}, but this run computes on {here[0]} in {here[1]}"
            advice = f"give --device {device} --precision {precision}, or delete it to start this arm anew"
            raise OtherComputerError(f"'{self.resume}' {wrong}; {advice}")
        return state

    def end(self, *, keeps: bool = True) -> None:
        """There is nothing to continue. Checkpoints stay if they are to, and what a kill left half-written goes."""
        if not keeps:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.resume.unlink(missing_ok=True)
        for aside in self.folder.glob(".*"):
            shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
