"""What finished runs have predicted, example by example."""

from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.data.metrics import decide
from glue_bench.data.tasks import find_task
from glue_bench.tables.results import read_results

RUN = ["cell_id", "arm", "task", "learning_rate", "pretraining_seed", "seed"]


def predictions(path: str | Path, *, task: str | None = None) -> pd.DataFrame:
    """What the finished runs of the experiment in the folder `path` predicted, of all tasks or of one.

    One row per run and example: `cell_id`, `arm`, `task`, `learning_rate`, `pretraining_seed`, `seed`, `split`, `row`
    (from 0, in the order of the data), `predicted` and `label`: ids of classes, or scores of STS-B. `label` is missing
    where no gold labels are stored, as for test splits.

    Example:
        >>> glue_bench.predictions("runs/demo", task="rte").eval("predicted == label").mean()  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or task, or a file is damaged.
    """
    results, wanted = read_results(path), find_task(task).name if task else None
    cells, frames = results.cells[results.cells["finished"]].sort_values("cell_id"), []
    for cell in (cells[cells["task"] == wanted] if wanted else cells).to_dict("records"):
        labels = results.arrays.gold(cell["task"], cell["data"])
        for split, logits in results.arrays.predicted(cell["cell_id"]).items():
            decided = decide(cell["task"], logits)
            values = {"row": np.arange(len(decided)), "predicted": decided, "label": labels.get(split, np.nan)}
            frames.append(pd.DataFrame({**{name: cell[name] for name in RUN}, "split": split, **values}))
    columns = [*RUN, "split", "row", "predicted", "label"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
