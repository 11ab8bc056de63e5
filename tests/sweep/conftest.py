"""The tiny experiment, with and without pretraining, run into one folder."""

import io
from typing import Any

import pytest
from rich.console import Console
from stub import Told
from tiny_sweeps import SETTINGS, Moody

from glue_bench.config import load_experiment
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.sweep.run import Summary
from glue_bench.sweep.run import sweep as run_sweep


@pytest.fixture
def store(tmp_path) -> Store:
    """An empty one."""
    made = Store(tmp_path / "runs")
    made.prepare()
    return made


@pytest.fixture
def pretrained(tiny):
    """The tiny experiment on CoLA with pretraining, as plain values; `pretraining` is merged into its settings."""
    settings = {"tasks": ["cola"], "arms": ["add", "untied"]}
    return lambda pretraining=(), **changes: tiny(pretraining=SETTINGS | dict(pretraining), **settings | changes)


@pytest.fixture
def sweep(tmp_path):
    """Run an experiment into the same folder each time; what was printed is `sweep.said`, what ran `sweep.ended`."""

    def run_it(values: dict[str, Any], **options: Any) -> Summary:
        console, seen = Console(file=io.StringIO(), width=200), Told()
        try:
            options = {"results": tmp_path / "runs"} | options
            return run_sweep(load_experiment(values), console, lambda *_: [seen], **options)
        finally:
            run_it.said = "\n".join([console.file.getvalue(), *seen.lines])
            run_it.ended = [f"{job.arm} {getattr(job, 'task', 'pretraining')}" for job in seen.jobs]

    return run_it


@pytest.fixture
def moody(monkeypatch):
    """Arms may have the variant `moody`; it is told what to raise, and in which step."""
    monkeypatch.setitem(VARIANTS, "moody", Moody)

    def tell(error: BaseException | None, at: int = 0) -> None:
        Moody.error, Moody.at, Moody.steps = error, at, 0

    yield tell
    tell(None)
