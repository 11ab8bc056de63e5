"""The identities of an experiment's cells and pretrainings; under an older recipe, as that recipe had them."""

import json
from typing import Any

from glue_bench.config import NATIVE, SCRATCH, Arm, ArmPretraining, Cell, Pretraining
from glue_bench.model.native import NativeStart
from glue_bench.model.plugins import plugin_digest
from glue_bench.model.variants.options import canonical_options
from glue_bench.records.identity import CellIdentity, PretrainingIdentity, pretrained_start
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import LAYOUT_VERSION as PACKING_VERSION

_WATCHES_ONLY = {"corpus", "tokenizer", "checkpoints", "finetune_checkpoints", "validations", "micro_batch_tokens"}
"""Settings of a pretraining that do not decide its weights, or whose content is hashed in their place; see `_parts`."""


def cell_identity(cell: Cell, inputs: Inputs) -> CellIdentity:
    """Everything that can change the cell's outcome, under the cell's recipe."""
    source = inputs.experiment.mnli_cell(cell)
    return CellIdentity(
        **_of_arm(cell.arm, inputs, cell.recipe),
        start=cell_start_digest(cell, inputs),
        arm=cell.arm.name,
        task=cell.task,
        data=inputs.data(cell.task).digest,
        hyperparameters=cell.hyperparameters.model_dump(exclude_none=True),
        seed=cell.seed,
        from_mnli=cell_identity(source, inputs).digest if source else None,
    )


def pretraining_identity(run: ArmPretraining, inputs: Inputs) -> PretrainingIdentity:
    """Everything that decides the weights of one pretraining, under its recipe."""
    return PretrainingIdentity(
        **_of_arm(run.arm, inputs, run.recipe),
        start=start_digest(run.arm, inputs),
        corpus=inputs.corpus.digest,
        packing=PACKING_VERSION,
        settings=_hashed(run.settings) | _parts(run, inputs),
    )


def _parts(run: ArmPretraining, inputs: Inputs) -> dict[str, int]:
    """The tokens that are computed at once, where they decide weights: what dropout drops is drawn for each part.

    Of a checkpoint's own rates of dropout nothing is known here; they are taken to be above zero.
    """
    settings, scratch = run.settings, inputs.experiment.scratch
    own = 1.0
    if run.arm.checkpoint == SCRATCH:
        own = max(scratch.hidden_dropout_prob, scratch.attention_probs_dropout_prob)
    drops = (own if settings.dropout is None else settings.dropout) > 0
    if run.recipe == 1 or not drops or settings.rows_at_once == settings.rows:
        return {}
    return {"micro_batch_tokens": settings.rows_at_once * settings.length}


def _hashed(settings: Pretraining) -> dict[str, Any]:
    """One run's settings. A rate that is searched for follows from the rates and the search: these are hashed."""
    values = settings.model_dump(exclude=_WATCHES_ONLY | {"seeds", "learning_rates", "rate_search"})
    values["seed"] = settings.seed
    if settings.rate_search is None:
        return values | {"learning_rate": settings.learning_rate}
    search = settings.rate_search.model_dump()
    return values | {"learning_rates": sorted(settings.learning_rates), "rate_search": search}


def pretraining_id(run: ArmPretraining, inputs: Inputs) -> str:
    """The arm's name and the digest of everything that decides the pretrained weights."""
    return f"{run.arm.name}-{pretraining_identity(run, inputs).digest}"


def start_digest(arm: Arm, inputs: Inputs) -> str:
    """What the arm itself starts from: the checkpoint's files, or the sizes of fresh weights."""
    if arm.checkpoint == SCRATCH:
        sizes = inputs.experiment.scratch.model_dump_json()
        if arm.embedding_size is not None:
            sizes = json.dumps(json.loads(sizes) | {"embedding_size": arm.embedding_size})
        return f"{SCRATCH} {sizes}"
    start = inputs.initial(arm) if arm.variant == NATIVE else None
    return inputs.fingerprint(arm) + (start.said if isinstance(start, NativeStart) else "")


def cell_start_digest(cell: Cell, inputs: Inputs) -> str:
    """What the cell starts from: a pretraining, or what its arm itself starts from."""
    run = inputs.experiment.pretraining_of(cell)
    if run is None or cell.steps is None:
        return start_digest(cell.arm, inputs)
    return pretrained_start(pretraining_identity(run, inputs).digest, cell.steps)


def options_of(arm: Arm, recipe: int | None = None) -> dict[str, Any]:
    """The arm's options as a recipe hashes them: the first recipe has them as they stand in the experiment file.

    A native arm has none.
    """
    return arm.options if recipe == 1 or arm.variant == NATIVE else canonical_options(arm.variant, arm.options)


def _of_arm(arm: Arm, inputs: Inputs, recipe: int) -> dict[str, Any]:
    """What the arm itself decides; the source of a variant of the user's own is part of it."""
    return {
        "variant": arm.variant,
        "options": options_of(arm, recipe),
        "tokenizer": inputs.tokenizer_digest(arm, recipe),
        "plugin": plugin_digest(arm.variant),
        "recipe": recipe,
    }
