"""The page of budgets: what each pretraining cost, what it gave, and the search for its rate."""

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from glue_bench.board.aggregation import aggregate
from glue_bench.board.columns import ORIGINS
from glue_bench.board.compare import reference_arm
from glue_bench.board.results import Results
from glue_bench.data.measures import MEASURES
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import Column, Page, Table, facts_table, with_legend
from glue_bench.records.environment import Environment

PRETRAINING_KEYS = ["pretraining_seed", "learning_rate", "search_tokens"]
"""The columns that tell the pretrainings of an arm apart, and the tokens of the rate's search."""
ENCODER_FACTS = [
    "arm",
    "variant",
    "origin",
    "parameters",
    "non_embedding_parameters",
    "added_over_add",
    "flops_per_token",
    "length",
]
RATES_COLUMNS = [
    "arm",
    "learning_rate",
    "seed",
    "validation_loss",
    "steps",
    "tokens",
    "seconds",
    "chosen",
]
FIGURE_TITLES = {
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
"""The figures of a pretraining in the order of the page, and their titles."""
PRETRAINING_FIGURES = [
    "parameters",
    "non_embedding_parameters",
    "added_over_add",
    "flops_per_token",
    "tokens",
    "tokens_per_second",
    "peak_memory_mb",
    "train_loss",
    "validation_loss",
    "tokens_to_reference",
    "swap_1",
]
"""The figures that every pretraining has."""
BUDGET_LEGEND = {
    "parameters": "Parameters: the encoder and its pooler, no head. Without tables: without token, "
    "position and segment tables. Over add: against `add` at the same sizes. A row of a table that "
    "nothing reads counts, too.",
    "flops_per_token": "FLOPs per token: matrix products of a forward and a backward pass at that "
    "length, no head. What depends on positions alone counts once for a batch of 32.",
    "tokens": "Tokens seen: without padding, the mean over pretraining seeds as all that follows; "
    "`budget.csv` has each seed. Tokens of the search: of all runs that the arm's rate was chosen "
    "from.",
    "tokens_per_second": "Tokens/s: of training alone; other work on the machine slowed it down. "
    "Peak memory: the largest resident memory of the process.",
    "train_loss": "Losses: mean cross-entropy per masked token, in nats. Training loss: of the "
    "last hundredth of the steps. Validation loss: of the same text and masks for every arm.",
    "tokens_to_reference": "Tokens to reference: after how many tokens the validation loss first "
    "was the reference's last, by straight lines between losses. It understates a lead: the "
    "learning rate was still high at that point.",
    "swap_1": "Swap test: how often the encoder prefers a text to the same text with two "
    "neighbouring words swapped; chance is 50.",
}
"""The legend lines by the figure that they explain. A line may also explain the next figures."""
SEARCH_NOTE = (
    "**Bold**: the chosen rate. * the lowest or the highest rate that was tried: "
    "one beyond it may be better."
)
SEARCH_CAPTION = "Validation loss after {steps} steps with {seeds}."
SAME_TEXT = "the same tokens, masks and order for all arms of a seed ({hashes})"
NOT_SAME_TEXT = "NOT the same tokens, masks and order for all arms of a seed: losses do not compare"


def budget_frame(results: Results) -> DataFrame:
    """Give the budget of each arm and seed of its pretraining.

    Returns:
        A frame with a row for each arm and seed: arm, variant, origin, PRETRAINING_KEYS,
        PRETRAINING_FIGURES, steps, stream, length and device. Values are missing where an arm was
        not pretrained. `stream` is a hash over everything that the arm was shown, in order: arms
        with equal streams saw the same tokens and masks. `tokens_to_reference` is the number of
        tokens after which the validation loss first reached the last validation loss of the
        reference arm with the same seed. `swap_1` is the share of texts that are preferred to the
        same text with two neighbouring words swapped, 0 to 100.
    """
    pretrainings = results.pretrainings
    runs = pretrainings[~pretrainings["is_search"]]
    runs = runs.rename(columns={"seed": "pretraining_seed"})
    measures = results.measures[results.measures["measure"] == "swap_1"]
    swaps = measures.set_index("pretraining_id")["value"]
    memory = runs["peak_memory_bytes"].astype(float) / 1e6
    runs = runs.assign(
        search_tokens=search_tokens(pretrainings, runs["searches"]),
        peak_memory_mb=memory.round().astype("Int64"),
        tokens_to_reference=tokens_to_reference(results, runs).round(),
        swap_1=runs["pretraining_id"].map(100 * swaps).astype(float),
        device=runs["environment"].map(device_text, na_action="ignore"),
    )
    frame = results.arms[ENCODER_FACTS].reset_index(drop=True).merge(runs, on="arm", how="left")
    names = ["arm", "variant", "origin", *PRETRAINING_KEYS, *PRETRAINING_FIGURES]
    frame = frame[[*names, "steps", "stream", "length", "device"]]
    whole_numbers = ("pretraining_seed", "search_tokens", "tokens_to_reference")
    frame = frame.astype(dict.fromkeys(whole_numbers, "Int64"))

    def place_of(origins: Series) -> Series:
        return origins.map(ORIGINS.index)

    return frame.sort_values("origin", key=place_of, kind="stable", ignore_index=True)


def search_tokens(pretrainings: DataFrame, searches: Series) -> Series:
    """Sum the tokens of all runs that a rate was chosen from. Without a search the sum is missing.

    Args:
        pretrainings: All pretrainings.
        searches: For each pretraining the ids of the runs of its search.

    Returns:
        The sums, with the index of `searches`.
    """
    finished = pretrainings[pretrainings["finished"]]
    tokens_by_id = dict(zip(finished["pretraining_id"], finished["tokens"], strict=True))
    tokens = searches.explode().map(tokens_by_id).astype(float)
    return tokens.groupby(level=0).sum(min_count=1)


def tokens_to_reference(results: Results, runs: DataFrame) -> Series:
    """Find after how many tokens each run had the last validation loss of the reference arm."""
    protocol = results.plan.experiment.protocol
    reference = reference_arm(results.arms["variant"], protocol.reference)
    of_reference = runs[runs["arm"] == reference].set_index("pretraining_seed")
    last_losses = of_reference["validation_loss"].dropna()
    curves = dict(list(results.losses.groupby("pretraining_id")))
    tokens_by_id = {}
    for run in runs[runs["finished"]].to_dict("records"):
        seed = run["pretraining_seed"]
        if seed in last_losses:
            curve = curves[run["pretraining_id"]]
            tokens_by_id[run["pretraining_id"]] = tokens_to_reach(last_losses[seed], curve)
    return runs["pretraining_id"].map(tokens_by_id).astype(float)


def tokens_to_reach(loss: float, curve: DataFrame) -> float | None:
    """Find after how many tokens a curve first is at a loss or below it.

    The curve is straight between its points. Before the first point it is unknown: if the loss is
    reached there, the tokens of the first point count.

    Args:
        loss: The validation loss to reach.
        curve: `tokens` and `validation_loss`, in the order of training.

    Returns:
        The tokens; None if the loss is never reached.
    """
    measured = curve.dropna(subset="validation_loss")
    tokens = measured["tokens"].to_numpy(float)
    losses = measured["validation_loss"].to_numpy(float)
    is_reached = losses <= loss
    if not is_reached.any():
        return None
    first = int(np.argmax(is_reached))
    before = max(first - 1, 0)
    ends = [first, before]
    return float(np.interp(loss, losses[ends], tokens[ends]))


def device_text(environment: Environment) -> str | None:
    """Name the device of a pretraining, a CPU with the number of its threads."""
    if environment.device != "cpu":
        return f"{environment.device}, CUDA graphs" if environment.graphs else environment.device
    noun = "thread" if environment.threads == 1 else "threads"
    return f"{environment.processor}, {environment.threads} {noun}"


def rates_frame(results: Results) -> DataFrame:
    """Give the runs of the searches for rates.

    Returns:
        A frame with a row for each run: RATES_COLUMNS, without `seed` if there is only one. The
        loss is missing where training diverged.
    """
    keys = ["arm", "learning_rate"]
    runs = results.pretrainings[results.pretrainings["finished"]]
    chosen = runs.loc[~runs["is_search"], keys].drop_duplicates().assign(chosen=True)
    searched = runs[runs["is_search"]].sort_values(keys).merge(chosen, on=keys, how="left")
    searched = searched.assign(chosen=searched["chosen"].eq(True))[RATES_COLUMNS]
    if searched["seed"].nunique() > 1:
        return searched
    return searched.drop(columns="seed")


def drop_silent_columns(frame: DataFrame) -> DataFrame:
    """Drop the columns that say nothing: the only seed, rates without a search, no swap test."""
    silent = []
    for name in (*PRETRAINING_KEYS, "swap_1"):
        least_values = 2 if name == "pretraining_seed" else 1
        if name in frame and frame[name].nunique() < least_values:
            silent.append(name)
    return frame.drop(columns=silent)


def budget_page(results: Results) -> Page:
    """Make the page: a row for each arm, the facts behind it, and the search for rates."""
    return page_of_budgets(results, budget_frame(results), rates_frame(results))


def page_of_budgets(results: Results, budgets: DataFrame, rates: DataFrame) -> Page:
    """Make the page of a `budget_frame` and a `rates_frame` that were made of these results.

    Args:
        results: The results.
        budgets: Their `budget_frame`.
        rates: Their `rates_frame`.

    Returns:
        The same page as `budget_page`.
    """
    tables = with_legend([budget_table(budgets)], BUDGET_LEGEND)
    tables.append(facts_of_budgets(budgets))
    if len(rates):
        tables.append(search_table(rates))
    return Page(title=f"Budgets: {results.experiment}", banner=results.banner, tables=tuple(tables))


def budget_table(budgets: DataFrame) -> Table:
    """Make the table of a `budget_frame`: the means of each arm over its pretraining seeds."""
    informative = drop_silent_columns(budgets)
    frame = mean_figures(informative)
    columns = {
        "arm": Column("Arm"),
        "variant": Column("Variant"),
        "origin": Column("Origin"),
    }
    for name, title in FIGURE_TITLES.items():
        needs = "pretraining_seed" if name == "seeds" else name
        if needs in informative:
            columns[name] = Column(title, show=str)
            frame[name] = [figure_text(value, name) for value in frame[name]]
    return Table(frame=frame, columns=columns)


def mean_figures(budgets: DataFrame) -> DataFrame:
    """Average the figures of each arm; NaN where a finished pretraining has none.

    `seeds` counts the finished pretrainings.
    """
    names = [name for name in FIGURE_TITLES if name in budgets]
    groups = budgets.groupby("arm", sort=False)
    seeds = groups["tokens"].count()
    figures = budgets[names].astype(float).groupby(budgets["arm"], sort=False)
    is_complete = figures.count().ge(seeds, axis=0)
    means = figures.mean().where(is_complete)
    frame = groups.first()
    for name in names:
        frame[name] = means[name]
    frame["seeds"] = seeds
    return frame.reset_index()


def figure_text(value: float, name: str) -> str:
    """Write a figure: decimals only where it is below 100 and no whole number."""
    if pd.isna(value):
        return MISSING
    if name == "learning_rate":
        return f"{value:g}"
    decimals = 0
    if value % 1 and value < 100:
        decimals = MEASURES[name].decimals if name in ("train_loss", "validation_loss") else 1
    return f"{value:,.{decimals}f}"


def facts_of_budgets(budgets: DataFrame) -> Table:
    """Make the table of where budgets were measured, and whether arms saw the same text."""
    arms_by_device = budgets.dropna(subset="device").groupby("device")["arm"].unique()
    devices = []
    for device, arms in arms_by_device.items():
        note = f" ({', '.join(arms)})" if len(arms_by_device) > 1 else ""
        devices.append(f"{device}{note}")
    lengths = sorted(budgets["length"].dropna().unique())
    facts = [
        ("Measured on", "; ".join(devices)),
        ("Length", ", ".join(f"{length:g}" for length in lengths)),
        ("Shown", streams_text(budgets)),
    ]
    return facts_table(facts)


def streams_text(budgets: DataFrame) -> str:
    """Say whether all arms of a seed were shown the same; empty where nothing was pretrained."""
    streams = budgets.dropna(subset="stream").groupby("pretraining_seed", dropna=False)["stream"]
    if not len(streams):
        return ""
    if (streams.nunique() > 1).any():
        return NOT_SAME_TEXT
    hashes = [stream[:12] for stream in streams.first()]
    return SAME_TEXT.format(hashes=", ".join(hashes))


def search_table(rates: DataFrame) -> Table:
    """Make the table of a search: the loss of each arm at each rate, the chosen rate in bold.

    A mark says that the chosen rate is the lowest or the highest of several.
    """
    keys = ["arm", "learning_rate"]
    # The mean is NaN where one of the seeds diverged.
    losses = aggregate(rates.assign(value=rates["validation_loss"]), keys)

    wide_losses = spread_by_rate(losses["mean"])
    is_chosen = spread_by_rate(rates.groupby(keys, sort=False)["chosen"].first())
    marks = []
    for _, row in is_chosen.iterrows():
        tried = row.dropna().to_list()
        is_at_end = len(tried) > 1 and (tried[0] or tried[-1])
        marks.append("*" if is_at_end else "")

    columns = {"arm": Column("Arm")}
    for rate in wide_losses:
        columns[str(rate)] = Column(str(rate), 3)

    seeds = int(losses["n"].max())
    steps = " or ".join(f"{steps:,}" for steps in sorted(rates["steps"].unique()))
    return Table(
        title="Search for the learning rate",
        caption=SEARCH_CAPTION.format(
            steps=steps, seeds="one seed" if seeds == 1 else f"{seeds} seeds, the mean"
        ),
        frame=wide_losses.reset_index(),
        columns=columns,
        bold=is_chosen.reset_index(drop=True),
        marks=DataFrame({"arm": marks}),
        legend=(SEARCH_NOTE,),
    )


def spread_by_rate(values: Series) -> DataFrame:
    """Spread values by arm and rate into a column for each rate, the lowest first."""
    return values.unstack().sort_index(axis=1).rename(columns="{:g}".format)
