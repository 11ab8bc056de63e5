"""What an experiment's folder and its plan know of the identities of cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from glue_bench.errors import UserError
from glue_bench.records.identity import CellIdentity, PretrainingIdentity, digest_of
from glue_bench.records.plan import NO_PLAN, AskedCell, Plan
from glue_bench.records.record import CellKey, Record
from glue_bench.records.store import Store

REWRITE = "run the experiment again, which writes its tables anew"


@dataclass(frozen=True, kw_only=True)
class Known:
    """The plan, the records by id, and the identities of pretrainings by their digests."""

    plan: Plan
    records: Mapping[str, Record]
    pretrainings: Mapping[str, PretrainingIdentity]

    @cached_property
    def planned(self) -> dict[str, AskedCell]:
        """The cells that the plan asks for, by id."""
        return {cell.cell_id: cell for cell in self.plan.cells}

    def key(self, cell_id: str) -> CellKey:
        """What a cell that is planned or has a record is called by."""
        return self.plan.seeded(self.planned.get(cell_id) or self.records[cell_id].cell)

    def identity(self, cell_id: str) -> CellIdentity | None:
        """What the id ends in the digest of, from the plan or else the record; None where neither holds it.

        Raises:
            UserError: as `planned_identity`.
        """
        if cell_id in self.planned and self.plan.tasks:
            return planned_identity(self.plan, self.planned[cell_id])
        return self.records[cell_id].identity(self.pretrainings) if cell_id in self.records else None

    def in_terms_of_now(self, identity: CellIdentity) -> CellIdentity:
        """The identity with what older recipes hash otherwise as the plan's own recipe has it.

        Where the plan has no arm of these options and this tokenizer, they stay as they are.
        """
        changes: dict[str, Any] = {}
        for arm in self.plan.arms.values():
            then = arm.older.get(identity.recipe)
            if then and arm.variant == identity.variant and then.options == identity.options:
                changes["options"] = arm.options
            if then and then.tokenizer == identity.tokenizer:
                changes["tokenizer"] = arm.tokenizer
        return identity.model_copy(update=changes)


def planned_identity(plan: Plan, cell: AskedCell) -> CellIdentity:
    """What the id of one of the plan's cells ends in the digest of.

    Raises:
        UserError: the plan was edited, and says nothing of the cell's arm or task.
    """
    try:
        return plan.identity(cell)
    except KeyError as error:
        raise UserError(f"plan.json: edited (nothing is said of {error}); {REWRITE}") from error


def known(store: Store, plan: Plan | None) -> Known:
    """What the experiment's folder holds, under a plan that need not be the stored one.

    Raises:
        UserError: a record of pretraining cannot be read.
    """
    plan = plan or NO_PLAN
    pretrainings = {digest_of(record.pretraining_id): record.identity for record in store.read_pretrainings()}
    planned = {digest_of(each.pretraining_id): each.identity for each in plan.all_pretrainings()}
    pretrainings |= {digest: identity for digest, identity in planned.items() if identity}
    records = {record.cell_id: record for record in store.scan_records()[0]}
    return Known(plan=plan, records=records, pretrainings=pretrainings)
