"""One arm's pretraining on disk: kept checkpoints, and the state that a killed run continues from.

<folder>/identity.json     what decides the weights
<folder>/step-<n>/         a checkpoint of EncoderForMaskedLM with its tokenizer; the last step's is the arm's own
<folder>/step-<n>/curve    which run it is of: the digest of the loss curve up to it; those of earlier versions lack it
<folder>/resume.pt         the latest state of a run that has not ended
"""

import io
import json
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from glue_bench.errors import UserError
from glue_bench.files import (
    check_file,
    is_damage,
    opened_zip,
    parse_json,
    read_file,
    results_written_to,
    whole_folder,
    write_atomically,
    write_checksums,
)
from glue_bench.training.compute import Compute
from glue_bench.training.memory import is_out_of_memory

IDENTITY = "identity.json"
CURVE = "curve"


class OtherComputerError(UserError):
    """A state that only another kind of device, or another precision, may go on from; other arms are not concerned."""


class PretrainingFolder:
    """Where one arm's pretraining is kept. Nothing of another configuration is ever read or overwritten."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self.identity = dict(identity)

    def checkpoint(self, step: int) -> Path:
        """The folder of the checkpoint after `step` steps, whether or not it exists."""
        return self.folder / f"step-{step}"

    def lacks(self, steps: list[int]) -> bool:
        """Whether one of these steps' checkpoints is not there."""
        return any(not self.checkpoint(step).is_dir() for step in steps)

    def holds(self, step: int, curve: str) -> bool:
        """Whether the checkpoint after `step` steps is there, and of the run that has this curve, as far as it says.

        Where lost weights are made anew, on another processor perhaps, the checkpoints of two runs lie here until the
        second one has ended.
        """
        if self.lacks([step]):
            return False
        try:
            return read_file(self.checkpoint(step) / CURVE) == curve.encode()
        except OSError:
            return True

    def prepare(self) -> None:
        """Make the folder, or check that it is of this very configuration.

        Raises:
            UserError: it holds a pretraining of another configuration, or is damaged.
        """
        self.check()
        path = self.folder / IDENTITY
        if not path.exists():
            with self._written():
                write_atomically(path, json.dumps(self.identity, indent=1, sort_keys=True).encode())

    def check(self) -> None:
        """That the folder, if it is there, is of this very configuration.

        Raises:
            UserError: it holds a pretraining of another configuration, or is damaged.
        """
        path = self.folder / IDENTITY
        if not path.exists():
            return
        try:
            found = dict(parse_json(read_file(path)))
        except (OSError, ValueError, TypeError) as error:  # TypeError: valid JSON, but no object
            if is_damage(error):
                raise UserError(f"'{path}' is damaged ({error}); delete the folder and run again") from error
            raise UserError(f"cannot read '{path}' ({error})") from error
        differ = sorted(k for k in self.identity | found if self.identity.get(k) != found.get(k))
        if differ:
            raise UserError(
                f"'{self.folder}' holds a pretraining of another configuration (it differs in {', '.join(differ)}); "
                "move it away, or choose another folder with --results"
            )

    def save_checkpoint(
        self, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, curve: str
    ) -> None:
        """Keep the model, without its pooler, which masked-LM pretraining does not train, and the digest of its curve.

        A checkpoint that is there is of an earlier run, which the record of this one will not describe.
        """
        with self._written(), whole_folder(self.checkpoint(step), replaces=True) as aside:
            weights = {name: tensor for name, tensor in model.state_dict().items() if ".pooler." not in name}
            model.save_pretrained(aside, state_dict=weights)
            tokenizer.save_pretrained(aside)
            write_atomically(aside / CURVE, curve.encode())
            write_checksums(aside)

    def save_state(self, state: Mapping[str, Any], compute: Compute) -> None:
        """Replace the state to continue from, which notes where it was computed."""
        content = io.BytesIO()
        identity = json.dumps(self.identity, sort_keys=True)
        torch.save({"identity": identity, "computed": _noted(compute), **state}, content)
        with self._written():
            write_atomically(self.folder / "resume.pt", content.getvalue())

    def _written(self) -> AbstractContextManager[None]:
        return results_written_to(self.folder, "the same command goes on from the last state")

    def read_state(self) -> dict[str, Any] | None:
        """The state last saved, or None.

        Raises:
            UserError: the file is damaged, or of another configuration.
        """
        path = self.folder / "resume.pt"
        try:
            check_file(path, 2**37)
            with opened_zip(path) as archive:
                # torch.save notes the CRC-32 of every tensor; torch.load does not look at it.
                if damaged := archive.testzip():
                    raise ValueError(f"its part {damaged} is damaged")
            state = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:  # none, or that of another sweep, which has just ended
            return None
        except Exception as error:  # what a damaged pickle raises is anything
            if is_out_of_memory(error):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            advice = "; delete it to start this arm anew" if is_damage(error) else ""
            raise UserError(f"cannot read '{path}' ({reason}){advice}") from error
        if not isinstance(state, dict) or state.get("identity") != json.dumps(self.identity, sort_keys=True):
            raise UserError(f"'{path}' is the state of another configuration; delete it to start this arm anew")
        return state

    def resumed_state(self, compute: Compute) -> dict[str, Any] | None:
        """The state last saved, or None.

        Raises:
            UserError: as `read_state`.
            OtherComputerError: it was computed on another kind of device or in another precision.
        """
        state, here = self.read_state(), _noted(compute)
        if state is not None and state["computed"] != here:
            device, precision = state["computed"]["device"], state["computed"]["precision"]
            raise OtherComputerError(
                f"'{self.folder / 'resume.pt'}' was computed on {device} in {precision}, but this run computes on "
                f"{here['device']} in {here['precision']}; give --device {device} --precision {precision}, or "
                "delete it to start this arm anew"
            )
        return state

    def drop_state(self) -> None:
        """The run has ended; there is nothing to continue. What a kill left half-written goes too."""
        (self.folder / "resume.pt").unlink(missing_ok=True)
        for aside in self.folder.glob(".*"):
            shutil.rmtree(aside) if aside.is_dir() else aside.unlink()


def _noted(compute: Compute) -> dict[str, str]:
    return {"device": compute.device.type, "precision": compute.precision}
