"""One experiment, run once: pretraining, MNLI, RTE from it, two arms. Tests change copies of its folder."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def finished(finished, tiny, small_demo) -> Path:
    """The folder of the finished experiment, to be changed."""
    small_demo()
    summary = finished(
        tiny(
            arms=["add", {"variant": "untied", "options": {"segments": "scores"}}],
            tasks=["mnli", "rte", "stsb"],
            pretraining={"corpus": "demo", "steps": 10, "batch_tokens": 256, "length": 32, "learning_rates": [1e-3]},
            finetuning={"from_mnli": ["rte"]},
        )
    )
    assert (summary.finished, summary.failed) == (6, {})
    shutil.rmtree(summary.folder / "checkpoints")
    return summary.folder
