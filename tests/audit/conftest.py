"""One experiment, run once: pretraining, MNLI, RTE from it, two arms. Tests change copies of its folder."""

import io
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _ran(tiny, tmp_path_factory) -> Path:
    from rich.console import Console

    from glue_bench.api import run

    experiment = tiny(
        limit=48,
        arms=["add", {"variant": "untied", "options": {"segments": "scores"}}],
        tasks=["mnli", "rte", "stsb"],
        pretraining={"corpus": "demo", "steps": 10, "batch_tokens": 256, "length": 32, "learning_rates": [1e-3]},
        finetuning={"from_mnli": ["rte"]},
    )
    summary = run(experiment, results=tmp_path_factory.mktemp("ran"), console=Console(file=io.StringIO()))
    assert (summary.finished, summary.failed) == (6, {})
    shutil.rmtree(summary.folder / "checkpoints")
    return summary.folder


@pytest.fixture
def finished(_ran, tmp_path) -> Path:
    """The folder of the finished experiment, to be changed."""
    return shutil.copytree(_ran, tmp_path / "runs" / _ran.name)
