"""Tiny experiments, checkpoints and data that every room's tests share. Heavy imports happen inside fixtures."""

import copy
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Made = Callable[..., Any]

TINY: dict[str, Any] = {
    "name": "tiny",
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
    "arms": ["add", "none"],
    "tasks": ["cola", "stsb"],
    "seeds": [1],
    "finetuning": {"learning_rates": [1e-3], "epochs": 1, "batch_size": 16, "max_length": 32},
}


@pytest.fixture(autouse=True, scope="session")
def _token_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tokenised tasks never reach the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLUE_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def frozen_imports() -> Iterator[None]:
    """Each cell and pretraining ends with a garbage collection; what the imports made would cost it 0.3 s each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def tiny() -> Made:
    """The tiny experiment as plain values, with changes merged into it; None takes a key away."""
    return lambda **changes: _merge(copy.deepcopy(TINY), changes)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        if value is None:
            del base[key]
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value
    return base


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """The demo with few rows. Calling the fixture changes their number."""
    from glue_bench.benchmark import demo

    def resize(train: int = 48, validation: int = 24, test: int = 12) -> None:
        monkeypatch.setattr(demo, "ROWS", {"train": train, "validation": validation, "test": test})
        demo.generate.cache_clear()

    resize()
    yield resize
    demo.generate.cache_clear()


@pytest.fixture
def make_bert(tmp_path: Path) -> Made:
    """Save a tiny random BertModel, with a tokenizer trained on `texts` beside it, and return its folder."""

    def make(
        name: str = "bert", *, seed: int = 0, texts: tuple[str, ...] = (), vocab_size: int = 250, pooler: bool = True
    ) -> Path:
        import torch
        from transformers import BertConfig, BertModel

        from glue_bench.training.tokenizers import train_tokenizer

        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
        )
        folder = tmp_path / name
        BertModel(config, add_pooling_layer=pooler).save_pretrained(folder)
        if texts:
            train_tokenizer(texts, 200).save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def write_yaml(tmp_path: Path) -> Made:
    """Write an experiment file and return its path."""
    import yaml

    def write(content: Any, name: str = "experiment.yaml") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        return path

    return write
