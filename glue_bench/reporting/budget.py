"""What each arm cost, and what it learnt for that: a row an arm, and the loss curves."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from glue_bench.records.store import Store
from glue_bench.reporting.document import Cell, Grid, Page, Section
from glue_bench.reporting.markdown import MISSING, number
from glue_bench.results.frame import ORIGINS

MEGABYTE = 1_000_000
COLUMNS = {
    "parameters": "Parameters",
    "non_embedding_parameters": "Without tables",
    "added_over_add": "Over add",
    "flops_per_token": "FLOPs a token",
    "tokens": "Tokens seen",
    "tokens_per_second": "Tokens/s",
    "peak_memory_mb": "Peak memory (MB)",
    "train_loss": "Training loss",
    "validation_loss": "Held-out loss",
}
LOSSES = ("arm", "step", "tokens", "train_loss", "validation_loss", "seconds")
NOTES = (
    "Parameters: the encoder and its pooler, no head; without tables: without token, position and segment tables; "
    "over add: against `add` at the same sizes.",
    "FLOPs a token: matrix products of a forward and a backward pass of the encoder at {length} tokens, without head.",
    "Tokens seen: real ones, padding left out; tokens/s: of training alone, on {device}.",
    "Losses: mean cross-entropy (nats) over masked tokens; held-out: the same text and masks for every arm.",
)


def budget_frame(store: Store) -> pd.DataFrame:
    """A row an arm: arm, variant, origin, COLUMNS, `steps`, `stream`, `recipe`; missing where it was not pretrained.

    `stream` is a hash over everything the arm was shown, in order: equal streams saw the same tokens and masks.

    Raises:
        UserError: a record of pretraining cannot be read.
    """
    plan = store.read_plan() or {}
    records = {record["pretraining_id"]: record for record in store.read_pretrainings()}
    rows = [_row(name, facts, records.get(facts.get("pretraining"))) for name, facts in plan.get("arms", {}).items()]
    frame = pd.DataFrame(
        rows, columns=["arm", "variant", "origin", *COLUMNS, "steps", "stream", "recipe", "length", "device"]
    )
    return frame.sort_values("origin", key=lambda column: column.map(ORIGINS.index), kind="stable", ignore_index=True)


def losses_frame(store: Store) -> pd.DataFrame:
    """The loss curves of all pretrained arms of the plan: LOSSES."""
    wanted = {facts.get("pretraining") for facts in (store.read_plan() or {}).get("arms", {}).values()}
    records = [record for record in store.read_pretrainings() if record["pretraining_id"] in wanted]
    rows = [{"arm": record["arm"], **point} for record in records for point in record["losses"]]
    return pd.DataFrame(rows, columns=list(LOSSES))


def losses_csv(losses: pd.DataFrame) -> str:
    """The curves as CSV; no held-out loss where it was not measured."""
    return losses.to_csv(index=False, lineterminator="\n", float_format="%.4f")


def to_csv(budgets: pd.DataFrame) -> str:
    """The table as CSV."""
    return budgets.drop(columns="recipe").to_csv(index=False, lineterminator="\n")


def budget_page(budgets: pd.DataFrame, experiment: str) -> Page:
    """The table, and what its columns mean."""
    rows = [
        (*(Cell(row[key]) for key in ("arm", "variant", "origin")), *(Cell(shown(row[name])) for name in COLUMNS))
        for row in budgets.to_dict("records")
    ]
    header = ("Arm", "Variant", "Origin", *COLUMNS.values())
    grid = Grid(header=header, rows=tuple(rows), texts=frozenset({0, 1, 2}))
    lengths = ", ".join(str(int(length)) for length in sorted(budgets["length"].dropna().unique()))
    devices = ", ".join(sorted(budgets["device"].dropna().unique())) or "no device"
    notes = [note.format(length=lengths, device=devices) for note in NOTES]
    return Page(
        title=f"Budgets: {experiment}",
        sections=(Section(title="", grid=grid),),
        notes=(*notes, *_streams(budgets), *_recipes(budgets)),
    )


def _row(name: str, facts: Mapping[str, Any], record: Mapping[str, Any] | None) -> dict[str, Any]:
    row = {"arm": name, **{key: facts.get(key) for key in ("variant", "origin", "length", *COLUMNS)}}
    if record is None:
        return row
    peak = record.get("peak_memory_bytes")
    environment = record.get("environment", {})
    measured = {key: record[key] for key in ("steps", "tokens", "stream", "tokens_per_second")}
    measured["recipe"] = record.get("recipe", 1)
    return (
        row
        | measured
        | {
            "peak_memory_mb": None if peak is None else round(peak / MEGABYTE),
            "train_loss": record["train_loss"],
            "validation_loss": record["validation_loss"],
            "device": _device(environment),
        }
    )


def _device(environment: Mapping[str, Any]) -> str | None:
    device = environment.get("device")
    threads = environment.get("threads")
    return f"{environment.get('processor')}, {threads} thread{'s' * (threads != 1)}" if device == "cpu" else device


def _streams(budgets: pd.DataFrame) -> list[str]:
    """Whether the pretrained arms saw the same, by what each of them was really shown."""
    streams = budgets["stream"].dropna()
    if len(streams) < 2:
        return []
    if streams.nunique() == 1:
        seen = streams.iloc[0][:12]
        return [f"All {len(streams)} pretrained arms saw the same tokens, masks and order (hash {seen})."]
    return ["**The pretrained arms did not all see the same tokens, masks and order: losses do not compare.**"]


def _recipes(budgets: pd.DataFrame) -> list[str]:
    """Which arm was pretrained by which recipe, where they differ."""
    if budgets["recipe"].nunique() < 2:
        return []
    by_arm = budgets.dropna(subset="recipe")
    named = ", ".join(f"{arm} by {recipe:.0f}" for arm, recipe in zip(by_arm["arm"], by_arm["recipe"], strict=True))
    return [f"The arms were pretrained by more than one recipe, and differ by that, too: {named}."]


def shown(value: Any) -> str:
    """A figure of the table as text."""
    if value is None or pd.isna(value):
        return MISSING
    if isinstance(value, float) and not value.is_integer():
        return number(value, 3) if value < 100 else f"{value:,.0f}"
    return f"{int(value):,}"
