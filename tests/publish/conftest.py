"""One experiment that was run once: pretraining, MNLI, RTE from it, two arms.

Tests change copies of its folder.
"""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _ran(tmp_path_factory) -> Path:
    from helpers import tiny_runs

    arms = ["add", {"variant": "untied", "options": {"segments": "scores"}}]
    values = tiny_runs.experiment(
        arms=arms, tasks=["mnli", "rte", "stsb"], finetuning={"from_mnli": ["rte"]}
    )
    folder = tiny_runs.run(values, tmp_path_factory.mktemp("ran"))
    shutil.rmtree(folder / "checkpoints")
    return folder


@pytest.fixture
def finished(_ran, tmp_path) -> Path:
    """The folder of the finished experiment, to be changed."""
    return shutil.copytree(_ran, tmp_path / "runs" / _ran.name)
