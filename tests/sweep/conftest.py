"""The tiny experiment with pretraining before it."""

import io

import pytest
from rich.console import Console

from glue_bench.api import run
from glue_bench.sweep import attempts as module

SETTINGS = {
    "corpus": "demo",
    "steps": 10,
    "batch_tokens": 256,
    "length": 32,
    "learning_rate": 1e-3,
    "validations": 2,
    "validation_share": 0.05,
}


@pytest.fixture
def values(tiny):
    """The tiny experiment on CoLA with pretraining; `pretraining` is merged into its settings."""

    def of(pretraining=(), **changes):
        settings = SETTINGS | dict(pretraining)
        if "learning_rates" in settings and "learning_rate" not in pretraining:
            del settings["learning_rate"]
        usual = {"tasks": ["cola"], "arms": ["add", "untied"], "pretraining": settings}
        return tiny(**usual | changes)

    return of


@pytest.fixture
def sweep(values, tmp_path):
    """Run that experiment into the same folder each time; what it printed is `sweep.said`."""

    def run_it(pretraining=(), only=(), dry_run=False, **changes):
        console = Console(file=io.StringIO(), width=200)
        experiment = values(pretraining, **changes)
        try:
            return run(experiment, results=tmp_path / "runs", only=only, dry_run=dry_run, console=console)
        finally:
            run_it.said = console.file.getvalue()

    return run_it


@pytest.fixture
def failing(monkeypatch):
    """Make the pretraining of some variants raise; returns the switch and the list of those that were started."""
    pretrain, started = module.pretrain, []

    def switch(errors: dict[str, BaseException]) -> list[str]:
        def perhaps(run, *rest, **further):
            started.append(run.arm.variant)
            if run.arm.variant in errors:
                raise errors[run.arm.variant]
            return pretrain(run, *rest, **further)

        monkeypatch.setattr(module, "pretrain", perhaps)
        return started

    return switch
