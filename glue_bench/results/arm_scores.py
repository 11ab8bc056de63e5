"""What one arm scored on each task, with the standard error over its independent runs."""

import math
from collections.abc import Mapping

import pandas as pd

from glue_bench.results.board import Board
from glue_bench.results.protocol import aggregate, at_rates
from glue_bench.results.submission import Run


def arm_scores(board: Board, arm: str, runs: Mapping[str, Run]) -> pd.DataFrame:
    """What one arm scored, at the reported rates; `runs` has the run of each task that stands for it.

    One row per task, split and metric: task, split, metric, `value` of that run, `mean` over `n` independent runs and
    its standard error `error` (NaN for one run); all 0 to 1. An undefined score makes both NaN, as in the tables. Runs
    that start from the same pretrained weights are not independent: where there are several pretraining seeds, `n`
    counts these, and their means are averaged.
    """
    scores = at_rates(board.results.scores, board.rates)
    chosen = board.results.cells.set_index("cell_id").loc[[run.cell_id for run in runs.values()]]
    rows = []
    mine = scores[(scores["arm"] == arm) & scores["task"].isin(list(runs))]
    for (task, split, metric), group in mine.groupby(["task", "split", "metric"], sort=False):
        run = chosen[chosen["task"] == task].iloc[0]
        here = (group["seed"] == run["seed"]) & (
            group["pretraining_seed"].isna() | (group["pretraining_seed"] == run["pretraining_seed"])
        )
        independent = group["value"]
        if group["pretraining_seed"].nunique() > 1:
            independent = aggregate(group, ["pretraining_seed"])["mean"]
        rows.append(
            {
                "task": task,
                "split": split,
                "metric": metric,
                "value": group.loc[here, "value"].iloc[0] / 100,
                "mean": independent.mean(skipna=False) / 100,
                "error": independent.std(ddof=1, skipna=False) / math.sqrt(len(independent)) / 100,
                "n": len(independent),
            }
        )
    return pd.DataFrame(rows)
