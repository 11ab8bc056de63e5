"""The leaderboard and the predictions of an experiment as frames."""

from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.board.compare import leaderboard_frame, open_comparison
from glue_bench.board.results import read_results
from glue_bench.data.metrics import decide
from glue_bench.data.tasks import find_task

PREDICTIONS = ("cell_id", "arm", "task", "learning_rate", "pretraining_seed", "seed", "split", "row", "predicted",
               "label")  # fmt: skip


def leaderboard(path: str | Path) -> pd.DataFrame:
    """The leaderboard of the experiment in the folder `path` (DIR/<experiment>).

    It is leaderboard.csv in full precision: one row per arm, in blocks of one origin and one shape, the best first;
    then one per baseline, of origin "baseline". For each column of the experiment's tasks `<col>` (mean or median over
    seeds of its main metric, 0 to 100), `<col>_std` (sample deviation) and `<col>_n` (finished seeds); averages and
    measures of pretraining; what each arm is; and of its difference from the `reference` `<col>_difference`, `_low`,
    `_high`, `_verdict` and `_smallest`.

    Example:
        >>> glue_bench.leaderboard("runs/demo")[["arm", "rte", "rte_std", "rte_verdict"]]  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in the folder, or its plan names an unknown task or origin.
    """
    return leaderboard_frame(open_comparison(path))


def predictions(path: str | Path, *, task: str | None = None) -> pd.DataFrame:
    """What the finished runs of the experiment in the folder `path` predicted, of all tasks or of one.

    One row per run and example (PREDICTIONS): `row` is from 0, in the order of the data; `predicted` and `label` are
    ids of classes, or scores of STS-B. `label` is missing where no gold labels are stored, as for test splits.

    Example:
        >>> glue_bench.predictions("runs/demo", task="rte").eval("predicted == label").mean()  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or task, or a file is damaged.
    """
    results, wanted = read_results(path), find_task(task).name if task else None
    cells, frames = results.cells[results.cells["finished"]].sort_values("cell_id"), []
    for cell in (cells[cells["task"] == wanted] if wanted else cells).to_dict("records"):
        labels = results.gold(cell["task"])
        scored, tests = (results.logits(cell["cell_id"], test=test) for test in (False, True))
        for split, logits in (scored | tests).items():
            decided = decide(cell["task"], logits)
            values = {"row": np.arange(len(decided)), "predicted": decided, "label": labels.get(split, np.nan)}
            frames.append(pd.DataFrame({**{name: cell[name] for name in PREDICTIONS[:6]}, "split": split, **values}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(PREDICTIONS))
