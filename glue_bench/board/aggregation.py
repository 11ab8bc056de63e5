"""From the scores of runs to one number: main metrics, means over seeds, epochs and rates."""

import pandas as pd

from glue_bench.config import HELD_OUT, Protocol
from glue_bench.data.tasks import KNOWN

BOTH_SEEDS = ["pretraining_seed", "seed"]
RUN_KEYS = ["arm", "task", "learning_rate", *BOTH_SEEDS]
"""The columns that tell a run from the other runs of its experiment.

The pretraining seed is NA if no pretraining of ours came first.
"""
COMPARED_DIGITS = 9
"""Means are rounded to these digits before they are compared: an order of summing breaks no tie."""


def main_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the main metric of their task."""
    main_metrics = {name: task.metrics[0] for name, task in KNOWN.items()}
    metrics = scores["task"].map(main_metrics)
    return scores[scores["metric"] == metrics]


def aggregate(values: pd.DataFrame, keys: list[str], statistic: str = "mean") -> pd.DataFrame:
    """Return a statistic of `value` over the rows with equal keys.

    An undefined (NaN) value makes statistic and deviation NaN. To leave it out would flatter a run
    that failed.

    Args:
        values: A frame with the keys and `value`.
        keys: The columns that become the index.
        statistic: "mean" or "median".

    Returns:
        A frame with the columns `statistic`, `std` (the sample standard deviation, NaN for one
        row) and `n` (the number of rows). Keys are in the order of their first row.
    """
    groups = values.groupby(keys, sort=False, dropna=False)["value"]
    columns = {statistic: groups.agg(statistic), "std": groups.std(ddof=1), "n": groups.size()}
    if values["value"].isna().any():
        defined = groups.count()
        undefined = defined < columns["n"]
        columns[statistic] = columns[statistic].mask(undefined)
        columns["std"] = columns["std"].mask(undefined)
    return pd.DataFrame(columns)


def aggregate_over_seeds(
    values: pd.DataFrame, keys: list[str], statistic: str = "mean"
) -> pd.DataFrame:
    """Return what `aggregate` returns, but with a "mean" in which all pretrainings weigh the same.

    This mean first averages the fine-tuning seeds of each pretraining, however many of them have
    finished, and then the pretrainings. Contrasts take the same mean.

    Args:
        values: A frame with the keys, `pretraining_seed` and `value`.
        keys: The columns that become the index.
        statistic: "mean" or "median".
    """
    over_runs = aggregate(values, keys, statistic)
    if statistic != "mean":
        return over_runs
    of_seeds = aggregate(values, [*keys, "pretraining_seed"])
    means = of_seeds["mean"]
    of_pretrainings = means.rename("value").reset_index()
    over_pretrainings = aggregate(of_pretrainings, keys)
    return over_runs.assign(mean=over_pretrainings["mean"])


def reported_epochs(scores: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """Return the epoch of each run that the protocol reports, a row for each run.

    Its `value`, by which the run's learning rate competes, is the main metric on the set that
    chooses (the mean over both validation sets of MNLI). It is NaN if there is none, or if it is
    undefined.

    Args:
        scores: EPOCH_SCORE_COLUMNS and RUN_KEYS.
        protocol: The protocol. It says which epoch is reported, and which set chooses.
    """
    keys = ["cell_id", *RUN_KEYS, "epoch", "last"]
    is_held_out = scores["split"] == HELD_OUT
    held_out_chooses = protocol.choose_on == HELD_OUT
    chooses = is_held_out == held_out_chooses
    choosing_scores = main_scores(scores[chooses])
    aggregated = aggregate(choosing_scores, keys)
    means = aggregated["mean"]
    values = means.rename("value").reset_index()
    run_epochs = scores[keys].drop_duplicates()
    epochs = run_epochs.merge(values, on=keys, how="left")
    if protocol.epoch == "last":
        return epochs[epochs["last"]]
    # Of equal epochs the first is taken: the later ones have only cost time. An undefined value
    # loses to any other.
    ranked = epochs.sort_values(["value", "epoch"], ascending=[False, True])
    return ranked.drop_duplicates("cell_id").sort_index()


def best_rates(runs: pd.DataFrame, statistic: str = "mean") -> pd.DataFrame:
    """Return the learning rate that is reported for each arm and task.

    The rate with the best statistic over seeds wins. Only the rates with the most finished seeds
    compete, because a mean of few seeds wins by luck. An undefined value loses to any other, and of
    equal rates the lower one is taken.

    Args:
        runs: A frame with RUN_KEYS and `value`.
        statistic: "mean" or "median".

    Returns:
        A frame with the columns arm, task, learning_rate.
    """
    keys = ["arm", "task", "learning_rate"]
    aggregated = aggregate_over_seeds(runs, keys, statistic)
    rounded = aggregated.round(COMPARED_DIGITS)
    rates = rounded.reset_index()
    ranking = ["n", statistic, "learning_rate"]
    ranked = rates.sort_values(ranking, ascending=[False, False, True])
    winners = ranked.drop_duplicates(["arm", "task"])
    best = winners.sort_index()
    return best[keys].reset_index(drop=True)
