"""What fine-tuned cells score on validation sets with shuffled words, by their records (`finetuning.order: true`)."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.records.record import Record
from glue_bench.records.store import Store
from glue_bench.results.board import make_board
from glue_bench.results.protocol import at_rates

COLUMNS = ("checkpoint", "pretraining_seed", "task", "learning_rate", "seed", "split", "metric", "score", "shuffled")


def finetuned_order(names: Iterable[str]) -> pd.DataFrame:
    """COLUMNS, one row per split and metric of the cells that the leaderboard takes, of names of experiments' folders.

    `checkpoint` is the arm, after its experiment's folder where several experiments have an arm of that name. Cells
    that ran without `order` have no row.
    """
    folders = {name: Path(name).expanduser() for name in names}
    stores = {name: Store(folder) for name, folder in folders.items() if (folder / "plan.json").is_file()}
    records = {name: _reported(store) for name, store in stores.items()}
    arms = Counter(arm for mine in records.values() for arm in {record.cell.arm for record in mine})
    rows = [
        (label, key.pretraining_seed, key.task, key.learning_rate, key.seed, split, metric, score, shuffled)
        for name, mine in records.items()
        for record in mine
        for key in [record.cell]
        for label in [f"{name}/{key.arm}" if arms[key.arm] > 1 else key.arm]
        for split, scores in record.order.items()
        for metric, shuffled in scores.items()
        for score in [record.scores[split].get(metric)]
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _reported(store: Store) -> list[Record]:
    """The runs with shuffled words at the reported rates, after the last fine-tuned checkpoint."""
    records = [record for record in store.scan_records()[0] if record.order]
    if not records:
        return []
    board = make_board(store)
    taken = set(at_rates(board.results.cells, board.rates)["cell_id"])
    return [record for record in records if record.cell_id in taken]


def mean_by_task(scores: pd.DataFrame) -> dict[str, Any]:
    """By arm, task, split and metric: the mean score over cells, that with shuffled words, and the number of cells."""
    found: dict[str, Any] = {}
    for (arm, task, split, metric), rows in scores.groupby(["checkpoint", "task", "split", "metric"], sort=False):
        means = {"score": float(rows["score"].mean()), "shuffled": float(rows["shuffled"].mean()), "cells": len(rows)}
        found.setdefault(str(arm), {}).setdefault(str(task), {}).setdefault(str(split), {})[str(metric)] = means
    return found
