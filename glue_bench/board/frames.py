"""The predictions of an experiment as a frame."""

import numpy as np
import pandas as pd

from glue_bench.board.results import Results
from glue_bench.data.metrics import decide
from glue_bench.data.tasks import find_task

RUN_COLUMNS_OF_PREDICTIONS = [
    "cell_id",
    "arm",
    "task",
    "learning_rate",
    "pretraining_seed",
    "seed",
]
PREDICTION_COLUMNS = [*RUN_COLUMNS_OF_PREDICTIONS, "split", "row", "predicted", "label"]


def predictions_frame(results: Results, task: str | None) -> pd.DataFrame:
    """Return one row per finished run and example, as `glue_bench.predictions` describes it."""
    cells = results.cells[results.cells["finished"]].sort_values("cell_id")
    if task:
        cells = cells[cells["task"] == find_task(task).name]

    frames: list[pd.DataFrame] = []
    for cell in cells.to_dict("records"):
        labels = results.gold(cell["task"])
        logits_by_split = results.logits(cell["cell_id"])
        logits_by_split |= results.logits(cell["cell_id"], test=True)
        for split, logits in logits_by_split.items():
            predicted = decide(cell["task"], logits)
            columns = {name: cell[name] for name in RUN_COLUMNS_OF_PREDICTIONS}
            columns |= {
                "split": split,
                "row": np.arange(len(predicted)),
                "predicted": predicted,
                "label": labels.get(split, np.nan),
            }
            frames.append(pd.DataFrame(columns))

    if not frames:
        return pd.DataFrame(columns=PREDICTION_COLUMNS)
    return pd.concat(frames, ignore_index=True)
