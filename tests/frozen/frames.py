"""Every frame behind the tables of results/*, at full precision; of predictions, a hash for each run and split."""

import hashlib
from pathlib import Path
from types import ModuleType

import pandas as pd

FOLDERS = ("study", "minilm", "study_screen")


def values(adapter: ModuleType, quick: bool) -> dict[str, pd.DataFrame]:
    """The frames by the folder's name and theirs; with `quick` those of one folder."""
    found = {}
    for folder in FOLDERS[1:2] if quick else FOLDERS:
        place = Path("results", folder)
        for name, frame in adapter.frames(place):
            if len(frame):
                found[f"{folder}_{name}"] = _plain(frame)
        if not quick:
            found[f"{folder}_predicted"] = _predicted(adapter.predicted(place))
    return found


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers and texts; what else a column holds, such as tuples, as texts."""
    numbers = {name: pd.api.types.is_numeric_dtype(frame[name]) for name in frame}
    return pd.DataFrame(
        {
            str(name): frame[name].astype("float64") if numbers[name] else frame[name].fillna("").astype(str)
            for name in frame
        }
    ).reset_index(drop=True)


def _predicted(frame: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (arm, task, rate, seed, split), mine in frame.groupby(
        ["arm", "task", "learning_rate", "seed", "split"], sort=True
    ):
        values = mine.sort_values(["cell_id", "row"])[["predicted", "label"]].to_numpy(float)
        rows.append((arm, task, rate, seed, split, len(mine), hashlib.sha256(values.tobytes()).hexdigest()[:16]))
    return pd.DataFrame(rows, columns=["arm", "task", "rate", "seed", "split", "rows", "digest"])
