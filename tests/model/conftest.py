"""One seed for every test of the encoder, never the network, and checked shapes of arrays."""

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import config

TESTS: set[object] = set()
"""The test functions of which this process has run a case."""


@pytest.fixture(autouse=True)
def _offline_and_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def checked_shapes() -> Iterator[None]:
    """Hold the arrays that functions of `glue_bench.model` take and return to their signatures."""
    config.update("jaxtyping_disable", False)
    yield
    config.update("jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def _checked_in_the_first_case(request: pytest.FixtureRequest) -> None:
    """Check shapes in the first case of each test: further cases call the same functions."""
    if request.function not in TESTS:
        TESTS.add(request.function)
        request.getfixturevalue("checked_shapes")
