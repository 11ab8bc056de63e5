"""What each pretraining of an arm cost, and what the arm learnt for that; loss curves, and searches for a rate."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.records.plan import NO_PLAN, ArmFacts, Plan, PretrainingFacts
from glue_bench.records.record import LossPoint, PretrainingRecord
from glue_bench.records.store import Store
from glue_bench.results.frame import ORIGINS
from glue_bench.results.protocol import reference_arm
from glue_bench.values import series

MEGABYTE = 1_000_000
FIGURES = (
    "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token", "tokens", "tokens_per_second",
    "peak_memory_mb", "train_loss", "validation_loss", "tokens_to_reference", "swap_1",
)  # fmt: skip
RUN = ("pretraining_seed", "learning_rate", "search_tokens")
"""What tells the pretrainings of an arm apart: the rate where it was searched for, and what all of its search saw."""
LOSSES = ("arm", "pretraining_seed", "step", "tokens", "train_loss", "validation_loss", "seconds")
ENDS = {"lowest": "min", "highest": "max"}
RATES = ("arm", "learning_rate", "validation_loss", "steps", "tokens", "seconds", "chosen")


def budget_frame(store: Store) -> pd.DataFrame:
    """One row per arm and seed of its pretraining: arm, variant, origin, RUN, FIGURES, `steps`, `stream`, `recipe`.

    Values are missing where an arm was not pretrained, `learning_rate` and `search_tokens` where no rate was searched
    for. `stream` is a hash over everything the arm was shown, in order: equal streams saw the same tokens and masks.
    `tokens_to_reference` is after how many of them the validation loss first was the last one of the reference arm with
    the same seed, and `swap_1` the swap test of neighbouring words, 0 to 100.

    Raises:
        UserError: a record of pretraining cannot be read.
    """
    plan, records = store.read_plan() or NO_PLAN, _records(store)
    planned = newest(store)
    rows: list[dict[str, Any]] = []
    for name, facts in plan.arms.items():
        mine = [_row(name, facts, each, records) for each in planned if each.arm == name]
        rows += mine or [_row(name, facts, None, records)]
    columns = ["arm", "variant", "origin", *RUN, *FIGURES, "steps", "stream", "recipe", "length", "device"]
    frame = pd.DataFrame(rows, columns=columns)
    by_id = pd.Series(rows, dtype=object).map(lambda row: row.get("pretraining_id"))
    frame["tokens_to_reference"] = by_id.map(_tokens_to_reference(plan, planned, records)).astype(float).round()
    measured = [(record.pretraining_id, one) for record in store.intrinsic.read() for one in record.measures]
    swaps = {pretraining_id: 100 * one.value for pretraining_id, one in measured if one.name == "swap_1"}
    frame["swap_1"] = by_id.map(swaps).astype(float)
    frame = frame.astype(dict.fromkeys(("pretraining_seed", "search_tokens", "tokens_to_reference"), "Int64"))
    return frame.sort_values("origin", key=lambda column: column.map(ORIGINS.index), kind="stable", ignore_index=True)


def losses_frame(store: Store) -> pd.DataFrame:
    """The loss curves of all pretrained arms of the plan: LOSSES."""
    records = _records(store)
    wanted = {each.pretraining_id: each.seed for each in newest(store)}
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
        for rate in [record.identity.learning_rate]
    ]
    return pd.DataFrame(rows, columns=list(RATES)).sort_values(["arm", "learning_rate"], ignore_index=True)


def at_an_end(rates: pd.DataFrame) -> list[dict[str, str]]:
    """`arms` whose best rate is the "lowest" or the "highest" (`end`) of several in a `rates_frame`."""
    tried = rates.groupby("arm")["learning_rate"].agg(["min", "max"])
    chosen = rates[rates["chosen"].astype(bool)].set_index("arm")["learning_rate"]
    several = chosen[(tried["min"] < tried["max"]).reindex(chosen.index)]
    ends = {end: several[several == tried[name].reindex(several.index)] for end, name in ENDS.items()}
    return [{"arms": series(f"`{arm}`" for arm in mine.index), "end": end} for end, mine in ends.items() if len(mine)]


def told(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without columns that say nothing: the only seed, rates that no one searched for, no swap test."""
    may_be = (*RUN, "swap_1")
    silent = [name for name in may_be if name in frame and frame[name].nunique() < (2 if name == RUN[0] else 1)]
    return frame.drop(columns=silent)


def newest(store: Store) -> list[PretrainingFacts]:
    """The pretraining of each arm and seed that cells start from; of several recipes, the newest that is stored.

    A newer one that is planned, because the weights of an older one are lost, takes its place when it has ended.
    """
    planned = [each for each in (store.read_plan() or NO_PLAN).all_pretrainings() if not each.is_search]

    def rank(each: PretrainingFacts) -> tuple[bool, int]:
        return store.has_pretraining(each.pretraining_id), each.identity.recipe if each.identity else 1

    newest = {(each.arm, each.seed): each for each in sorted(planned, key=rank)}
    return [newest[place] for place in dict.fromkeys((each.arm, each.seed) for each in planned)]


def tokens_to_reach(loss: float, curve: Sequence[LossPoint]) -> float | None:
    """After how many tokens a curve of validation losses first is at `loss` or below; None if it never is.

    The curve is straight between its points; before the first it is unknown, and the first one counts.
    """
    points = [(point.tokens, point.validation_loss) for point in curve if point.validation_loss is not None]
    for index, (tokens, reached) in enumerate(points):
        if reached <= loss:
            if index == 0:
                return float(tokens)
            before, higher = points[index - 1]
            return before + (tokens - before) * (higher - loss) / (higher - reached)
    return None


def _tokens_to_reference(
    plan: Plan, planned: Sequence[PretrainingFacts], records: Mapping[str, PretrainingRecord]
) -> dict[str, float | None]:
    """By the id of the pretraining. All arms of a seed have the reference of that seed."""
    if not planned:
        return {}
    reference = reference_arm({name: facts.variant for name, facts in plan.arms.items()}, plan.protocol.reference)
    done = [(each, records[each.pretraining_id]) for each in planned if each.pretraining_id in records]
    goals = {each.seed: record.validation_loss for each, record in done if each.arm == reference}
    return {
        each.pretraining_id: tokens_to_reach(goal, record.losses)
        for each, record in done
        if (goal := goals.get(each.seed)) is not None
    }


def _records(store: Store) -> dict[str, PretrainingRecord]:
    return {record.pretraining_id: record for record in store.read_pretrainings()}


def _row(
    name: str, facts: ArmFacts, pretraining: PretrainingFacts | None, records: Mapping[str, PretrainingRecord]
) -> dict[str, Any]:
    row = {"arm": name, **dict(facts)}
    if pretraining is None:
        return row
    row |= {"pretraining_seed": pretraining.seed, "pretraining_id": pretraining.pretraining_id}
    if (record := records.get(pretraining.pretraining_id)) is None:
        return row
    peak, searches = record.peak_memory_bytes, [records[each] for each in record.searches if each in records]
    where = record.environment
    processor = f"{where.processor}, {where.threads} thread{'s' * (where.threads != 1)}"
    return {
        **row,
        **{key: getattr(record, key) for key in ("steps", "tokens", "stream", "tokens_per_second", "recipe")},
        "learning_rate": record.learning_rate,
        "search_tokens": sum(search.tokens for search in searches) if searches else None,
        "peak_memory_mb": None if peak is None else round(peak / MEGABYTE),
        "train_loss": record.train_loss,
        "validation_loss": record.validation_loss,
        "device": processor if where.device == "cpu" else where.device,
    }


def measured_costs(store: Store) -> tuple[float, float]:
    """Seconds that one pretraining of an arm took, and those of one fine-tuning seed; means, 0 if none.

    A seed is a run on every task at each of its learning rates. Runs of a rate search of pretraining are left out: they
    are shorter, and made once for all seeds.
    """
    records = store.read_pretrainings()
    searches = {name for record in records for name in record.searches}
    pretrainings = [record.seconds for record in records if record.pretraining_id not in searches]
    cells = [(record.cell, record.seconds.total) for record in store.scan_records()[0]]
    runs = pd.DataFrame([(cell.task, cell.learning_rate, seconds) for cell, seconds in cells])
    return float(np.mean(pretrainings or [0.0])), float(runs.groupby([0, 1])[2].mean().sum()) if len(runs) else 0.0
