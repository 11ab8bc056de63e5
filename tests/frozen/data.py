"""Rows of every task, what is said of a source, scores and files of a submission; real data where they are."""

import hashlib
from types import ModuleType

import numpy as np
import pandas as pd
import sets

CLASSES = {"stsb": 1, "mnli": 3, "ax": 3}


def values(adapter: ModuleType, quick: bool) -> dict[str, pd.DataFrame]:
    """Frames of the demo and of real data; scores and files are of random outputs."""
    sources = {"demo": "demo"} | ({"shared": str(sets.shared() / "glue")} if sets.shared() and not quick else {})
    frames, scores, outputs = {}, [], {}
    for name, source in sources.items():
        rows = []
        for task, of_task, splits, skipped in adapter.data(source):
            rows.append((task, "", 0, 0, of_task))
            for split, frame in splits.items():
                rows.append((task, split, len(frame), skipped.get(split, 0), _hash(frame)))
                if name == "demo":
                    outputs[task] = _logits(task, len(frame))
                    scores += _scores(adapter, task, split, frame)
        frames[f"{name}_rows"] = pd.DataFrame(rows, columns=["task", "split", "rows", "skipped", "digest"])
        frames[f"{name}_described"] = adapter.described(source).astype({"labels": str})
    files = {name: hashlib.sha256(content).hexdigest()[:16] for name, content in adapter.submission(outputs).items()}
    submission = pd.DataFrame(list(files.items()), columns=["file", "digest"])
    return frames | {"scores": pd.DataFrame(scores, columns=["of", "metric", "value"]), "submission": submission}


def _hash(frame: pd.DataFrame) -> str:
    total = hashlib.sha256(" ".join(frame.columns).encode())
    for row in frame.itertuples(index=False):
        total.update("\0".join(map(str, row)).encode() + b"\n")
    return total.hexdigest()[:16]


def _logits(task: str, rows: int) -> np.ndarray:
    draw = np.random.default_rng([rows, len(task)])
    return draw.normal(2.5 if task == "stsb" else 0.0, 2.0, (rows, CLASSES.get(task, 2))).astype(np.float32)


def _scores(adapter: ModuleType, task: str, split: str, frame: pd.DataFrame) -> list[tuple[str, str, float]]:
    labels = frame["label"].to_numpy()
    if (labels == -1).all():
        return []
    some = _logits(task, len(labels))
    constant, kinds = np.ones_like(some), {}
    for name, logits in {"random": some, "constant": constant}.items():
        kinds |= {(name, metric): value for metric, value in adapter.score(task, logits, labels).items()}
    return [(f"{task} {split} {name}", metric, value) for (name, metric), value in kinds.items()]
