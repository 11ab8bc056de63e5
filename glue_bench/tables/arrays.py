"""The arrays beside an experiment's records: predictions, labels, sums over pieces of text."""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import read_file
from glue_bench.records.disk import LARGEST_ARRAYS
from glue_bench.records.predicted import Predicted
from glue_bench.records.record import PretrainingRecord, Record
from glue_bench.records.store import Store


class Arrays:
    """What lies beside the records of an experiment, read when it is asked for.

    What does not carry the digest that its record names is refused.
    """

    def __init__(
        self,
        store: Store,
        records: Mapping[str, Record],
        pretrainings: Mapping[str, PretrainingRecord],
        measured: Collection[str],
    ) -> None:
        self._store, self._records, self._pretrainings, self._measured = store, records, pretrainings, measured

    def logits(self, cell_id: str) -> dict[str, np.ndarray]:
        """Logits of each scored split of a finished cell: float32 (rows, labels).

        Raises:
            UserError: the file is missing or damaged, or another run's.
        """
        if not self._store.has_predictions(cell_id):
            raise UserError("the predictions of a run are missing")
        self._check(f"predictions/{cell_id}.safetensors", self._records[cell_id].predictions_sha256)
        return self._store.read_predictions(cell_id)

    def tests(self, cell_id: str) -> Predicted:
        """Logits of test splits, and of AX, of a finished cell; nothing where they were not asked for.

        Raises:
            UserError: the file is damaged, or another cell's.
        """
        return self._store.tests.read(cell_id)

    def predicted(self, cell_id: str) -> dict[str, np.ndarray]:
        """Logits by split, also of test splits; none where the files were left out of a copy. Raises as `logits`."""
        scored = self.logits(cell_id) if self._store.has_predictions(cell_id) else {}
        return scored | dict(self.tests(cell_id).logits)

    def gold(self, task: str, digest: str) -> dict[str, np.ndarray]:
        """Gold labels of each scored split of data with this digest, (rows,); empty where none are stored.

        Raises:
            UserError: the file is damaged.
        """
        return self._store.read_labels(task, digest)

    def sums(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """By measure the numerators and denominators of its pieces of text, (2, pieces); empty without measures.

        Raises:
            UserError: the file is damaged.
        """
        return self._store.intrinsic.read_sums(pretraining_id) if pretraining_id in self._measured else {}

    def losses(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """The validation loss of a pretraining, piece by piece, as `Store.read_validation` has it.

        Raises:
            UserError: the file is missing or damaged, or another run's.
        """
        if pretraining_id not in self._pretrainings:
            return {}
        self._check(f"pretraining/{pretraining_id}.safetensors", self._pretrainings[pretraining_id].validation_sha256)
        return self._store.read_validation(pretraining_id)

    def model(self, cell_id: str) -> Path:
        """Where the fine-tuned model of a cell lies, if it is kept."""
        return self._store.model_folder(cell_id)

    def _check(self, file: str, named: str | None) -> None:
        """Refuse a file without the digest that its record has `named`."""
        if named is None:
            return
        try:
            content = read_file(self._store.folder / file, LARGEST_ARRAYS)
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}; delete its record and run again") from error
        if hashlib.sha256(content).hexdigest() != named:
            raise UserError(f"{file}: changed since the run wrote it; delete it and its record and run again")
