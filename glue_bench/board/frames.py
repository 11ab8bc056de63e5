"""The predictions of an experiment as a frame."""

import numpy as np
import pandas as pd

from glue_bench.board.results import Results
from glue_bench.data.metrics import decide
from glue_bench.data.tasks import find_task

PREDICTIONS = ("cell_id", "arm", "task", "learning_rate", "pretraining_seed", "seed", "split", "row", "predicted",
               "label")  # fmt: skip


def predictions_frame(results: Results, task: str | None) -> pd.DataFrame:
    """Give one row per finished run and example, as `glue_bench.predictions` describes it."""
    wanted = find_task(task).name if task else None
    cells, frames = results.cells[results.cells["finished"]].sort_values("cell_id"), []
    for cell in (cells[cells["task"] == wanted] if wanted else cells).to_dict("records"):
        labels = results.gold(cell["task"])
        scored, tests = (results.logits(cell["cell_id"], test=test) for test in (False, True))
        for split, logits in (scored | tests).items():
            decided = decide(cell["task"], logits)
            values = {
                "row": np.arange(len(decided)),
                "predicted": decided,
                "label": labels.get(split, np.nan),
            }
            frames.append(
                pd.DataFrame(
                    {**{name: cell[name] for name in PREDICTIONS[:6]}, "split": split, **values}
                )
            )
    return (
        pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(PREDICTIONS))
    )
