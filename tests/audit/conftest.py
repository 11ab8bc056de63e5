"""One experiment, run once: pretraining, MNLI, RTE from it, two arms. Tests change copies of its folder."""

import copy
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXPERIMENT: dict[str, Any] = {
    "name": "small",
    "data": "demo",
    "checkpoint": "scratch",
    "scratch": {
        "vocab_size": 200,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    },
    "arms": ["add", {"variant": "untied", "options": {"segments": "scores"}}],
    "tasks": ["mnli", "rte", "stsb"],
    "seeds": [1],
    "pretraining": {
        "corpus": "demo",
        "steps": 10,
        "batch_tokens": 256,
        "length": 32,
        "learning_rate": 1e-3,
        "validations": 2,
        "validation_share": 0.05,
    },
    "finetuning": {
        "learning_rates": [1e-3],
        "epochs": 1,
        "batch_size": 16,
        "max_length": 32,
        "from_mnli": ["rte"],
    },
}


@contextmanager
def few_rows() -> Iterator[None]:
    """The demo with few rows, in this block only: other rooms' tests have the whole one, or few rows of their own."""
    from glue_bench.data import demo

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "ROWS", {"train": 48, "validation": 24, "test": 12})
        demo.generate.cache_clear()
        yield
    demo.generate.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def _few_rows() -> Iterator[None]:
    with few_rows():
        yield


@pytest.fixture(scope="session")
def _run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rich.console import Console

    from glue_bench.api import run

    folder = tmp_path_factory.mktemp("runs")
    with few_rows():
        summary = run(copy.deepcopy(EXPERIMENT), results=folder, console=Console(file=io.StringIO()))
    assert (summary.finished, summary.failed) == (6, {})
    return summary.folder


@pytest.fixture
def finished(_run_once: Path, tmp_path: Path) -> Path:
    """The folder of the finished experiment, to be changed."""
    return shutil.copytree(_run_once, tmp_path / "runs" / "small", ignore=shutil.ignore_patterns("checkpoints"))
