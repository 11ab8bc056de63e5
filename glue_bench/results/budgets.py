"""What each pretraining of an arm cost, and what the arm learnt for that; loss curves, and searches for a rate."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.records.plan import NO_PLAN, ArmFacts, Plan, PretrainingFacts
from glue_bench.records.record import Environment, PretrainingRecord
from glue_bench.records.store import Store
from glue_bench.results.frame import ORIGINS

MEGABYTE = 1_000_000
FIGURES = (
    "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token", "tokens", "tokens_per_second",
    "peak_memory_mb", "train_loss", "validation_loss",
)  # fmt: skip
RUN = ("pretraining_seed", "learning_rate", "search_tokens")
"""What tells the pretrainings of an arm apart: the rate where it was searched for, and what all of its search saw."""
LOSSES = ("arm", "pretraining_seed", "step", "tokens", "train_loss", "validation_loss", "seconds")
RATES = ("arm", "learning_rate", "validation_loss", "steps", "tokens", "seconds", "chosen")


def budget_frame(store: Store) -> pd.DataFrame:
    """One row per arm and seed of its pretraining: arm, variant, origin, RUN, FIGURES, `steps`, `stream`, `recipe`.

    Values are missing where an arm was not pretrained, `learning_rate` and `search_tokens` where no rate was searched
    for. `stream` is a hash over everything the arm was shown, in order: equal streams saw the same tokens and masks.

    Raises:
        UserError: a record of pretraining cannot be read.
    """
    plan, records = store.read_plan() or NO_PLAN, _records(store)
    planned = _newest(plan)
    rows = []
    for name, facts in plan.arms.items():
        mine = [_row(name, facts, each, records) for each in planned if each.arm == name]
        rows += mine or [_row(name, facts, None, records)]
    columns = ["arm", "variant", "origin", *RUN, *FIGURES, "steps", "stream", "recipe", "length", "device"]
    frame = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("pretraining_seed", "search_tokens"), "Int64"))
    return frame.sort_values("origin", key=lambda column: column.map(ORIGINS.index), kind="stable", ignore_index=True)


def losses_frame(store: Store) -> pd.DataFrame:
    """The loss curves of all pretrained arms of the plan: LOSSES."""
    plan, records = store.read_plan() or NO_PLAN, _records(store)
    wanted = {each.pretraining_id: each.seed for each in _newest(plan)}
    rows = [
        {"arm": record.arm, "pretraining_seed": wanted[name], **point.document()}
        for name, record in records.items()
        if name in wanted
        for point in record.losses
    ]
    return pd.DataFrame(rows, columns=list(LOSSES))


def rates_frame(store: Store) -> pd.DataFrame:
    """One row per arm and learning rate that was searched: RATES; no validation loss where training diverged."""
    plan, records = store.read_plan() or NO_PLAN, _records(store)
    chosen = {(record.arm, record.learning_rate) for record in records.values()}
    found = [
        records[each.pretraining_id] for each in plan.pretrainings if each.is_search and each.pretraining_id in records
    ]
    rows = [
        {**dict(record), "learning_rate": rate, "chosen": (record.arm, rate) in chosen}
        for record in found
        for rate in [record.identity.settings["learning_rate"]]
    ]
    return pd.DataFrame(rows, columns=list(RATES)).sort_values(["arm", "learning_rate"], ignore_index=True)


def told(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without those columns of RUN that say nothing: the only seed, and rates that no one searched for."""
    silent = [name for name in RUN if name in frame and frame[name].nunique() < (2 if name == RUN[0] else 1)]
    return frame.drop(columns=silent)


def _newest(plan: Plan) -> list[PretrainingFacts]:
    """The pretrainings of each arm and seed that cells start from; of several recipes, that of the newest."""
    planned = [each for each in plan.all_pretrainings() if not each.is_search]
    by_recipe = sorted(planned, key=lambda each: each.identity.recipe if each.identity else 1)
    newest = {(each.arm, each.seed): each for each in by_recipe}
    return [newest[place] for place in dict.fromkeys((each.arm, each.seed) for each in planned)]


def _records(store: Store) -> dict[str, PretrainingRecord]:
    return {record.pretraining_id: record for record in store.read_pretrainings()}


def _row(
    name: str, facts: ArmFacts, pretraining: PretrainingFacts | None, records: Mapping[str, PretrainingRecord]
) -> dict[str, Any]:
    row = {"arm": name, **dict(facts)}
    if pretraining is None:
        return row
    row["pretraining_seed"] = pretraining.seed
    if (record := records.get(pretraining.pretraining_id)) is None:
        return row
    peak, searches = record.peak_memory_bytes, [records[each] for each in record.searches if each in records]
    return {
        **row,
        **{key: getattr(record, key) for key in ("steps", "tokens", "stream", "tokens_per_second", "recipe")},
        "learning_rate": record.learning_rate,
        "search_tokens": sum(search.tokens for search in searches) if searches else None,
        "peak_memory_mb": None if peak is None else round(peak / MEGABYTE),
        "train_loss": record.train_loss,
        "validation_loss": record.validation_loss,
        "device": _device(record.environment),
    }


def _device(environment: Environment) -> str | None:
    if environment.device != "cpu":
        return environment.device
    return f"{environment.processor}, {environment.threads} thread{'s' * (environment.threads != 1)}"


def measured_costs(store: Store) -> tuple[float, float]:
    """Seconds that one pretraining of an arm took, and those of fine-tuning it once on every task; means, 0 if none."""
    pretrainings = [record.seconds for record in store.read_pretrainings()]
    runs = pd.DataFrame([(record.cell.task, record.seconds.total) for record in store.scan_records()[0]])
    return float(np.mean(pretrainings or [0.0])), float(runs.groupby(0)[1].mean().sum()) if len(runs) else 0.0
