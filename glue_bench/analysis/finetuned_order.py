"""What fine-tuned cells score on validation sets with shuffled words, by their records (`finetuning.order: true`)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.records.store import Store

COLUMNS = ("checkpoint", "pretraining_seed", "task", "learning_rate", "seed", "split", "metric", "score", "shuffled")


def finetuned_order(names: Iterable[str]) -> pd.DataFrame:
    """COLUMNS, one row per cell, split and metric, of the names that are experiments' folders; `checkpoint` is the arm.

    Cells that ran without `order` have no row.
    """
    folders = [Path(name).expanduser() for name in names]
    records = [one for folder in folders if (folder / "plan.json").is_file() for one in Store(folder).scan_records()[0]]
    rows = [
        (key.arm, key.pretraining_seed, key.task, key.learning_rate, key.seed, split, metric, score, shuffled)
        for record in records
        for key in [record.cell]
        for split, scores in record.order.items()
        for metric, shuffled in scores.items()
        for score in [record.scores[split].get(metric)]
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def mean_by_task(scores: pd.DataFrame) -> dict[str, Any]:
    """By arm, task, split and metric: the mean score over cells, that with shuffled words, and the number of cells."""
    found: dict[str, Any] = {}
    for (arm, task, split, metric), rows in scores.groupby(["checkpoint", "task", "split", "metric"], sort=False):
        means = {"score": float(rows["score"].mean()), "shuffled": float(rows["shuffled"].mean()), "cells": len(rows)}
        found.setdefault(str(arm), {}).setdefault(str(task), {}).setdefault(str(split), {})[str(metric)] = means
    return found
