"""What tests write into a results folder: a cell with predictions and a model, a pretraining with
losses.
"""

from pathlib import Path

import numpy as np

from glue_bench.records.arrays import Arrays, arrays_digest
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, PretrainingRecord, Record
from helpers.stored import cell_with, pretrained_of, pretraining_with, record_of

CELL = cell_with()
OTHER_CELL = cell_with(seed=2)
PRETRAINING = pretraining_with()
LOGITS = {"validation": np.array([[0.25, -1.0], [2.0, 0.5]], dtype=np.float32)}
TESTS = {"test": np.ones((3, 2), np.float32)}
LOSSES = {
    "loss_sum": np.array([1.5, 2.25]),
    "count": np.array([3, 300]),
    "document": np.array([0, 1]),
}
SUMS = {"swap_1": np.array([[1.0, 2.0], [2.0, 2.0]])}
GOLD = {"gold": {"validation": np.array([0.0, 2.6, 5.0])}}


def finish(store: Store, bits: float = 0.0, cell: Cell = CELL, **facts) -> Record:
    """Store a cell with everything that a run may leave.

    Runs with other bits leave other values.
    """

    def save(model: Path) -> None:
        (model / "model.safetensors").write_text(f"weights {bits}")

    logits = {"validation": LOGITS["validation"] + np.float32(bits)}
    tests = {"test": TESTS["test"] + np.float32(bits)}
    return store.write(record_of(cell, **facts), save, logits=logits, tests=tests)


def finish_pretraining(store: Store, bits: float = 0.0) -> PretrainingRecord:
    """Store a pretraining with everything that a run may leave."""
    losses = {**LOSSES, "loss_sum": LOSSES["loss_sum"] + bits}
    sums = {"swap_1": SUMS["swap_1"] + bits}
    return store.write(pretrained_of(PRETRAINING), losses=losses, sums=sums)


def is_same(arrays: Arrays, expected: Arrays) -> bool:
    """Whether arrays are equal, also in their types: small integers would overflow in a sum."""
    return arrays_digest(arrays) == arrays_digest(expected)
