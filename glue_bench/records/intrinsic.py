"""What was measured of a pretrained encoder itself, without any task; where it lies on disk."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import write_atomically
from glue_bench.records.disk import dump, dump_arrays, load_numbers, read_value, record_digest, shrunk
from glue_bench.records.value import StoredValue, Whole, Word


class Measure(StoredValue):
    """A measure by its name in tables. The standard error is over `n` sequences; None where there are fewer than two.

    `value` is a loss or its rise in nats, or of the swap test a share from 0 to 1.
    """

    name: str
    value: float
    standard_error: float | None
    n: Whole


class IntrinsicRecord(StoredValue):
    """The measures of an arm's pretraining after `step` steps, on `tokens` tokens of its validation text.

    They are no part of any id. Beside them lie the sums of each sequence, by which arms can be compared in pairs.
    """

    schema_version: Whole
    pretraining_id: Word
    arm: Word
    pretraining_seed: Whole
    step: Whole
    tokens: Whole
    measures: tuple[Measure, ...]
    digest: str | None = None


class IntrinsicFolder:
    """The measures of an experiment's pretrainings, by their ids.

    <folder>/<pretraining_id>.json         an IntrinsicRecord
    <folder>/<pretraining_id>.safetensors  measure -> float (2, sequences): the sums and the counts behind it, in as
                                           few bytes as hold them exactly
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, pretraining_id: str) -> bool:
        """Whether the measures of a pretraining are stored, and whole."""
        try:
            return bool(self.read_one(pretraining_id))
        except UserError:
            return False

    def write(self, record: IntrinsicRecord, sums: Mapping[str, np.ndarray]) -> None:
        """Store the measures of a pretraining, and by their names (2, n) the sums and counts of the n sequences."""
        arrays = {name: both.astype(np.float64) for name, both in sums.items()}
        write_atomically(self.folder / f"{record.pretraining_id}.safetensors", dump_arrays(shrunk(arrays)))
        document = record.document()
        whole = {**document, "digest": record_digest(document)}
        write_atomically(self.folder / f"{record.pretraining_id}.json", dump(whole))

    def drop(self, pretraining_id: str) -> None:
        """Forget the measures of a pretraining, if it has some."""
        for suffix in (".json", ".safetensors"):
            (self.folder / f"{pretraining_id}{suffix}").unlink(missing_ok=True)

    def read(self) -> list[IntrinsicRecord]:
        """The measures of all pretrainings that have some, sorted by id.

        Raises:
            UserError: a file is damaged, lacks a key, has another schema version or was edited.
        """
        return [read_value(IntrinsicRecord, path) for path in sorted(self.folder.glob("*.json"))]

    def read_one(self, pretraining_id: str) -> IntrinsicRecord:
        """The measures of a pretraining.

        Raises:
            UserError: there are none, or as `read`.
        """
        return read_value(IntrinsicRecord, self.folder / f"{pretraining_id}.json")

    def read_sums(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """As `write` was given them, as float64. Sequences are the same for all arms of one tokenizer and text.

        Raises:
            UserError: the file is missing or damaged.
        """
        return load_numbers(self.folder / f"{pretraining_id}.safetensors")
