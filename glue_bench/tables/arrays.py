"""The arrays beside an experiment's records: predictions, labels, sums over pieces of text."""

from pathlib import Path

import numpy as np

from glue_bench.records.plan import Plan
from glue_bench.records.stored import Finished, Stored


class Arrays:
    """What lies beside the records of an experiment, read when it is asked for, and refused if it is another run's.

    Each method raises UserError where its file is missing, damaged or of another run.
    """

    def __init__(self, store: Stored, plan: Plan, finished: Finished) -> None:
        self._store, self._plan, self._finished = store, plan, finished

    def logits(self, cell_id: str) -> dict[str, np.ndarray]:
        """Logits of each scored split of a finished cell: float32 (rows, labels)."""
        return self._store.logits(self._finished.records[cell_id])

    def tests(self, cell_id: str) -> dict[str, np.ndarray]:
        """Logits of test splits, and of AX, of a finished cell; none where they were not asked for."""
        return self._store.logits(self._finished.records[cell_id], test=True)

    def predicted(self, cell_id: str) -> dict[str, np.ndarray]:
        """Logits by split, also of test splits."""
        return self.logits(cell_id) | self.tests(cell_id)

    def gold(self, task: str, digest: str) -> dict[str, np.ndarray]:
        """Gold labels of each scored split of data with this digest, (rows,); empty where none are stored."""
        facts = self._plan.tasks.get(task)
        named = facts.labels if facts and facts.digest == digest else None
        return dict(self._store.labels(task, digest, named).gold)

    def sums(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """By measure the numerators and denominators of its pieces of text, (2, pieces); empty without measures."""
        record = self._finished.pretrainings.get(pretraining_id)
        return self._store.sums(record) if record else {}

    def losses(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """The validation loss of a pretraining, piece by piece, as `Stored.losses` has it."""
        record = self._finished.pretrainings.get(pretraining_id)
        return self._store.losses(record) if record else {}

    def model(self, cell_id: str) -> Path | None:
        """Where the fine-tuned model of a finished cell lies, whole; None where it is not kept."""
        return self._store.model(self._finished.records[cell_id], whole=True)
