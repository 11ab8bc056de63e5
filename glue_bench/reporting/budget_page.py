"""What each arm cost, as a page: one row per arm."""

from typing import Any

import pandas as pd

from glue_bench.reporting.document import Grid, GridCell, Page, PageSection
from glue_bench.reporting.numbers import MISSING, number

COLUMNS = {
    "parameters": "Parameters",
    "non_embedding_parameters": "Without tables",
    "added_over_add": "Over add",
    "flops_per_token": "FLOPs per token",
    "tokens": "Tokens seen",
    "tokens_per_second": "Tokens/s",
    "peak_memory_mb": "Peak memory (MB)",
    "train_loss": "Training loss",
    "validation_loss": "Validation loss",
}
NOTES = (
    "Parameters: the encoder and its pooler, no head; without tables: without token, position and segment tables; "
    "over add: against `add` at the same sizes.",
    "FLOPs per token: matrix products of a forward and a backward pass of the encoder at {length} tokens, no head.",
    "Tokens seen: real ones, padding left out; tokens/s: of training alone, on {device}.",
    "Losses: mean cross-entropy (nats) over masked tokens; validation loss: the same text and masks for every arm.",
)


def budget_page(budgets: pd.DataFrame, experiment: str) -> Page:
    """The table, and what its columns mean."""
    rows = [
        (
            *(GridCell(row[key]) for key in ("arm", "variant", "origin")),
            *(GridCell(shown(row[name])) for name in COLUMNS),
        )
        for row in budgets.to_dict("records")
    ]
    header = ("Arm", "Variant", "Origin", *COLUMNS.values())
    grid = Grid(header=header, rows=tuple(rows), texts=frozenset({0, 1, 2}))
    lengths = ", ".join(str(int(length)) for length in sorted(budgets["length"].dropna().unique()))
    devices = ", ".join(sorted(budgets["device"].dropna().unique())) or "no device"
    notes = [note.format(length=lengths, device=devices) for note in NOTES]
    return Page(
        title=f"Budgets: {experiment}",
        sections=(PageSection(title="", grid=grid),),
        notes=(*notes, *_streams(budgets), *_recipes(budgets)),
    )


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
