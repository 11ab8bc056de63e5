"""The kinds of models that transformers reads as classifiers of texts."""

from pathlib import Path

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from glue_bench.errors import UserError, quoted
from glue_bench.model.locate import read_json


def check_kind(folder: Path, name: str) -> None:
    """Refuse a checkpoint of a kind that transformers by itself does not classify texts with.

    A kind that nobody knows is refused where transformers reads it.

    Args:
        folder: The folder of the checkpoint.
        name: The name by which the user calls it.

    Raises:
        UserError: the checkpoint needs code that comes with it, or is of a kind that transformers
            has without a classifier of texts.
    """
    settings = read_json(folder / "config.json")
    kind = settings.get("model_type")
    if kind in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        return
    version = f"transformers {transformers.__version__}"
    if settings.get("auto_map"):
        fault = f"{version} has no classifier of model_type {quoted(kind)} by itself"
        advice = "code of a checkpoint is never run; give a checkpoint of a model that transformers"
        raise UserError(
            f"checkpoint '{name}' comes with code of its own, and {fault}; {advice} has"
        )
    if kind in CONFIG_MAPPING_NAMES:
        fault = f"is of model_type {quoted(kind)}, and {version} has no classifier of texts for it"
        raise UserError(f"checkpoint '{name}' {fault}; give another checkpoint")
