"""Which finished run stands for an arm on a task, and the scores of an arm."""

import numpy as np
import pandas as pd

from glue_bench.board.aggregation import BOTH_SEEDS, COMPARED_DIGITS, aggregate, main_scores
from glue_bench.board.board import Board
from glue_bench.data.metrics import METRICS
from glue_bench.data.tasks import KNOWN
from glue_bench.errors import IN_A_FILE, UserError, unknown

METRIC_NAMES = {name: name.replace("_", " ").capitalize() for name in METRICS}
METRIC_NAMES |= {
    "pearson": "Pearson correlation",
    "spearmanr": "Spearman correlation",
    "macro_f1": "Macro F1",
}
PREDICT_TEST_ADVICE = (
    f"set `finetuning: {{predict: [validation, test]}}` {IN_A_FILE} and run the experiment "
    "again, on data that has test files"
)
RUN_RULE = (
    "of the finished runs at the rate reported for the task, the one whose main validation score "
    "(the mean over its scored splits) is the median over seeds; of an even number the lower of "
    "the middle two, of equals the lower seed"
)


def median_runs(board: Board, arm: str) -> pd.DataFrame:
    """Return the run that stands for an arm on each task, by RUN_RULE.

    An undefined score is lower than any other.

    Returns:
        A frame with the task as index, and the columns cell_id, learning_rate, seed, and `value`,
        the main validation score as reported, 0 to 100.
    """
    scores = main_scores(board.runs[board.runs["arm"] == arm])
    means = aggregate(scores, ["task", "cell_id", "learning_rate", *BOTH_SEEDS])["mean"]
    runs = means.rename("value").reset_index()
    runs["rank"] = runs["value"].fillna(-np.inf).round(COMPARED_DIGITS)
    ranked = runs.sort_values(["rank", *BOTH_SEEDS])
    ranks = ranked.groupby("task")["rank"]
    middle = ranks.transform(lambda values: values.iloc[(len(values) - 1) // 2])
    medians = ranked[ranked["rank"] == middle].drop_duplicates("task").set_index("task")
    columns = ["cell_id", "learning_rate", "seed", "value"]
    return medians.loc[scores["task"].unique(), columns]


def chosen_runs(board: Board) -> set[str]:
    """Return the ids of the `median_runs` of all arms."""
    cell_ids: set[str] = set()
    for arm in board.arms:
        cell_ids.update(median_runs(board, arm)["cell_id"])
    return cell_ids


def arm_scores(board: Board, arm: str) -> pd.DataFrame:
    """Return the scores of one arm at the reported rates, 0 to 1.

    Returns:
        A row for each task, split and metric, with these columns:

        - `title` and `name`: the names of task and metric in words.
        - `revision`: the revision of the data.
        - `learning_rate`, `seed` and `value`: they belong to the run that stands for the task
          (`median_runs`). The value is the score after the run's last epoch.
        - `mean`, `std` and `n`: statistics of the reported scores over independent runs
          (`aggregate_independent`).
        - `error`: the standard error of the mean, NaN for one run.

        An undefined score makes mean, std and error NaN, as in the tables.
    """
    places = ["task", "split", "metric"]
    is_of_arm = board.runs["arm"] == arm
    arm_runs = board.runs[is_of_arm]
    aggregated = aggregate_independent(arm_runs, places)
    scores = aggregated.reset_index()
    titles = {name: task.title for name, task in KNOWN.items()}
    scores["title"] = scores["task"].map(titles)
    scores["name"] = scores["metric"].map(METRIC_NAMES)
    scores = scores.join(board.results.tasks["revision"], on="task")
    runs = median_runs(board, arm)[["cell_id", "learning_rate", "seed"]]
    scores = scores.join(runs, on="task")
    epochs = board.results.scores
    last = epochs.loc[epochs["last"], ["cell_id", "split", "metric", "value"]]
    scores = scores.merge(last, how="left", on=["cell_id", "split", "metric"])
    scores["error"] = scores["std"] / np.sqrt(scores["n"])
    scores[["value", "mean", "std", "error"]] /= 100
    return scores


def aggregate_independent(values: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return `aggregate` over independent runs.

    Runs that start from the same pretraining are not independent if there are several pretrainings.
    So the runs of each pretraining are averaged first.
    """
    pretrainings = values.groupby(keys)["pretraining_seed"].transform("nunique")
    units = values["seed"].where(pretrainings <= 1, values["pretraining_seed"])
    of_units = aggregate(values.assign(unit=units), [*keys, "unit"])["mean"]
    return aggregate(of_units.rename("value").reset_index(), keys)


def find_arm(board: Board, arm: str | None) -> str:
    """Return the arm of this name, or the only arm of the board if no name is given.

    Raises:
        UserError: There is no such arm, or there are several and no name is given.
    """
    if arm is None and len(board.arms) > 1:
        raise UserError(f"--arm says which arm: {', '.join(board.arms)}")
    if arm is not None and arm not in board.arms:
        raise unknown("arm", arm, board.arms, board.results.experiment)
    return arm or board.arms[0]
