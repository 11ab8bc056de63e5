"""What a cell's id is a hash of, put together again from its record or from the plan."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from glue_bench.config import cell_id
from glue_bench.recipe import recipe_key
from glue_bench.records.record import Record
from glue_bench.records.store import Store
from glue_bench.values import identity_digest

Identity = Mapping[str, Any]
PRETRAINED = re.compile(r"pretraining ([0-9a-f]+) step (\d+)")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What an experiment's folder and its plan know: records by id, planned cells by id, pretrainings by their hash."""

    plan: Mapping[str, Any]
    records: Mapping[str, Record]
    pretrainings: Mapping[str, Identity]

    def in_terms_of_now(self, identity: Identity) -> Identity:
        """The identity with what older recipes hash otherwise as the plan's own recipe has it.

        Where the plan has no arm of these options and this tokenizer, they stay as they are.
        """
        recipe, now = str(identity.get("recipe", 1)), dict(identity)
        for arm in self.plan.get("arms", {}).values():
            then = arm.get("older", {}).get(recipe, {})
            if arm["variant"] == identity["variant"] and then.get("options") == identity["options"]:
                now["options"] = arm["options"]
            if then and then["tokenizer"] == identity.get("tokenizer"):
                now["tokenizer"] = arm["tokenizer"]
        return now

    @cached_property
    def planned(self) -> dict[str, Mapping[str, Any]]:
        """The cells that the plan asks for, by id."""
        return {cell["cell_id"]: cell for cell in self.plan.get("cells", ())}

    def identity(self, cell_id: str) -> Identity | None:
        """What the id is a hash of, from the plan or else the record; None where neither holds it.

        Records of earlier versions lack `tokenizer`, which is left out where no pretraining tells it either.
        """
        if cell_id in self.planned and "tasks" in self.plan:
            return planned_identity(self.plan, self.planned[cell_id])
        return self.record_identity(cell_id)

    def record_identity(self, cell_id: str) -> Identity | None:
        """What the record says of its identity, as `identity`."""
        record = self.records.get(cell_id)
        return None if record is None else record_identity(record, self.pretrainings)


def known(store: Store, plan: Mapping[str, Any] | None) -> Known:
    """What the experiment's folder holds, under a plan that need not be the stored one.

    Raises:
        UserError: a record of pretraining cannot be read.
    """
    plan = plan or {}
    stored = {ending(record.pretraining_id): record.identity for record in store.read_pretrainings()}
    facts = [arm for arm in plan.get("arms", {}).values() if "pretraining_identity" in arm]
    asked = {ending(arm["pretraining"]): arm["pretraining_identity"] for arm in facts}
    records = {record.cell_id: record for record in store.scan_records()[0]}
    return Known(plan=plan, records=records, pretrainings=stored | asked)


def planned_identity(plan: Mapping[str, Any], cell: Mapping[str, Any]) -> Identity:
    """The identity of a cell of plan.json. Raises KeyError for plans of versions that did not store what it takes."""
    arm, task, steps = plan["arms"][cell["arm"]], plan["tasks"][cell["task"]], cell.get("steps")
    pretraining = cell.get("pretraining") or arm["pretraining"]
    # Plans of the first recipe know no older one: theirs are the arm's own facts.
    hashed = arm.get("older", {}).get(str(cell.get("recipe", 1)), arm)
    return {
        **_cell(cell),
        **recipe_key(cell.get("recipe", 1)),
        "options": hashed["options"],
        "start": arm["start"] if steps is None else f"pretraining {ending(pretraining)} step {steps}",
        "tokenizer": hashed["tokenizer"],
        "data": task["data"],
        "hyperparameters": {"learning_rate": cell["learning_rate"], **task["hyperparameters"]},
        **_optional(cell.get("from_mnli"), arm["plugin"]),
    }


def record_identity(record: Record, pretrainings: Mapping[str, Identity]) -> Identity:
    """The identity of a finished cell; without `tokenizer` where neither its record nor its pretraining tells it."""
    start = record.checkpoint.digest
    pretrained = PRETRAINED.fullmatch(start)
    pretraining = pretrainings.get(pretrained[1], {}) if pretrained else {}
    tokenizer = record.tokenizer or pretraining.get("tokenizer")
    return {
        **_cell(record.cell.document()),
        **recipe_key(record.recipe),
        "options": record.options,
        "start": start,
        **({"tokenizer": tokenizer} if tokenizer else {}),
        "data": record.data.digest,
        "hyperparameters": record.hyperparameters,
        **_optional(record.from_mnli, record.plugin),
    }


def ending(cell_id: str) -> str:
    """The hash at the end of an id."""
    return cell_id.rpartition("-")[2]


def id_of(cell: Mapping[str, Any], identity: Identity) -> str:
    """The id of a cell with this identity."""
    return cell_id(cell, identity_digest(identity))


def _cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {key: cell[key] for key in ("arm", "variant", "task", "seed")}


def _optional(from_mnli: str | None, plugin: str | None) -> dict[str, str]:
    """Keys that only the identities of some cells have."""
    mnli = {"from_mnli": ending(from_mnli)} if from_mnli else {}
    return mnli | ({"plugin": plugin} if plugin else {})
