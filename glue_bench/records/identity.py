"""What decides an outcome. Ids end in the digests of these values."""

import hashlib
import json
import math
import re
from typing import Any, ClassVar

from pydantic import ConfigDict, field_validator

from glue_bench.records.value import StoredValue

_PRETRAINED = re.compile(r"pretraining ([0-9a-f]+) step (\d+)")


class Identity(StoredValue):
    """What cells and pretrainings have in common: what the arm itself decides, and what its weights start from.

    Of a variant of the user's own, `plugin` is the digest of its source. `recipe` and `plugin` are hashed only where
    they say something, so that ids of versions that did not know them stay as they are. Keys of other versions are
    kept, because the digest is over all of them.
    """

    model_config = ConfigDict(extra="allow")
    left_out: ClassVar = frozenset({"plugin", "recipe"})

    variant: str
    options: dict[str, Any]
    tokenizer: str
    plugin: str | None = None
    recipe: int = 1
    start: str

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of the value's JSON: the end of an id."""
        return hashlib.sha256(json.dumps(self.document(), sort_keys=True).encode()).hexdigest()[:12]


class CellIdentity(Identity):
    """Everything that can change the outcome of a cell.

    `from_mnli` is the digest of the MNLI cell that it starts from. `tokenizer` is empty where nothing stored tells it
    (records of earlier versions); the digest is then not the one that the cell's id ends in.
    """

    left_out: ClassVar = Identity.left_out | {"from_mnli"}

    tokenizer: str = ""
    arm: str
    task: str
    data: str
    hyperparameters: dict[str, Any]
    seed: int
    from_mnli: str | None = None


class PretrainingIdentity(Identity):
    """Everything that decides an arm's pretrained weights."""

    corpus: str
    packing: int
    settings: dict[str, Any]

    @field_validator("settings")
    @classmethod
    def _has_numbers(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for key in ("learning_rate", "steps"):
            if type(settings.get(key, 0)) not in (int, float):
                raise ValueError(f"{key} is no number")
        return settings

    @property
    def learning_rate(self) -> float:
        """The learning rate that the settings say, or NaN."""
        return float(self.settings.get("learning_rate", math.nan))


def digest_of(stored_id: str) -> str:
    """The digest of an identity, at the end of the id of a cell or a pretraining."""
    return stored_id.rpartition("-")[2]


def pretrained_start(digest: str, steps: int) -> str:
    """What a cell starts from after so many steps of the pretraining whose identity has this digest."""
    return f"pretraining {digest} step {steps}"


def pretraining_of(start: str) -> tuple[str, int] | None:
    """The digest and the steps that a `pretrained_start` says; None for a start of another kind."""
    found = _PRETRAINED.fullmatch(start)
    return (found[1], int(found[2])) if found else None
