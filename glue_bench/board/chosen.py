"""Which finished run stands for an arm on a task, and what an arm has scored."""

import numpy as np
import pandas as pd

from glue_bench.board.aggregation import BOTH_SEEDS, aggregate, main_scores
from glue_bench.board.board import Board
from glue_bench.data.metrics import METRICS
from glue_bench.data.tasks import TASKS
from glue_bench.errors import IN_A_FILE, UserError, unknown

METRIC_NAMES = {name: name.replace("_", " ").capitalize() for name in METRICS}
METRIC_NAMES |= {"pearson": "Pearson correlation", "spearmanr": "Spearman correlation"}
PREDICT_TEST_ADVICE = (
    f"set `finetuning: {{predict: [validation, test]}}` {IN_A_FILE} and run the experiment "
    "again, on data that has test files"
)
RUN_RULE = (
    "of the finished runs at the rate reported for the task, the one whose main validation score (the mean over its "
    "scored splits) is the median over seeds; of an even number the lower of the middle two, of equals the lower seed"
)


def median_runs(board: Board, arm: str) -> pd.DataFrame:
    """The run by RUN_RULE that stands for an arm on a task (the index); an undefined score is lower than any other.

    cell_id, learning_rate, seed, and `value`, its main validation score as reported, 0 to 100.
    """
    scores = main_scores(board.runs[board.runs["arm"] == arm])
    runs = (
        aggregate(scores, ["task", "cell_id", "learning_rate", *BOTH_SEEDS])["mean"]
        .rename("value")
        .reset_index()
    )
    # The order of summation must not decide between equals.
    runs = runs.assign(rank=runs["value"].fillna(-np.inf).round(9)).sort_values(
        ["rank", *BOTH_SEEDS]
    )
    middle = runs.groupby("task")["rank"].transform(lambda ranks: ranks.iloc[(len(ranks) - 1) // 2])
    chosen = (
        runs[runs["rank"] == middle]
        .drop_duplicates("task")
        .set_index("task")
        .loc[scores["task"].unique()]
    )
    return chosen[["cell_id", "learning_rate", "seed", "value"]]


def chosen_runs(board: Board) -> set[str]:
    """The ids of `median_runs` of all arms."""
    return {cell_id for arm in board.arms for cell_id in median_runs(board, arm)["cell_id"]}


def arm_scores(board: Board, arm: str) -> pd.DataFrame:
    """What one arm scored, at the reported rates: a row for each task, split and metric.

    task, split, metric, their names as `title` and `name`, and the `revision` of the data; `learning_rate`, `seed` and
    `value` of the run that stands for the task (`median_runs`), after its last epoch; the `mean` of what is reported
    over `n` `independent` runs, with its `std` and standard error `error` (NaN for one run). Scores are 0 to 1. An
    undefined one makes all three NaN, as in the tables.
    """
    places = ["task", "split", "metric"]
    last = board.results.scores[board.results.scores["last"]]
    runs = median_runs(board, arm)[["cell_id", "learning_rate", "seed"]]
    titles = {n: t.title for n, t in TASKS.items()}
    scores = aggregate_independent(board.runs[board.runs["arm"] == arm], places).reset_index()
    scores = scores.assign(
        title=scores["task"].map(titles), name=scores["metric"].map(METRIC_NAMES)
    )
    scores = scores.join(board.results.tasks["revision"], on="task").join(runs, on="task")
    scores = scores.merge(
        last[["cell_id", *places[1:], "value"]], how="left", on=["cell_id", *places[1:]]
    )
    scores["error"] = scores["std"] / np.sqrt(scores["n"])
    scores[["value", "mean", "std", "error"]] /= 100
    return scores


def aggregate_independent(values: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """`aggregate` over independent runs: of those that start from the same one of several pretrainings the mean."""
    several = values.groupby(by)["pretraining_seed"].transform("nunique") > 1
    units = values.assign(unit=values["seed"].where(~several, values["pretraining_seed"]))
    return aggregate(aggregate(units, [*by, "unit"])["mean"].rename("value").reset_index(), by)


def find_arm(board: Board, arm: str | None) -> str:
    """The arm of this name, or the only one; raises UserError where there is none, or several and none is named."""
    if arm is None and len(board.arms) > 1:
        raise UserError(f"--arm says which arm: {', '.join(board.arms)}")
    if arm is not None and arm not in board.arms:
        raise unknown("arm", arm, board.arms, board.results.experiment)
    return arm or board.arms[0]
