"""Encoders of MNLI cells, kept for the cells that start from them, and no longer."""

import shutil
from collections.abc import Sequence

from glue_bench.records.store import Store
from glue_bench.sweep.plan import PlannedCell
from glue_bench.training.inputs import Inputs
from glue_bench.training.starts import encoder_folder


class Done:
    """Whether nothing of a cell is left to do: it has a record, and its encoder while others wait for it."""

    def __init__(self, cells: Sequence[PlannedCell], inputs: Inputs, store: Store) -> None:
        self.inputs, self.store = inputs, store
        self._starting_from: dict[str, list[str]] = {}
        for planned in cells:
            if planned.mnli:
                self._starting_from.setdefault(planned.mnli, []).append(planned.id)

    def __call__(self, planned: PlannedCell) -> bool:
        if not self.store.has_record(planned.id):
            return False
        waiting = any(not self.store.has_record(name) for name in self._starting_from.get(planned.id, ()))
        return not waiting or encoder_folder(planned.cell, self.inputs).is_dir()


def drop_encoders(cells: Sequence[PlannedCell], inputs: Inputs, store: Store) -> None:
    """Encoders of MNLI cells take the most room of all that a sweep leaves; none is kept that no cell waits for."""
    needed = {planned.mnli for planned in cells if not store.has_record(planned.id)}
    for planned in cells:
        if planned.is_source and planned.id not in needed:
            shutil.rmtree(encoder_folder(planned.cell, inputs), ignore_errors=True)
