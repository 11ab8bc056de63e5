"""What each arm cost, and what it learnt for that: one row per arm, and the loss curves."""

from typing import Any

import pandas as pd

from glue_bench.records.plan import NO_PLAN, ArmFacts
from glue_bench.records.record import Environment, PretrainingRecord
from glue_bench.records.store import Store
from glue_bench.results.frame import ORIGINS

MEGABYTE = 1_000_000
FIGURES = (
    "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token", "tokens", "tokens_per_second",
    "peak_memory_mb", "train_loss", "validation_loss",
)  # fmt: skip
LOSSES = ("arm", "step", "tokens", "train_loss", "validation_loss", "seconds")


def budget_frame(store: Store) -> pd.DataFrame:
    """One row per arm: arm, variant, origin, FIGURES, `steps`, `stream`, `recipe`; missing where it was not pretrained.

    `stream` is a hash over everything the arm was shown, in order: equal streams saw the same tokens and masks.

    Raises:
        UserError: a record of pretraining cannot be read.
    """
    plan = store.read_plan() or NO_PLAN
    records = {record.pretraining_id: record for record in store.read_pretrainings()}
    rows = [_row(name, facts, records.get(facts.pretraining or "")) for name, facts in plan.arms.items()]
    frame = pd.DataFrame(
        rows, columns=["arm", "variant", "origin", *FIGURES, "steps", "stream", "recipe", "length", "device"]
    )
    return frame.sort_values("origin", key=lambda column: column.map(ORIGINS.index), kind="stable", ignore_index=True)


def losses_frame(store: Store) -> pd.DataFrame:
    """The loss curves of all pretrained arms of the plan: LOSSES."""
    wanted = {facts.pretraining for facts in (store.read_plan() or NO_PLAN).arms.values()}
    records = [record for record in store.read_pretrainings() if record.pretraining_id in wanted]
    rows = [{"arm": record.arm, **point.document()} for record in records for point in record.losses]
    return pd.DataFrame(rows, columns=list(LOSSES))


def _row(name: str, facts: ArmFacts, record: PretrainingRecord | None) -> dict[str, Any]:
    row = {"arm": name, **dict(facts)}
    if record is None:
        return row
    peak = record.peak_memory_bytes
    return {
        **row,
        **{key: getattr(record, key) for key in ("steps", "tokens", "stream", "tokens_per_second", "recipe")},
        "peak_memory_mb": None if peak is None else round(peak / MEGABYTE),
        "train_loss": record.train_loss,
        "validation_loss": record.validation_loss,
        "device": _device(record.environment),
    }


def _device(environment: Environment) -> str | None:
    if environment.device != "cpu":
        return environment.device
    return f"{environment.processor}, {environment.threads} thread{'s' * (environment.threads != 1)}"
