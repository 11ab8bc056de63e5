"""The stored results of a plan, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass

from glue_bench.records.values import PretrainingRecord, Record


@dataclass(frozen=True)
class Finished:
    """The stored results of a plan.

    Attributes:
        records: the records of cells, by id.
        pretrainings: the records of pretrainings, by id.
        left_out: how many cells outside the plan have a record.
        problems: a line about each record that cannot be believed, by id.
        outdated: records of cells that started from weights which were made again since; they count
            as missing.
    """

    records: Mapping[str, Record]
    pretrainings: Mapping[str, PretrainingRecord]
    left_out: int
    problems: Mapping[str, str]
    outdated: Mapping[str, Record]

    @property
    def done(self) -> set[str]:
        """The ids of all jobs that have a record which counts."""
        return {*self.records, *self.pretrainings}
