"""The identities of an experiment's cells and pretrainings; under an older recipe, as that recipe had them."""

import json
from typing import Any

from glue_bench import recipe as recipes
from glue_bench.config import SCRATCH, Arm, Cell
from glue_bench.model.build import canonical_options
from glue_bench.model.plugins import plugin_digest
from glue_bench.records.identity import CellIdentity, PretrainingIdentity, pretrained_start
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import LAYOUT_VERSION as PACKING_VERSION

_WATCHES_ONLY = {"corpus", "tokenizer", "checkpoints", "finetune_checkpoints", "validations", "micro_batch_tokens"}
"""Settings of a pretraining that do not decide its weights, or whose content is hashed in their place."""


def cell_identity(cell: Cell, inputs: Inputs) -> CellIdentity:
    """Everything that can change the cell's outcome, under the cell's recipe."""
    source = inputs.experiment.mnli_cell(cell)
    return CellIdentity(
        **_of_arm(cell.arm, inputs, cell.recipe),
        start=start_digest(cell.arm, inputs, cell.steps, cell.pretraining_recipe),
        arm=cell.arm.name,
        task=cell.task,
        data=inputs.data(cell.task).digest,
        hyperparameters=cell.hyperparameters.model_dump(exclude_none=True),
        seed=cell.seed,
        from_mnli=cell_identity(source, inputs).digest if source else None,
    )


def pretraining_identity(arm: Arm, inputs: Inputs, recipe: int | None = None) -> PretrainingIdentity:
    """Everything that decides the arm's pretrained weights, under a recipe; None stands for this version's."""
    return PretrainingIdentity(
        **_of_arm(arm, inputs, recipe or recipes.RECIPE),
        start=start_digest(arm, inputs),
        corpus=inputs.corpus.digest,
        packing=PACKING_VERSION,
        settings=inputs.pretraining.model_dump(exclude=_WATCHES_ONLY),
    )


def pretraining_id(arm: Arm, inputs: Inputs, recipe: int | None = None) -> str:
    """The arm's name and the digest of everything that decides its pretrained weights."""
    return f"{arm.name}-{pretraining_identity(arm, inputs, recipe).digest}"


def start_digest(arm: Arm, inputs: Inputs, steps: int | None = None, recipe: int | None = None) -> str:
    """What the arm starts from: a pretraining under a recipe, the checkpoint's files, or the sizes of fresh weights."""
    if steps is not None:
        return pretrained_start(pretraining_identity(arm, inputs, recipe).digest, steps)
    if arm.checkpoint == SCRATCH:
        sizes = inputs.experiment.scratch.model_dump_json()
        if arm.embedding_size is not None:
            sizes = json.dumps(json.loads(sizes) | {"embedding_size": arm.embedding_size})
        return f"{SCRATCH} {sizes}"
    return inputs.fingerprint(arm)


def options_of(arm: Arm, recipe: int | None = None) -> dict[str, Any]:
    """The arm's options as a recipe hashes them: the first recipe has them as they stand in the experiment file."""
    return arm.options if recipe == 1 else canonical_options(arm.variant, arm.options)


def _of_arm(arm: Arm, inputs: Inputs, recipe: int) -> dict[str, Any]:
    """What the arm itself decides; the source of a variant of the user's own is part of it."""
    return {
        "variant": arm.variant,
        "options": options_of(arm, recipe),
        "tokenizer": inputs.tokenizer_digest(arm, recipe),
        "plugin": plugin_digest(arm.variant),
        "recipe": recipe,
    }
