"""One arm's pretraining on disk: kept checkpoints, and the state that a killed run continues from."""

import io
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from glue_bench.errors import UserError, first_line
from glue_bench.files import check_file, is_damage, opened_zip, results_written_to, whole_folder, write_atomically
from glue_bench.model.checkpoints import weights_digest
from glue_bench.records.store import WEIGHTS, Store
from glue_bench.training.compute import Compute, is_out_of_memory
from glue_bench.training.tokenizers import save_tokenizer


class OtherComputerError(UserError):
    """A state that only another kind of device, or another precision, may go on from; other arms are not concerned."""


class PretrainingFolder:
    """Where the pretraining of an id is kept."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name, self.folder = store, name, store.checkpoints(name)
        self.resume = self.folder / "resume.pt"

    def save_checkpoint(self, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
        """Keep the model with its tokenizer, without the pooler, which nothing has trained; its encoder's digest."""
        weights = {name: tensor for name, tensor in model.state_dict().items() if ".pooler." not in name}
        inside = {name.removeprefix("base."): tensor for name, tensor in weights.items() if name.startswith("base.")}
        digest = weights_digest(inside)
        with self.written(), whole_folder(self.store.checkpoint(self.name, step), replaces=True) as aside:
            model.save_pretrained(aside, state_dict=weights)
            save_tokenizer(tokenizer, aside)
            (aside / WEIGHTS).write_text(digest)
        return digest

    def save_state(self, state: Mapping[str, Any], compute: Compute, rate: float) -> None:
        """Replace the state to continue from, which notes where, and at which rate, it was computed."""
        content = io.BytesIO()
        torch.save({"computed": [compute.device.type, compute.precision], "rate": rate, **state}, content)
        with self.written():
            write_atomically(self.resume, content.getvalue())

    def written(self) -> AbstractContextManager[None]:
        """In this block the folder is written to; a full disk is one line."""
        return results_written_to(self.folder, "the same command goes on from the last state")

    def read_state(self) -> dict[str, Any] | None:
        """The state last saved, or None; raises UserError where the file is damaged."""
        try:
            check_file(self.resume, 2**37)
            with opened_zip(self.resume) as archive:
                # torch.save notes the CRC-32 of every tensor; torch.load does not look at it.
                if damaged := archive.testzip():
                    raise ValueError(f"its part {damaged} is damaged")
            state: dict[str, Any] = torch.load(self.resume, map_location="cpu", weights_only=True)
            return {name: state[name] for name in ("computed", "rate", "model", "optimizer", "progress")}
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
