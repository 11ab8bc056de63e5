"""Where the encoders are kept that cells start from, and the start of each cell."""

from dataclasses import replace
from pathlib import Path

from glue_bench.config import NATIVE, Arm, ArmPretraining, Cell
from glue_bench.errors import UserError
from glue_bench.files import check_checksums
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.native import read_native
from glue_bench.model.start import Start
from glue_bench.training.identities import cell_identity, pretraining_identity
from glue_bench.training.inputs import Inputs
from glue_bench.training.pretrained import PretrainingFolder


def pretraining_folder(run: ArmPretraining, inputs: Inputs) -> PretrainingFolder:
    """Where one pretraining is kept."""
    assert inputs.folder is not None, "an experiment with pretraining needs a folder"
    identity = pretraining_identity(run, inputs)
    return PretrainingFolder(inputs.folder / f"{run.arm.name}-{identity.digest}", identity.document())


def encoder_folder(cell: Cell, inputs: Inputs) -> Path:
    """Where a cell keeps what its encoder has learnt, if others start from it."""
    assert inputs.folder is not None, "cells that start from others need a folder"
    return inputs.folder / f"{cell.arm.name}-{cell.task}-s{cell.seed}-{cell_identity(cell, inputs).digest}"


def mnli_folder(cell: Cell, inputs: Inputs) -> Path | None:
    """Where the encoder of the MNLI cell is that the cell starts from; None if it starts from its arm."""
    source = inputs.experiment.mnli_cell(cell)
    return None if source is None else encoder_folder(source, inputs)


def pretrained(run: ArmPretraining, inputs: Inputs, steps: int) -> Start:
    """The arm after so many steps of one of its pretrainings.

    Raises:
        UserError: the checkpoint is damaged.
    """
    folder = pretraining_folder(run, inputs).checkpoint(steps)
    return inputs.once(("pretrained", folder), lambda: _kept_start(folder, run.arm, inputs))


def cell_start(cell: Cell, inputs: Inputs) -> Start:
    """What the cell starts from: its arm, or what its arm's MNLI cell has learnt.

    Raises:
        FileNotFoundError: the MNLI cell has left no encoder.
        UserError: the checkpoint is damaged.
    """
    run = inputs.experiment.pretraining_of(cell)
    start = pretrained(run, inputs, cell.steps) if run and cell.steps else inputs.initial(cell.arm)
    folder = mnli_folder(cell, inputs)
    if folder is None:
        return start
    if not folder.is_dir():
        raise FileNotFoundError(f"the MNLI run that it starts from has left no encoder in '{folder}'")
    tuned = _kept_start(folder, cell.arm, inputs)
    return replace(tuned, origin=start.origin, exact=start.exact, variance_kept=start.variance_kept)


def _kept_start(folder: Path, arm: Arm, inputs: Inputs) -> Start:
    """The arm with the weights of a checkpoint that a sweep has written."""
    try:
        check_checksums(folder)
    except ValueError as error:
        raise UserError(f"{error}; delete its folder, and the same command makes it again") from error
    if arm.variant == NATIVE:
        return read_native(str(folder), None, inputs.tokenizer(arm))
    return graft(read_checkpoint(str(folder)), arm.variant, arm.options)
