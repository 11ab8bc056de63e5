"""Where cells run. A failing cell ends itself, never the sweep."""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from glue_bench.sweep.plan import PlannedCell
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.workspace import Workspace


@dataclass(frozen=True)
class Failure:
    """Why a cell did not finish."""

    error: str
    traceback: str


class InlineExecutor:
    """One cell after another, in this process."""

    def __init__(self, workspace: Workspace, without_start: Mapping[str, Failure] = MappingProxyType({})) -> None:
        """`without_start` says of arms that could not be pretrained why."""
        self.workspace = workspace
        self.without_start = without_start

    def run(
        self, cells: Iterable[PlannedCell], on_start: Callable[[PlannedCell], None]
    ) -> Iterator[tuple[PlannedCell, Outcome | Failure]]:
        """Each cell with what came of it, in order. Ctrl-C is not caught: the cell that runs is given up."""
        for planned in cells:
            on_start(planned)
            yield planned, self._attempt(planned)

    def _attempt(self, planned: PlannedCell) -> Outcome | Failure:
        cell = planned.cell
        if cell.arm.name in self.without_start:
            return self.without_start[cell.arm.name]
        try:
            keep_in = self.workspace.encoder_folder(cell) if planned.is_source else None
            return finetune(cell, self.workspace.cell_start(cell), self.workspace.tokens(cell), keep_in)
        except Exception as error:
            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
