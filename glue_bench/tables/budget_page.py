"""What each pretraining cost and what the arm learnt for that, and the search for its rate, as a page."""

from typing import Any

import pandas as pd
from pandas import DataFrame

from glue_bench.tables.budget import at_an_end, budget_frame, rates_frame, told
from glue_bench.tables.numbers import MISSING, banner, number
from glue_bench.tables.results import Results
from glue_bench.tables.table import Column, Page, Table

_PARAMETERS = (
    "Parameters: the encoder and its pooler, no head. Without tables: without token, position and segment tables. Over "
    "add: against `add` at the same sizes. A row of a table that nothing reads counts, too."
)
_TOKENS = (
    "Tokens seen: without padding, the mean over pretraining seeds as all that follows; `budget.csv` has each seed. "
    "Tokens of the search: of all runs that the arm's rate was chosen from."
)
_SPEED = (
    "Tokens/s: of training alone; other work on the machine slowed it down. Peak memory: the largest resident memory "
    "of the process."
)
_LOSSES = (
    "Losses: mean cross-entropy per masked token, in nats. Training loss: of the last hundredth of the steps. "
    "Validation loss: of the same text and masks for every arm."
)
LEGEND = {
    **dict.fromkeys(("parameters", "non_embedding_parameters", "added_over_add"), _PARAMETERS),
    "flops_per_token": "FLOPs per token: matrix products of a forward and a backward pass at that length, no head. "
    "What depends on positions alone counts once for a batch of 32.",
    **dict.fromkeys(("tokens", "search_tokens"), _TOKENS),
    **dict.fromkeys(("tokens_per_second", "peak_memory_mb"), _SPEED),
    **dict.fromkeys(("train_loss", "validation_loss"), _LOSSES),
    "tokens_to_reference": "Tokens to reference: after how many tokens the validation loss first was the reference's "
    "last, by straight lines between losses. It understates a lead: the learning rate was still high at that point.",
    "swap_1": "Swap test: how often the encoder prefers a text to the same text with two neighbouring words swapped; "
    "chance is 50.",
}
"""The columns of figures, and the line that explains them."""
SEARCHED = ("**Bold**: the chosen rate. * the lowest or the highest rate that was tried: one beyond it may be better.",)
RUNS = "Validation loss after {steps} steps with one seed."
SAME = "the same tokens, masks and order for all arms of a seed ({hashes})"
NOT_SAME = "NOT the same tokens, masks and order for all arms of a seed: losses do not compare"


def shown(value: Any, name: str = "") -> str:
    """A figure of the column `name` as text."""
    if value is None or pd.isna(value):
        return MISSING
    if name == "learning_rate":
        return f"{value:g}"
    if isinstance(value, float) and not value.is_integer():
        return number(value, 1 if name == "swap_1" else 3) if value < 100 else f"{value:,.0f}"
    return f"{int(value):,}"


FIGURES = {
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


def budget_page(results: Results) -> Page:
    """One row per arm, the facts behind it, and the losses of a search for rates."""
    budgets, rates = budget_frame(results), rates_frame(results)
    frame, waiting = by_arm(told(budgets))
    names = [name for name in FIGURES if name in frame]
    texts = {name: [shown(value, name) for value in frame[name]] for name in names}
    columns = {name: Column(name.capitalize()) for name in ("arm", "variant", "origin")}
    columns |= {name: Column(FIGURES[name], show=str) for name in names}
    legend = tuple(dict.fromkeys(LEGEND[name] for name in names if name in LEGEND))
    table = Table(frame=frame.astype(dict.fromkeys(names, object)).assign(**texts), columns=columns, legend=legend)
    return Page(
        title=f"Budgets: {results.experiment}",
        banner=banner(results.data_source),
        tables=(table, _facts(budgets, waiting), *([_search(rates)] if len(rates) else [])),
    )


def by_arm(budgets: DataFrame) -> tuple[DataFrame, list[str]]:
    """One row per arm, of several seeds of pretraining their means and `seeds`, and the arms that wait for theirs."""
    if "pretraining_seed" not in budgets:
        return budgets, []
    done = budgets[budgets["pretraining_seed"].isna() | budgets["tokens"].notna()]
    waiting = [arm for arm in dict.fromkeys(budgets["arm"]) if arm not in set(done["arm"])]
    groups = done.groupby("arm", sort=False)
    numbers = list(done.columns.intersection(list(FIGURES)))
    means = done[numbers].astype(float).groupby(done["arm"], sort=False).mean(skipna=False)
    rows = groups.first().assign(**means, seeds=groups["tokens"].count()).reset_index()
    return rows[[*done.columns.drop("pretraining_seed"), "seeds"]], waiting


def _facts(budgets: DataFrame, waiting: list[str]) -> Table:
    """Where speeds were measured, at what length FLOPs count, and whether the arms of each seed were shown the same."""
    places = budgets.dropna(subset="device").groupby("device")["arm"].unique()
    devices = [f"{place}" + (f" ({', '.join(arms)})" if len(places) > 1 else "") for place, arms in places.items()]
    lengths = sorted(budgets["length"].dropna().unique())
    streams = budgets.dropna(subset="stream").groupby("pretraining_seed", dropna=False)["stream"]
    same = SAME.format(hashes=", ".join(stream[:12] for stream in streams.first()))
    facts = [
        ("Measured on", "; ".join(devices)),
        ("Length", ", ".join(f"{length:g}" for length in lengths)),
        ("Shown", (same if streams.nunique().max() == 1 else NOT_SAME) if len(streams) else ""),
        ("Not pretrained yet", ", ".join(waiting)),
    ]
    frame = DataFrame([fact for fact in facts if fact[1]], columns=["fact", "value"])
    return Table(frame=frame, columns={"fact": Column("Setup"), "value": Column("")})


def _search(rates: DataFrame) -> Table:
    """The loss of each arm at each rate, the chosen one in bold."""
    named = rates.assign(rate=rates["learning_rate"].map("{:g}".format))
    tried = list(dict.fromkeys(named.sort_values("learning_rate")["rate"]))
    wide, chosen = (
        named.pivot(index="arm", columns="rate", values=name)[tried].reset_index()
        for name in ("validation_loss", "chosen")
    )
    ends = DataFrame({"arm": ["*" if arm in at_an_end(rates) else "" for arm in wide["arm"]]})
    steps = " or ".join(f"{number:,}" for number in sorted(rates["steps"].unique()))
    return Table(
        title="Search for the learning rate",
        caption=RUNS.format(steps=steps),
        frame=wide,
        columns={"arm": Column("Arm"), **{rate: Column(rate, 3) for rate in tried}},
        bold=chosen[tried],
        marks=ends,
        legend=SEARCHED,
    )
