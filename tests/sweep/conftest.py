"""The tiny experiment, with and without pretraining, run into one folder."""

import io
from typing import Any

import pytest
from helpers.stub import Observer
from rich.console import Console

from glue_bench.config import load_experiment
from glue_bench.sweep.engine import Engine
from glue_bench.sweep.run import Summary
from glue_bench.sweep.run import sweep as run_sweep

PRETRAINING = {
    **{"corpus": "demo", "steps": 10, "batch_tokens": 256, "length": 32, "learning_rates": [1e-3]},
    **{"validations": 2, "validation_share": 0.05},
}


@pytest.fixture
def pretrained(tiny):
    """The tiny experiment on CoLA with pretraining, as plain values; `pretraining` is merged into its settings."""
    usual = {"tasks": ["cola"], "arms": ["add"]}
    return lambda pretraining=(), **changes: tiny(
        pretraining=PRETRAINING | dict(pretraining), **usual | changes
    )


@pytest.fixture
def sweep(tmp_path):
    """Run an experiment into the same folder each time; what was printed is `sweep.said`, what ran `sweep.ended`."""

    usual = {
        "results": tmp_path / "runs",
        "only": (),
        "dry_run": False,
        "device": "auto",
        "precision": "auto",
    }

    def run_it(
        values: dict[str, Any],
        *,
        workers: Any = None,
        address: str | None = None,
        slurm: Any = None,
        **options: Any,
    ) -> Summary:
        console, seen = Console(file=io.StringIO(), width=200), Observer()
        try:
            engine = Engine.parse(workers, address, slurm)
            return run_sweep(
                load_experiment(values), console, [seen], engine=engine, **usual | options
            )
        finally:
            run_it.said = "\n".join([console.file.getvalue(), *seen.lines])
            run_it.ended = [f"{job.arm} {getattr(job, 'task', 'pretraining')}" for job in seen.jobs]

    return run_it


@pytest.fixture
def why(sweep):
    """The reasons of a dry run, with their counts."""
    return lambda values: sweep(values, dry_run=True).reasons
