"""One seed for every test of the contract, and never the network."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _offline_and_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
