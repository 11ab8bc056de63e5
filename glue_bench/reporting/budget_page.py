"""What each pretraining of an arm cost, as a page."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from glue_bench.reporting.grid import Grid, GridCell, Page, PageSection
from glue_bench.tables.budget import told
from glue_bench.tables.numbers import MISSING, code, number
from glue_bench.values import series

COLUMNS = {
    "seeds": "Pretraining seeds",
    "learning_rate": "Learning rate",
    "parameters": "Parameters",
    "non_embedding_parameters": "Without tables",
    "added_over_add": "Over add",
    "flops_per_token": "FLOPs per token",
    "tokens": "Tokens seen",
    "search_tokens": "Tokens of the search",
    "tokens_per_second": "Tokens/s",
    "peak_memory_mb": "Peak memory (MB)",
    "train_loss": "Training loss",
    "validation_loss": "Validation loss",
    "tokens_to_reference": "Tokens to reference",
    "swap_1": "Swap test (%)",
}
NOTES = (
    "Parameters: the encoder and its pooler, no head; without tables: without token, position and segment tables; "
    "over add: against `add` at the same sizes.",
    "FLOPs per token: matrix products of a forward and a backward pass of the encoder at {length} tokens, no head; "
    "what depends on positions alone is computed once for a batch, here of 32.",
    "Tokens seen: without padding. Tokens/s: of training alone, on {device}; whatever else ran there slowed it down, "
    "so that it hardly compares arms. Peak memory: the largest resident memory of the process.",
    "Losses: mean cross-entropy (nats) over masked tokens; training loss: of the last hundredth of the steps; "
    "validation loss: the same text and masks for every arm.",
    "Tokens to reference: how many tokens the arm had seen when its validation loss first reached the final loss of "
    "the reference arm (by straight lines between the losses measured); a dash where it never did. This understates an "
    "arm's lead: its learning rate was still high at that point, where that of the reference had come down.",
)
SWAPS = (
    "Swap test: how often the text as it was written is preferred to the same text with two neighbouring words "
    "exchanged; 50 is chance, and what an encoder without positions has. `intrinsic.csv` has more such measures."
)
SEVERAL = (
    "Of several pretraining seeds these are means; tokens to reference only where each seed came so far. `budget.csv` "
    "has each seed."
)
SEARCH = "Tokens of the search: those of all runs that the arm's learning rate was chosen from, once for all its seeds."

KEEP_A_ROW = ("untied-tie-cls", "four-term")
"""The variants without a free [CLS] whose table is as long as with one."""
KEPT = (
    "{arms}: the row of positions that a free [CLS] takes in `untied` is there and counted, but no score reads it, so "
    "that the parameters are those of `untied`."
)
AT_THE_END = (
    "For {arms} the {end} of the rates tried was the best one: one beyond it, which was not tried, may be better."
)


def budget_page(budgets: pd.DataFrame, experiment: str, rates: pd.DataFrame | None = None) -> Page:
    """The table, the search for learning rates where there was one, and what the columns mean."""
    shown_ones, waiting = by_arm(told(budgets))
    columns = {name: title for name, title in COLUMNS.items() if name in shown_ones}
    sections = [PageSection(title="", grid=_grid(shown_ones, ("arm", "variant", "origin"), columns))]
    lengths = ", ".join(str(int(length)) for length in sorted(budgets["length"].dropna().unique()))
    places = budgets.dropna(subset="device").groupby("device")["arm"].unique()
    which = [f" ({', '.join(map(code, arms))})" * (len(places) > 1) for arms in places]
    devices = "; ".join(f"{place}{arms}" for place, arms in zip(places.index, which, strict=True)) or "no device"
    notes = [note.format(length=lengths, device=devices) for note in NOTES]
    if "swap_1" in columns:
        notes.append(SWAPS)
    if rates is not None and len(rates):
        sections.append(_search(rates))
        notes.append(SEARCH)
    like_untied = shown_ones["parameters"].isin(shown_ones.loc[shown_ones["variant"] == "untied", "parameters"])
    if kept := shown_ones.loc[shown_ones["variant"].isin(KEEP_A_ROW) & like_untied, "arm"].tolist():
        notes.append(KEPT.format(arms=series(map(code, kept))))
    if "seeds" in columns:
        notes.append(SEVERAL)
    if waiting:
        notes.append(f"Not pretrained yet: {', '.join(map(code, waiting))}.")
    return Page(
        title=f"Budgets: {experiment}",
        sections=tuple(sections),
        notes=(*notes, *_streams(budgets), *_recipes(budgets)),
    )


def _search(rates: pd.DataFrame) -> PageSection:
    """The loss of each arm at each rate, the chosen one in bold."""
    tried = sorted(rates["learning_rate"].unique())
    found = {(row["arm"], row["learning_rate"]): row for row in rates.to_dict("records")}
    rows = [
        (
            arm,
            *(
                GridCell(shown(row["validation_loss"]), bold=row["chosen"])
                if (row := found.get((arm, rate)))
                else MISSING
                for rate in tried
            ),
        )
        for arm in dict.fromkeys(rates["arm"])
    ]
    steps = " or ".join(f"{number:,}" for number in sorted(rates["steps"].unique()))
    return PageSection(
        title="Search for the learning rate",
        text=f"The validation loss at the end of runs of their own, of {steps} steps and one seed, at each rate; the "
        "chosen one is bold.",
        grid=Grid.of(("Arm", *(f"{rate:g}" for rate in tried)), rows),
    )


def by_arm(budgets: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One row per arm, of several seeds of pretraining their means and `seeds`, and the arms that wait for theirs."""
    if "pretraining_seed" not in budgets:
        return budgets, []
    done = budgets[budgets["pretraining_seed"].isna() | budgets["tokens"].notna()]
    waiting = [arm for arm in dict.fromkeys(budgets["arm"]) if arm not in set(done["arm"])]
    groups = done.groupby("arm", sort=False)
    numbers = list(done.columns.intersection(list(COLUMNS)))
    means = done[numbers].astype(float).groupby(done["arm"], sort=False).mean(skipna=False)
    rows = groups.first().assign(**means, seeds=groups["tokens"].count()).reset_index()
    return rows[[*done.columns.drop("pretraining_seed"), "seeds"]], waiting


def _grid(frame: pd.DataFrame, texts: Sequence[str], columns: Mapping[str, str]) -> Grid:
    """A row for each of the frame's, first the `texts`, then figures."""
    rows = [
        (*(row[key] for key in texts), *(shown(row[name], name) for name in columns))
        for row in frame.to_dict("records")
    ]
    header = (*(key.capitalize() for key in texts), *columns.values())
    return Grid.of(header, rows, texts=range(len(texts)))


def _streams(budgets: pd.DataFrame) -> list[str]:
    """Whether the pretrained arms of each seed saw the same, by what each of them was really shown."""
    seen = budgets.dropna(subset="stream")
    by_seed = seen.groupby("pretraining_seed", dropna=False)["stream"]
    if len(seen) < 2 or by_seed.size().max() < 2:
        return []
    if by_seed.nunique().max() > 1:
        return ["**The pretrained arms did not all see the same tokens, masks and order: losses do not compare.**"]
    hashes = ", ".join(stream[:12] for stream in by_seed.first())
    if by_seed.ngroups == 1:
        return [f"All {len(seen)} pretrained arms saw the same tokens, masks and order (hash {hashes})."]
    return [f"All pretrained arms of one seed saw the same tokens, masks and order (hashes {hashes})."]


def _recipes(budgets: pd.DataFrame) -> list[str]:
    """Which arm was pretrained by which recipe, where they differ."""
    if budgets["recipe"].nunique() < 2:
        return []
    by_arm = budgets.dropna(subset="recipe").drop_duplicates(["arm", "recipe"])
    named = ", ".join(f"{arm} by {recipe:.0f}" for arm, recipe in zip(by_arm["arm"], by_arm["recipe"], strict=True))
    return [f"The arms were pretrained by more than one recipe, and differ by that, too: {named}."]


def shown(value: Any, name: str = "") -> str:
    """A figure of the column `name` as text."""
    if value is None or pd.isna(value):
        return MISSING
    if name == "learning_rate":
        return f"{value:g}"
    if isinstance(value, float) and not value.is_integer():
        return number(value, 1 if name == "swap_1" else 3) if value < 100 else f"{value:,.0f}"
    return f"{int(value):,}"
