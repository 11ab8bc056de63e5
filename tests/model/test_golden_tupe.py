"""`untied` and `untied-relative` against outputs of the official TUPE code (guolinke/TUPE at 4c64ff7)."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from glue_bench.model.checkpoints import masked_lm, read_checkpoint
from glue_bench.model.heads import EncoderForMaskedLM

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"


def read_official(name: str) -> EncoderForMaskedLM:
    """A checkpoint in the release's layout as ours, with its masked-LM head."""
    path = GOLDEN / f"{name}.pt"
    if not path.exists():
        pytest.skip("no golden outputs of the official TUPE code here")
    return masked_lm(read_checkpoint(str(path))).eval()


@pytest.fixture(scope="module", params=["tupe_a", "tupe_r"])
def golden(request: pytest.FixtureRequest) -> SimpleNamespace:
    model = read_official(request.param)
    expected = load_file(GOLDEN / f"{request.param}.expected.safetensors")
    real = expected["mask"].bool()
    with torch.no_grad():
        hidden = model.base(expected["tokens"], expected["mask"]).last_hidden_state
        logits = model(expected["tokens"], expected["mask"]).logits
    return SimpleNamespace(model=model, expected=expected, real=real, hidden=hidden, logits=logits)


def test_hidden_states_are_those_of_the_official_code(golden: SimpleNamespace) -> None:
    error = (golden.hidden - golden.expected["hidden"])[golden.real].abs().max()
    assert error < 1e-4, f"largest error {error:.2e}"


def test_masked_lm_logits_are_those_of_the_official_code(golden: SimpleNamespace) -> None:
    error = (golden.logits - golden.expected["logits"])[golden.real].abs().max()
    assert error < 1e-4, f"largest error {error:.2e}"


def test_the_comparison_sees_a_swap_of_the_two_cls_parameters(golden: SimpleNamespace) -> None:
    positions = golden.model.base.variant.positions.weight
    before = positions.detach().clone()
    with torch.no_grad():
        positions[:2] = before[:2].flip(0)
        hidden = golden.model.base(golden.expected["tokens"], golden.expected["mask"]).last_hidden_state
        positions.copy_(before)
    assert (hidden - golden.expected["hidden"])[golden.real].abs().max() > 1e-2
