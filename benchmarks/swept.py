"""Our side of the benchmark of overhead: a sweep whose cells and forward passes are timed from outside."""

import time
from io import StringIO
from typing import Any
from unittest.mock import patch

from rich.console import Console

from cells import Settings
from glue_bench.sweep import attempts
from glue_bench.sweep.options import RunOptions
from glue_bench.sweep.run import sweep
from glue_bench.training import finetune as finetuning
from workers import Round


def make_sweep(settings: Settings, results: str, started: float) -> Round:
    """A round sweeps that many cells, one a seed. `started` (`time.time`) is when this process was started."""

    def work(cells: int) -> dict[str, Any]:
        experiment = settings.experiment.model_copy(update={"seeds": list(range(1, cells + 1))})
        clock = CellClock(started)
        with (
            patch.object(finetuning, "predict", clock.predict),
            patch.object(attempts, "finetune", clock.finetune),
        ):
            summary = sweep(experiment, RunOptions(results=results), console=Console(file=StringIO()))
        if summary.failed:
            raise RuntimeError(f"cells failed: {summary.failed}")
        return {"cells": clock.cells}

    return work


class CellClock:
    """The package's own functions, with a note of seconds at the end of each cell."""

    def __init__(self, started: float) -> None:
        self.cells: list[dict[str, float]] = []
        self._ended, self._scoring = started, 0.0
        self._predict, self._finetune = finetuning.predict, attempts.finetune

    def predict(self, *arguments: Any) -> Any:
        """A cell's forward passes over a split, timed."""
        began = time.perf_counter()
        logits = self._predict(*arguments)
        self._scoring += time.perf_counter() - began
        return logits

    def finetune(self, *arguments: Any, **options: Any) -> Any:
        """One cell; its seconds run from the end of the one before it, so that all in between belongs to it."""
        self._scoring = 0.0
        outcome = self._finetune(*arguments, **options)
        before, self._ended = self._ended, time.time()
        total, training = self._ended - before, outcome.facts.seconds.training
        self.cells.append(
            {
                "total": total,
                "training": training,
                "scoring": self._scoring,
                "overhead": total - training - self._scoring,
            }
        )
        return outcome
