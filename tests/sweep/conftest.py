"""The tiny experiment, with and without pretraining, run into one folder."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.stub import Observer
from rich.console import Console

from glue_bench.config import load_experiment
from glue_bench.sweep.engine import Engine
from glue_bench.sweep.run import Summary
from glue_bench.sweep.run import sweep as run_sweep

PRETRAINING = {
    "corpus": "demo",
    "steps": 10,
    "batch_tokens": 256,
    "length": 32,
    "learning_rates": [1e-3],
    "validations": 2,
    "validation_share": 0.05,
}


@pytest.fixture(scope="session")
def pretrained(tiny):
    """Make the tiny experiment on CoLA with pretraining; `pretraining` changes its settings."""

    def make(pretraining=(), **changes) -> dict[str, Any]:
        usual = {"tasks": ["cola"], "arms": ["add"]}
        return tiny(pretraining=PRETRAINING | dict(pretraining), **usual | changes)

    return make


@pytest.fixture
def sweep(tmp_path):
    """Run an experiment into the same folder each time.

    What was printed is `sweep.said`, what ran `sweep.ended`.
    """
    return sweep_into(tmp_path / "runs")


@pytest.fixture(scope="session")
def new_sweep():
    """Give what the fixture `sweep` is, for a folder."""
    return sweep_into


def sweep_into(results: Path) -> Callable[..., Summary]:
    """Return a function that runs experiments into a folder of results."""
    usual = {
        "results": results,
        "only": (),
        "dry_run": False,
        "device": "auto",
        "precision": "auto",
        "graph": "auto",
    }

    def run_it(
        values: dict[str, Any],
        *,
        workers: Any = None,
        address: str | None = None,
        slurm: Any = None,
        **options: Any,
    ) -> Summary:
        console = Console(file=io.StringIO(), width=200)
        observer = Observer()
        try:
            engine = Engine.parse(workers, address, slurm)
            experiment = load_experiment(values)
            return run_sweep(experiment, console, [observer], engine=engine, **usual | options)
        finally:
            run_it.said = "\n".join([console.file.getvalue(), *observer.lines])
            run_it.ended = [f"{job.arm} {job.kind_title}" for job in observer.jobs]

    return run_it


@pytest.fixture
def reasons_of(sweep):
    """Give the reasons of a dry run, with their counts."""
    return lambda values: sweep(values, dry_run=True).reasons
