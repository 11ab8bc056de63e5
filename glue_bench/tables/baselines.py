"""What trivial baselines score on the validation sets of an experiment's tasks: the floor of every leaderboard."""

import pandas as pd

from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.errors import UserError
from glue_bench.stats.outcomes import constant_score
from glue_bench.tables.arrays import Arrays

BASELINES = ("task", "split", "metric", "baseline", "value")
MAJORITY = "majority class"


def baselines_frame(digests: pd.Series, arrays: Arrays) -> pd.DataFrame:
    """BASELINES of tasks (the index) whose data have these digests: a row for each split with gold labels, 0 to 100.

    `majority class` always gives the most frequent class, and scores 0 where the metric is a correlation.
    """
    rows = []
    for task, digest in zip(digests.index.map(str), digests, strict=True):
        try:
            gold = arrays.gold(task, digest)
        except UserError:  # whoever compares predictions with them says so
            continue
        metric = TASKS[task].metrics[0]
        splits = [split for of, split in COLUMNS.values() if of == task and split in gold]
        rows += [(task, split, metric, MAJORITY, constant_score(metric, gold[split])) for split in splits]
    return pd.DataFrame(rows, columns=list(BASELINES)).astype({"value": float})
