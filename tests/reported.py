"""Experiments whose arms can be told apart, for reports."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

LONG = "concat-with-a-projection-and-a-rather-long-name"
ARMS = {"add": 0.8, "none": 0.5, LONG: 0.805}


def fill(bench, arms=None, tasks=("rte", "sst2"), source="demo") -> Path:
    """Three runs of each arm (name -> accuracy) on each task, with predictions; the experiment's folder.

    Beside the demo data, which `source` names, no published table is shown, so that reports are made sooner.
    """
    for arm, accuracy in (arms or ARMS).items():
        for task in tasks:
            bench.finish_predicted(task, arm, accuracy, source=source)
    return bench.plan(config={"name": "toy", "arms": [{"name": arm} for arm in arms or ARMS]}, data_source=source)


def analyse(folder: Path, arms=("add",), places=8) -> None:
    """A made-up analysis of these arms in the experiment's folder."""
    (folder / "analysis").mkdir()
    document = {"text": "a text", "sequences_asked": 9, "checkpoints": {arm: {} for arm in arms}}
    (folder / "analysis" / "analysis.json").write_text(json.dumps(document))
    rows, columns = np.divmod(np.arange(places**2), places)
    cosines = {"i": rows, "j": columns, "cosine": np.cos(rows - columns)}
    shares = {"table": np.repeat(["words", "positions"], places), "index": np.tile(np.arange(1, places + 1), 2)}
    frames = {"positions_cosine": cosines, "spectrum": shares | {"variance": np.full(2 * places, 1 / places)}}
    for name, columns_of in frames.items():
        frame = pd.concat([pd.DataFrame({"checkpoint": arm, **columns_of}) for arm in arms])
        frame.to_csv(folder / "analysis" / f"{name}.csv", index=False)
