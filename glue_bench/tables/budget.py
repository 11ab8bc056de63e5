"""What each pretraining of an arm cost, and what the arm learnt for that; searches for a rate; seconds of a seed."""

from typing import Any

import numpy as np
import pandas as pd

from glue_bench.records.environment import Environment
from glue_bench.tables.compare import reference_arm
from glue_bench.tables.results import ORIGINS, Results

MEGABYTE = 1_000_000
FIGURES = (
    "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token", "tokens", "tokens_per_second",
    "peak_memory_mb", "train_loss", "validation_loss", "tokens_to_reference", "swap_1",
)  # fmt: skip
RUN = ("pretraining_seed", "learning_rate", "search_tokens")
"""What tells the pretrainings of an arm apart: the rate where it was searched for, and what all of its search saw."""
RATES = ("arm", "learning_rate", "validation_loss", "steps", "tokens", "seconds", "chosen")
OF_ARM = ("arm", "variant", "origin", "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token",
          "length")  # fmt: skip


def budget_frame(results: Results) -> pd.DataFrame:
    """One row per arm and seed of its pretraining: arm, variant, origin, RUN, FIGURES, `steps` and `stream`.

    Values are missing where an arm was not pretrained, `learning_rate` and `search_tokens` where no rate was searched
    for. `stream` is a hash over everything the arm was shown, in order: equal streams saw the same tokens and masks.
    `tokens_to_reference` is after how many of them the validation loss first was the last one of the reference arm with
    the same seed, and `swap_1` the swap test of neighbouring words, 0 to 100.
    """
    runs = results.pretrainings[~results.pretrainings["is_search"]].rename(columns={"seed": "pretraining_seed"})
    searched = results.pretrainings[results.pretrainings["finished"]].set_index("pretraining_id")["tokens"]
    swaps = results.measures[results.measures["measure"] == "swap_1"].set_index("pretraining_id")["value"]
    known = runs["searches"].map(lambda ids: [searched[each] for each in _listed(ids) if each in searched.index])
    runs = runs.assign(
        search_tokens=known.map(lambda tokens: sum(tokens) if tokens else None),
        peak_memory_mb=(runs["peak_memory_bytes"].astype(float) / MEGABYTE).round().astype("Int64"),
        tokens_to_reference=runs["pretraining_id"].map(_tokens_to_reference(results, runs)).astype(float).round(),
        swap_1=runs["pretraining_id"].map(100 * swaps).astype(float),
        device=runs["environment"].map(_device),
    )
    frame = results.arms[list(OF_ARM)].reset_index(drop=True).merge(runs, on="arm", how="left")
    frame = frame[["arm", "variant", "origin", *RUN, *FIGURES, "steps", "stream", "length", "device"]]
    frame = frame.astype(dict.fromkeys(("pretraining_seed", "search_tokens", "tokens_to_reference"), "Int64"))
    return frame.sort_values("origin", key=lambda column: column.map(ORIGINS.index), kind="stable", ignore_index=True)


def rates_frame(results: Results) -> pd.DataFrame:
    """One row per arm and learning rate that was searched: RATES; no validation loss where training diverged."""
    runs = results.pretrainings[results.pretrainings["finished"]]
    chosen = set(runs.loc[~runs["is_search"], ["arm", "learning_rate"]].itertuples(index=False, name=None))
    found = runs[runs["is_search"]].sort_values(["arm", "learning_rate"], ignore_index=True)
    places = found[["arm", "learning_rate"]].itertuples(index=False, name=None)
    return found.assign(chosen=[place in chosen for place in places])[list(RATES)]


def at_an_end(rates: pd.DataFrame) -> list[str]:
    """The arms whose chosen rate is the lowest or the highest of several in a `rates_frame`."""
    tried = rates.groupby("arm")["learning_rate"].agg(["min", "max"])
    chosen = rates[rates["chosen"].astype(bool)].set_index("arm")["learning_rate"]
    ends = tried.reindex(chosen.index)
    return list(chosen.index[(ends["min"] < ends["max"]) & ((chosen == ends["min"]) | (chosen == ends["max"]))])


def told(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without columns that say nothing: the only seed, rates that no one searched for, no swap test."""
    may_be = (*RUN, "swap_1")
    silent = [name for name in may_be if name in frame and frame[name].nunique() < (2 if name == RUN[0] else 1)]
    return frame.drop(columns=silent)


def tokens_to_reach(loss: float, curve: pd.DataFrame) -> float | None:
    """After how many `tokens` a curve of `validation_loss` first is at `loss` or below; None if it never is.

    The curve is straight between its points; before the first it is unknown, and the first one counts.
    """
    tokens, reached = curve.dropna(subset="validation_loss")[["tokens", "validation_loss"]].to_numpy(float).T
    first = int(np.argmax(reached <= loss)) if (reached <= loss).any() else None
    if not first:
        return None if first is None else float(tokens[0])
    higher, lower = reached[first - 1], reached[first]
    return float(tokens[first - 1] + (tokens[first] - tokens[first - 1]) * (higher - loss) / (higher - lower))


def measured_costs(results: Results) -> tuple[float, float]:
    """Seconds that one pretraining of an arm took, and those of one fine-tuning seed; means, 0 if none.

    A seed is a run on every task at each of its learning rates. Runs of a rate search of pretraining are left out: they
    are shorter, and made once for all seeds.
    """
    trained = results.pretrainings[results.pretrainings["finished"] & ~results.pretrainings["is_search"]]
    runs = results.cells[results.cells["finished"]]
    each = runs.groupby(["task", "learning_rate"])["seconds"].mean().sum() if len(runs) else 0.0
    return float(np.mean(trained["seconds"])) if len(trained) else 0.0, float(each)


def _tokens_to_reference(results: Results, runs: pd.DataFrame) -> dict[str, float | None]:
    """By the id of the pretraining. All arms of a seed have the reference of that seed."""
    if runs.empty:
        return {}
    reference = reference_arm(dict(results.arms[["arm", "variant"]].to_numpy()), results.protocol.reference)
    done = runs.dropna(subset="validation_loss")
    goals = done[done["arm"] == reference].set_index("pretraining_seed")["validation_loss"]
    curves = dict(list(results.losses.groupby("pretraining_id")))
    return {
        row["pretraining_id"]: tokens_to_reach(goals[row["pretraining_seed"]], curves[row["pretraining_id"]])
        for row in runs[runs["finished"]].to_dict("records")
        if row["pretraining_seed"] in goals.index
    }


def _device(environment: Environment | float) -> str | None:
    if not isinstance(environment, Environment):
        return None
    threads = f"{environment.processor}, {environment.threads} thread{'s' * (environment.threads != 1)}"
    return threads if environment.device == "cpu" else environment.device


def _listed(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
