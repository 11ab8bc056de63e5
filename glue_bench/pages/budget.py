"""What each pretraining cost, and what the arm learnt for that; the search for its rate; seconds of a seed."""

import numpy as np
import pandas as pd
from pandas import DataFrame

from glue_bench.board.board import aggregate
from glue_bench.board.compare import reference_arm
from glue_bench.board.results import ORIGINS, Results
from glue_bench.data.measures import MEASURES
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import Column, Page, Table, facts_table, with_legend
from glue_bench.records.environment import Environment

RUN = ["pretraining_seed", "learning_rate", "search_tokens"]
"""What tells the pretrainings of an arm apart: the rate where it was searched for, and what all of its search saw."""
RATES = ["arm", "learning_rate", "seed", "validation_loss", "steps", "tokens", "seconds", "chosen"]
OF_ARM = ["arm", "variant", "origin", "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token",
          "length"]  # fmt: skip
TITLES = {
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
"""The figures of a pretraining, as the page heads them."""
FIGURES = [name for name in TITLES if name not in ("seeds", "learning_rate", "search_tokens")]
"""Those of every pretraining."""
LEGEND = {
    "parameters": "Parameters: the encoder and its pooler, no head. Without tables: without token, position and "
    "segment tables. Over add: against `add` at the same sizes. A row of a table that nothing reads counts, too.",
    "flops_per_token": "FLOPs per token: matrix products of a forward and a backward pass at that length, no head. "
    "What depends on positions alone counts once for a batch of 32.",
    "tokens": "Tokens seen: without padding, the mean over pretraining seeds as all that follows; `budget.csv` has "
    "each seed. Tokens of the search: of all runs that the arm's rate was chosen from.",
    "tokens_per_second": "Tokens/s: of training alone; other work on the machine slowed it down. Peak memory: the "
    "largest resident memory of the process.",
    "train_loss": "Losses: mean cross-entropy per masked token, in nats. Training loss: of the last hundredth of the "
    "steps. Validation loss: of the same text and masks for every arm.",
    "tokens_to_reference": "Tokens to reference: after how many tokens the validation loss first was the reference's "
    "last, by straight lines between losses. It understates a lead: the learning rate was still high at that point.",
    "swap_1": "Swap test: how often the encoder prefers a text to the same text with two neighbouring words swapped; "
    "chance is 50.",
}
"""The lines that explain figures, by the first that each explains."""
SEARCHED = "**Bold**: the chosen rate. * the lowest or the highest rate that was tried: one beyond it may be better."
RUNS = "Validation loss after {steps} steps with {seeds}."
SAME = "the same tokens, masks and order for all arms of a seed ({hashes})"
NOT_SAME = "NOT the same tokens, masks and order for all arms of a seed: losses do not compare"


def budget_frame(results: Results) -> DataFrame:
    """One row per arm and seed of its pretraining: arm, variant, origin, RUN, FIGURES, `steps`, `stream`, `device`.

    Values are missing where an arm was not pretrained, `learning_rate` and `search_tokens` where no rate was searched
    for. `stream` is a hash over everything the arm was shown, in order: equal streams saw the same tokens and masks.
    `tokens_to_reference` is after how many of them the validation loss first was the last one of the reference arm with
    the same seed, and `swap_1` the swap test of neighbouring words, 0 to 100.
    """

    def device(environment: Environment) -> str | None:
        threads = f"{environment.processor}, {environment.threads} thread{'s' * (environment.threads != 1)}"
        return threads if environment.device == "cpu" else environment.device

    runs = results.pretrainings[~results.pretrainings["is_search"]].rename(
        columns={"seed": "pretraining_seed"}
    )
    seen = (
        results.pretrainings[results.pretrainings["finished"]]
        .set_index("pretraining_id")["tokens"]
        .to_dict()
    )
    swaps = results.measures[results.measures["measure"] == "swap_1"].set_index("pretraining_id")[
        "value"
    ]
    reference = reference_arm(results.arms["variant"], results.plan.experiment.protocol.reference)
    goals = runs[runs["arm"] == reference].set_index("pretraining_seed")["validation_loss"].dropna()
    curves, reached = (
        dict(list(results.losses.groupby("pretraining_id"))),
        dict[str, float | None](),
    )
    for name, seed in runs.loc[runs["finished"], ["pretraining_id", "pretraining_seed"]].itertuples(
        index=False
    ):
        if seed in goals:
            reached[name] = tokens_to_reach(goals[seed], curves[name])
    runs = runs.assign(
        search_tokens=runs["searches"]
        .explode()
        .map(seen)
        .astype(float)
        .groupby(level=0)
        .sum(min_count=1),
        peak_memory_mb=(runs["peak_memory_bytes"].astype(float) / 1e6).round().astype("Int64"),
        tokens_to_reference=runs["pretraining_id"].map(reached).astype(float).round(),
        swap_1=runs["pretraining_id"].map(100 * swaps).astype(float),
        device=runs["environment"].map(device, na_action="ignore"),
    )
    frame = results.arms[OF_ARM].reset_index(drop=True).merge(runs, on="arm", how="left")
    frame = frame[
        ["arm", "variant", "origin", *RUN, *FIGURES, "steps", "stream", "length", "device"]
    ]
    frame = frame.astype(
        dict.fromkeys(("pretraining_seed", "search_tokens", "tokens_to_reference"), "Int64")
    )
    return frame.sort_values(
        "origin", key=lambda column: column.map(ORIGINS.index), kind="stable", ignore_index=True
    )


def tokens_to_reach(loss: float, curve: DataFrame) -> float | None:
    """After how many `tokens` a curve of `validation_loss` first is at `loss` or below; None if it never is.

    The curve is straight between its points; before the first it is unknown, and the first one counts.
    """
    tokens, reached = (
        curve.dropna(subset="validation_loss")[["tokens", "validation_loss"]].to_numpy(float).T
    )
    if not (reached <= loss).any():
        return None
    first = int(np.argmax(reached <= loss))
    before = max(first - 1, 0)
    return float(np.interp(loss, reached[[first, before]], tokens[[first, before]]))


def rates_frame(results: Results) -> DataFrame:
    """One row per run of a search for rates: RATES, without the only `seed`; no loss where training diverged."""
    runs = results.pretrainings[results.pretrainings["finished"]]
    place = ["arm", "learning_rate"]
    chosen = runs.loc[~runs["is_search"], place].drop_duplicates().assign(chosen=True)
    searched = runs[runs["is_search"]].sort_values(place).merge(chosen, on=place, how="left")
    searched = searched.assign(chosen=searched["chosen"].eq(True))[RATES]
    return searched if searched["seed"].nunique() > 1 else searched.drop(columns="seed")


def informative(frame: DataFrame) -> DataFrame:
    """The frame without columns that say nothing: the only seed, rates that no one searched for, no swap test."""
    silent = [
        name
        for name in (*RUN, "swap_1")
        if name in frame and frame[name].nunique() < 1 + (name == RUN[0])
    ]
    return frame.drop(columns=silent)


def budget_page(results: Results) -> Page:
    """One row per arm, of several seeds of pretraining their means; the facts behind it, and the search for rates."""
    budgets, rates = budget_frame(results), rates_frame(results)
    shown = informative(budgets)
    numbers = [name for name in TITLES if name in shown]
    groups = shown.groupby("arm", sort=False)
    figures = shown[numbers].astype(float).groupby(shown["arm"], sort=False)
    finished = groups["tokens"].count()
    means = figures.mean().where(
        figures.count().ge(finished, axis=0)
    )  # NaN where a finished one has none
    frame = groups.first().assign(**means, seeds=finished).reset_index()
    names = [
        name
        for name in TITLES
        if name in numbers or (name == "seeds" and "pretraining_seed" in shown)
    ]

    def text(value: float, name: str) -> str:
        exact_decimals = MEASURES[name].decimals if name in ("train_loss", "validation_loss") else 1
        decimals = exact_decimals if value % 1 and value < 100 else 0
        whole = f"{value:g}" if name == "learning_rate" else f"{value:,.{decimals}f}"
        return MISSING if pd.isna(value) else whole

    columns = {name: Column(name.capitalize()) for name in ("arm", "variant", "origin")}
    table = Table(
        frame=frame.assign(
            **{name: [text(value, name) for value in frame[name]] for name in names}
        ),
        columns=columns | {name: Column(TITLES[name], show=str) for name in names},
    )
    places = budgets.dropna(subset="device").groupby("device")["arm"].unique()
    devices = [
        f"{place}" + (f" ({', '.join(arms)})" if len(places) > 1 else "")
        for place, arms in places.items()
    ]
    streams = budgets.dropna(subset="stream").groupby("pretraining_seed", dropna=False)["stream"]
    same = (
        SAME.format(hashes=", ".join(stream[:12] for stream in streams.first()))
        if len(streams)
        else ""
    )
    facts = (
        ("Measured on", "; ".join(devices)),
        ("Length", ", ".join(map("{:g}".format, sorted(budgets["length"].dropna().unique())))),
        ("Shown", NOT_SAME if (streams.nunique() > 1).any() else same),
    )
    tables = (
        *with_legend([table], LEGEND),
        facts_table(facts),
        *([_search(rates)] if len(rates) else []),
    )
    return Page(title=f"Budgets: {results.experiment}", banner=results.banner, tables=tables)


def _search(rates: DataFrame) -> Table:
    """The loss of each arm at each rate, the chosen one in bold, with a mark where it is at an end of several."""
    places = ["arm", "learning_rate"]
    losses = aggregate(
        rates.assign(value=rates["validation_loss"]), places
    )  # NaN where one of the seeds diverged
    frames = losses["mean"], rates.groupby(places, sort=False)["chosen"].first()
    wide, chosen = (
        frame.unstack().sort_index(axis=1).rename(columns="{:g}".format) for frame in frames
    )
    tried = chosen.apply(lambda row: row.dropna().to_list(), axis=1)
    marks = ["*" if len(each) > 1 and (each[0] or each[-1]) else "" for each in tried]
    seeds = int(losses["n"].max())
    steps = " or ".join(f"{number:,}" for number in sorted(rates["steps"].unique()))
    return Table(
        title="Search for the learning rate",
        caption=RUNS.format(
            steps=steps, seeds="one seed" if seeds == 1 else f"{seeds} seeds, the mean"
        ),
        frame=wide.reset_index(),
        columns={"arm": Column("Arm"), **{rate: Column(rate, 3) for rate in map(str, wide)}},
        bold=chosen.reset_index(drop=True),
        marks=DataFrame({"arm": marks}),
        legend=(SEARCHED,),
    )
