"""What decides an outcome, and so what ids are hashes of; under an older recipe, as that one had it."""

from typing import TYPE_CHECKING, Any

from glue_bench.config import SCRATCH, Arm, Cell
from glue_bench.model.plugins import plugin_digest
from glue_bench.recipe import recipe_key
from glue_bench.training.packing import LAYOUT_VERSION as PACKING_VERSION
from glue_bench.values import identity_digest

if TYPE_CHECKING:
    from glue_bench.training.workspace import Workspace

_WATCHES_ONLY = {"corpus", "tokenizer", "checkpoints", "finetune_checkpoints", "validations", "micro_batch_tokens"}
"""Settings of a pretraining that do not decide its weights, or whose content is hashed in their place."""


def cell_identity(cell: Cell, workspace: "Workspace") -> dict[str, Any]:
    """Everything that can change the cell's outcome, under the cell's recipe."""
    source = workspace.experiment.mnli_cell(cell)
    return {
        **_of_arm(cell.arm, workspace, cell.recipe),
        "arm": cell.arm.name,
        "start": start_digest(cell.arm, workspace, cell.steps, cell.pretraining_recipe),
        "task": cell.task,
        "data": workspace.data(cell.task).digest,
        "hyperparameters": cell.hyperparameters.model_dump(exclude_none=True),
        "seed": cell.seed,
        **({"from_mnli": workspace.digest(source)} if source else {}),
    }


def pretraining_identity(arm: Arm, workspace: "Workspace", recipe: int) -> dict[str, Any]:
    """Everything that decides the arm's pretrained weights, under a recipe."""
    return {
        **_of_arm(arm, workspace, recipe),
        "start": start_digest(arm, workspace),
        "corpus": workspace.corpus.digest,
        "packing": PACKING_VERSION,
        "settings": workspace.pretraining.model_dump(exclude=_WATCHES_ONLY),
    }


def start_digest(arm: Arm, workspace: "Workspace", steps: int | None = None, recipe: int = 1) -> str:
    """What the arm starts from: its pretraining by a recipe, the checkpoint's files, or the shape of fresh weights."""
    if steps is not None:
        return f"pretraining {identity_digest(pretraining_identity(arm, workspace, recipe))} step {steps}"
    if arm.checkpoint == SCRATCH:
        return f"{SCRATCH} {workspace.experiment.scratch.model_dump_json()}"
    return workspace.fingerprint(arm.checkpoint, arm.revision)


def _of_arm(arm: Arm, workspace: "Workspace", recipe: int) -> dict[str, Any]:
    """What the arm itself decides; the source of a variant of the user's own is part of it."""
    plugin = plugin_digest(arm.variant)
    return {
        "variant": arm.variant,
        "options": workspace.options(arm, recipe),
        "tokenizer": workspace.tokenizer_digest(arm, recipe),
        **({"plugin": plugin} if plugin else {}),
        **recipe_key(recipe),
    }
