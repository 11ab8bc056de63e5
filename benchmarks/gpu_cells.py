"""What the checks on a GPU train: small encoders on the demo, of every variant, and how one is watched."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from glue_bench.config import Arm, Cell, Experiment, Pretraining, ScratchEncoder
from glue_bench.config.sections import Finetuning
from glue_bench.model.checkpoints import Start
from glue_bench.model.transformers_api import EncoderForSequenceClassification
from glue_bench.model.variants import VARIANTS
from glue_bench.training import finetune as finetuning
from glue_bench.training.device_split import DeviceBatch, on_device
from glue_bench.training.engine import row_losses
from glue_bench.training.finetune import build_classifier
from glue_bench.training.inputs import Inputs
from glue_bench.training.resident import ResidentTraining
from glue_bench.training.tokens import TokenisedSplit, TokenisedTask

TASK = "rte"  # pairs of sentences: segments count, too
FEW_VARIANTS = ("add", "untied", "shaw")
ROWS = 16  # of a batch
LONGEST = 32  # tokens of an example: two of the lengths that batches are padded to, and so two recordings
SOURCE = 16  # tokens at least of an example of the demo, of which several make a long one


@dataclass(frozen=True)
class Plan:
    """What is run, and on what; `aside` is a folder for what is made on the way.

    `tiny` is a run on a CPU that shows that everything works, and nothing else.
    """

    device: str
    tiny: bool
    data: str
    corpus: str
    checkpoint: str
    aside: str

    @property
    def variants(self) -> list[str]:
        """Those that are checked."""
        return list(FEW_VARIANTS if self.tiny else VARIANTS)

    @property
    def torch_device(self) -> torch.device:
        """The device under test."""
        return torch.device(self.device)

    @property
    def precision(self) -> str:
        """What a GPU computes in."""
        return "bf16" if self.device == "cuda" else "fp32"


@dataclass(frozen=True)
class Case:
    """One cell with what it is trained on, cut short."""

    cell: Cell
    start: Start
    tokens: TokenisedTask

    def classifier(self) -> EncoderForSequenceClassification:
        """A fresh one: the same bits each time."""
        return build_classifier(self.start, self.cell.task, self.cell.seed)

    def changed(self, **settings: Any) -> "Case":
        """The case with another seed or other hyperparameters."""
        seed = {"seed": settings.pop("seed")} if "seed" in settings else {}
        hyperparameters = self.cell.hyperparameters.model_copy(update=settings)
        return replace(self, cell=self.cell.model_copy(update=seed | {"hyperparameters": hyperparameters}))

    def batch(self, device: torch.device) -> DeviceBatch:
        """The first rows of train."""
        train = self.tokens.splits["train"]
        rows = torch.arange(ROWS, device=device)
        return on_device(train, self.tokens.padding_id, device).gather(rows, int(train.lengths[:ROWS].max()))


class Cases:
    """Cells of every variant at one size, made when they are asked for."""

    def __init__(
        self,
        *,
        steps: int,
        dropout: float = 0.0,
        hidden: int = 64,
        blocks: int = 2,
        rows: int = ROWS,
        longest: int = LONGEST,
    ) -> None:
        self.steps, self.dropout, self.hidden, self.blocks, self.rows = steps, dropout, hidden, blocks, rows
        self.longest = longest

    @cached_property
    def inputs(self) -> Inputs:
        """Of an experiment with an arm of every variant, for fine-tuning and for pretraining."""
        return Inputs(
            Experiment(
                name="gpu",
                data="demo",
                arms=[Arm(name=name, variant=name, checkpoint="scratch") for name in VARIANTS],
                tasks=[TASK],
                seeds=[1],
                scratch=ScratchEncoder(
                    vocab_size=500,
                    hidden_size=self.hidden,
                    num_hidden_layers=self.blocks,
                    num_attention_heads=self.hidden // 32,
                    intermediate_size=4 * self.hidden,
                    max_position_embeddings=2 * self.longest,
                    hidden_dropout_prob=self.dropout,
                    attention_probs_dropout_prob=self.dropout,
                ),
                finetuning=Finetuning(
                    learning_rates=[3e-4], epochs=1, batch_size=self.rows, max_length=2 * self.longest
                ),
            )
        )

    def case(self, variant: str, batches: int | None = None, first_row: int = 0) -> Case:
        """`steps` batches of train, or so many, from a row on, and as many rows of every other split."""
        cell = next(cell for cell in self.inputs.experiment.cells() if cell.arm.variant == variant)
        tokens, wanted = self.inputs.tokens(cell), first_row + np.arange((batches or self.steps) * self.rows)
        splits = {
            name: varied(split.take(np.resize(np.arange(len(split)), first_row + len(wanted))[wanted]), self.longest)
            for name, split in tokens.splits.items()
        }
        return Case(cell, self.inputs.initial(cell.arm), replace(tokens, splits=splits))


def varied(split: TokenisedSplit, longest: int = LONGEST) -> TokenisedSplit:
    """The split with examples of 4 to `longest` tokens: the demo's are all of one length, and nothing would be padded.

    An example is its own tokens and those of the next ones, cut off at a random length.
    """
    rows, parts = np.arange(len(split)), longest // SOURCE
    joined = split.take(((rows[:, None] + np.arange(parts)) % len(split)).ravel())
    lengths = np.random.default_rng(0).integers(4, longest, len(split), endpoint=True)
    lengths = np.minimum(lengths, np.diff(joined.offsets[::parts]))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(offsets[-1]) + np.repeat(joined.offsets[:-1:parts] - offsets[:-1], lengths)
    return TokenisedSplit(joined.ids[places], joined.segments[places], offsets, split.labels)


def pretraining_inputs(steps: int, rows: int) -> Inputs:
    """Arms of every variant to be pretrained on the demo, without dropout."""
    made = Cases(steps=steps).inputs.experiment
    settings = Pretraining(
        corpus=["demo"], steps=steps, batch_tokens=rows * 32, length=32, validations=1, learning_rate=3e-4
    )
    return Inputs(made.model_copy(update={"pretraining": settings}))


@dataclass(frozen=True)
class Trace:
    """What a training leaves: the loss of every step, its weights, and the logits of the validation split."""

    losses: np.ndarray
    weights: Tensor
    logits: np.ndarray

    def differing(self, other: "Trace") -> int:
        """How many losses, weights and logits have not the same bits."""
        weights = self.weights.numpy(), other.weights.numpy()
        pairs = [(self.losses, other.losses), weights, (self.logits, other.logits)]
        return sum(differing_bits(mine, yours) for mine, yours in pairs)

    def error(self, other: "Trace", steps: int | None = None) -> float:
        """The largest relative difference of a loss, of the first `steps`."""
        mine, yours = self.losses[:steps], other.losses[:steps]
        return float(np.max(np.abs(mine - yours) / np.abs(yours)))


def differing_bits(mine: np.ndarray, yours: np.ndarray) -> int:
    """How many float32 numbers of two arrays have not the same bits."""
    return int((mine.view(np.int32) != yours.view(np.int32)).sum())


class _Watched(ResidentTraining):
    """Keeps the loss of every step."""

    def _epoch(self, *arguments: Any) -> Tensor:
        found = super()._epoch(*arguments)
        self.kept = [*getattr(self, "kept", []), found.cpu().numpy()]
        return found


def trace(case: Case, device: torch.device) -> Trace:
    """Train by recorded steps on a device, in the engine that the process has for it."""
    training = _Watched(case.classifier(), case.cell, case.tokens, None, device)
    for _ in training.epochs():
        pass
    weights = torch.cat([weight.detach().flatten().cpu() for weight in training.model.parameters()])
    return Trace(np.concatenate(training.kept), weights, training.predict("validation"))


def losses_of_one_batch(case: Case, device: torch.device, times: int) -> list[float]:
    """The loss of the same batch by weights that never change: only dropout can make it differ."""
    engine = ResidentTraining(case.classifier(), case.cell, case.tokens, None, device).engine
    train = case.tokens.splits["train"]
    length = engine.padded(int(train.lengths[:ROWS].max()), case.cell.hyperparameters.max_length)
    split = on_device(train, case.tokens.padding_id, device)
    batch = split.gather(torch.arange(ROWS, device=device), length)
    engine.prepare([length], split.labels.dtype)
    engine.load(case.classifier())
    torch.manual_seed(case.cell.seed)
    still = torch.zeros((), device=device)
    return [float(engine.step(batch, still)) for _ in range(times)]


def gradients(
    case: Case, model: EncoderForSequenceClassification, device: torch.device
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of the first batch, in the precision of the surrounding autocast."""
    model = copy.deepcopy(model).to(device).train()
    batch = case.batch(device)
    logits = model(batch.ids, batch.mask, batch.segments).logits
    loss = row_losses(logits, batch.labels).mean()
    loss.backward()
    found = {name: p.grad.cpu().double() for name, p in model.named_parameters() if p.grad is not None}
    return float(loss.detach()), found


def relative_errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """|found - expected| / |expected| of all gradients as one vector, and of the worst tensor.

    A tensor's own size counts from a hundredth of the whole on: below that its gradient may be rounding alone, as that
    of the keys' bias, which no softmax feels.
    """
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    apart = {name: float((found[name] - value).norm()) for name, value in expected.items()}
    size = {name: float(value.norm()) for name, value in expected.items()}
    whole = float(np.linalg.norm(list(size.values())))
    return {
        "gradient_error": float(np.linalg.norm(list(apart.values()))) / whole,
        "worst_tensor_error": max(apart[name] / max(size[name], whole / 100) for name in expected),
    }


@contextmanager
def by_recorded_steps() -> Iterator[None]:
    """Cells take a GPU's way on a CPU, too."""
    with mock.patch.object(finetuning, "records_steps", return_value=True):
        yield
