"""The checkpoints of a pretraining, and the state from which a killed run continues."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from glue_bench.errors import UserError, first_line
from glue_bench.files import (
    check_file,
    is_damage,
    opened_zip,
    results_written_to,
    write_atomically,
)
from glue_bench.model.start import weights_digest
from glue_bench.records.store import Store
from glue_bench.records.values import LossPoint
from glue_bench.training.device import Compute
from glue_bench.training.memory import is_out_of_memory
from glue_bench.training.tokenizers import save_tokenizer

RESUME_STATE_ADVICE = "the same command goes on from the last state"  # said if the disk is full
MAX_STATE_BYTES = 2**37
STATE_KEYS = ("computed", "rate", "model", "optimizer", "progress")


class OtherComputerError(UserError):
    """A state needs another device or precision. This stops one arm; other arms can run."""


@dataclass
class State:
    """The progress of a run.

    - `tokens`: how many tokens all batches so far had, without padding.
    - `seconds`: time spent in training alone.
    - `stream`: a hash over every batch so far.
    - `losses`: the points of the curve so far.
    - `pending`: the losses of the steps since the last point.
    - `weights`: the digest of each checkpoint's weights, by step.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stream: str = ""
    losses: list[LossPoint] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)
    weights: dict[int, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the state in types that `torch.load` reads with `weights_only`."""
        points = [point.model_dump() for point in self.losses]
        return {**vars(self), "losses": points}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], device: torch.device) -> Self:
        """Return the state that `as_dict` has written, with its tensors on a device."""
        state = cls(**values)
        state.losses = [LossPoint(**point) for point in values["losses"]]
        state.pending = [loss.to(device) for loss in state.pending]
        return state


class PretrainingFolder:
    """The folder of one pretraining: `name` is the pretraining's id."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.folder = store.checkpoints.folder_of(name)
        self.resume = store.checkpoints.state(name)

    def holds(self, step: int, digest: str | None) -> bool:
        """Return whether the checkpoint after `step` steps has weights with this digest."""
        return self.store.checkpoints.has(self.name, step, digest)

    def save_checkpoint(
        self, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> str:
        """Save the model with its tokenizer. The pooler is left out, because nothing trained it.

        Args:
            step: the number of steps that the model was trained.
            model: an encoder under its masked-LM head.
            tokenizer: the tokenizer of the text.

        Returns:
            The digest of the encoder's weights.
        """
        weights: dict[str, torch.Tensor] = {}
        encoder_weights: dict[str, torch.Tensor] = {}
        for name, tensor in model.state_dict().items():
            if ".pooler." in name:
                continue
            weights[name] = tensor
            if name.startswith("base."):
                encoder_weights[name.removeprefix("base.")] = tensor
        digest = weights_digest(encoder_weights)

        def save(folder: Path) -> None:
            model.save_pretrained(folder, state_dict=weights)
            save_tokenizer(tokenizer, folder)

        with results_written_to(self.folder, RESUME_STATE_ADVICE):
            self.store.checkpoints.write(self.name, step, digest, save)
        return digest

    def save_state(self, state: Mapping[str, Any], compute: Compute) -> None:
        """Replace the state to continue from. It notes the device and the precision."""
        content = io.BytesIO()
        torch.save({"computed": [compute.device.type, compute.precision], **state}, content)
        with results_written_to(self.folder, RESUME_STATE_ADVICE):
            write_atomically(self.resume, content.getvalue())

    def read_state(self) -> dict[str, Any] | None:
        """Read the state that was saved last. It is None if there is no state.

        Raises UserError if the file is damaged.
        """
        try:
            check_file(self.resume, MAX_STATE_BYTES)
            with opened_zip(self.resume) as archive:
                # torch.save notes the CRC-32 of every tensor; torch.load does not look at it.
                if damaged := archive.testzip():
                    raise ValueError(f"its part {damaged} is damaged")
            state: dict[str, Any] = torch.load(self.resume, map_location="cpu", weights_only=True)
            return {name: state[name] for name in STATE_KEYS}
        except FileNotFoundError:
            return None
        except Exception as error:  # a damaged pickle may raise anything
            if is_out_of_memory(error):
                raise
            advice = "; delete it to start this arm anew" if is_damage(error) else ""
            raise UserError(f"cannot read '{self.resume}' ({first_line(error)}){advice}") from error

    def resumed_state(
        self, compute: Compute, rate: float, kept_steps: Sequence[int]
    ) -> dict[str, Any] | None:
        """Read the state that a run can continue from. It is None if there is no such state.

        A state with another learning rate, which another search has chosen, is not used. A state is
        also not used if an earlier checkpoint is missing. This happens if the experiment asks for
        that checkpoint only now.

        Args:
            compute: where the run computes.
            rate: the learning rate of the run.
            kept_steps: the steps whose checkpoints the run keeps.

        Raises:
            UserError: the file is damaged.
            OtherComputerError: the state was computed on another kind of device or in another
                precision.
        """
        state = self.read_state()
        if state is None or state["rate"] != rate:
            return None
        device, precision = state["computed"]
        if [device, precision] != [compute.device.type, compute.precision]:
            raise OtherComputerError(
                f"'{self.resume}' was computed on {device} in {precision}, "
                f"but this run computes on {compute.device.type} in {compute.precision}; "
                f"give --device {device} --precision {precision}, "
                "or delete it to start this arm anew"
            )
        progress = state["progress"]
        for step in kept_steps:
            if step < progress["step"] and not self.holds(step, progress["weights"].get(step)):
                return None
        return state
