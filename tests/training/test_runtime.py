"""Which device and precision are chosen, and what a choice leaves behind."""

import os

import pytest
import torch

from glue_bench.errors import UserError
from glue_bench.training import runtime
from glue_bench.training.runtime import (
    accelerator,
    best_precision,
    computing,
    describe,
    few_sizes,
    is_float32,
    multiplies_bf16,
    settle_anew,
)

VARIABLES = ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    """Nor a CPU that multiplies bf16, unless a test puts one there."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(runtime, "multiplies_bf16", lambda: False)
    settle_anew()
    yield
    settle_anew()


@pytest.fixture
def _bf16(monkeypatch):
    monkeypatch.setattr(runtime, "multiplies_bf16", lambda: True)


def test_here_cells_are_trained_on_the_cpu_in_float32():
    assert describe() == "cpu in float32"
    assert is_float32()


@pytest.mark.parametrize(("there", "able", "expected"), [(True, True, "bf16"), (True, False, "float32")])
def test_a_gpu_computes_in_bf16_if_it_can(monkeypatch, there, able, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: able and not including_emulation)
    assert best_precision() == expected
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert best_precision() == "float32"


@pytest.mark.usefixtures("_bf16")
def test_a_cpu_that_multiplies_bf16_computes_in_it_unless_told_otherwise():
    assert describe() == "cpu in bf16"
    assert accelerator().native_amp
    with computing("cpu", "float32"):
        assert describe() == "cpu in float32"


@pytest.mark.parametrize(
    ("processor", "able"),
    [
        ({"amx_bf16": True}, True),
        ({"amx_bf16": False, "avx512_bf16": True}, True),
        ({"amx_bf16": False}, False),
        ({}, False),
    ],
)
def test_its_instructions_are_what_the_processor_says(monkeypatch, processor, able):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    assert multiplies_bf16() is able
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not multiplies_bf16()


def test_bf16_meets_few_shapes_on_a_cpu():
    sizes = range(1, 513)
    assert [few_sizes(size) for size in sizes] == list(sizes)
    with computing("cpu", "bf16"):
        few = [few_sizes(size) for size in sizes]
    steps = (range(4, 33, 4), range(40, 65, 8), range(80, 129, 16), range(160, 257, 32), range(320, 513, 64))
    assert sorted(set(few)) == [size for part in steps for size in part]
    assert all(size <= rounded < max(size + 4, 1.25 * size) for size, rounded in zip(sizes, few, strict=True))


def test_a_choice_holds_inside_its_block_only():
    before = accelerator()
    with computing("cpu", "bf16"):
        assert describe() == "cpu in bf16"
        assert accelerator().native_amp
        assert [os.environ[name] for name in VARIABLES] == ["bf16", "true"]  # for the processes that are started
    assert describe() == "cpu in float32"
    assert accelerator() is not before
    assert not set(VARIABLES) & set(os.environ)


def test_no_choice_changes_nothing():
    before = accelerator()
    with computing():
        assert accelerator() is before


def test_settings_of_accelerate_are_kept_unless_there_is_a_choice():
    with computing("cpu", "bf16"), computing():
        assert describe() == "cpu in bf16"


@pytest.mark.parametrize(
    ("device", "precision", "said"),
    [
        ("gpu", "auto", "device 'gpu' is none of auto, cpu, cuda, mps"),
        ("auto", "fp32", "precision 'fp32' is none of auto, float32, bf16"),
        ("mps", "auto", "device 'mps' is not there"),
    ],
)
def test_what_cannot_be_is_said(device, precision, said):
    with pytest.raises(UserError, match=said), computing(device, precision):
        pass


@pytest.mark.parametrize(("device", "kept"), [("cuda", False), ("cpu", True)])
def test_a_gpu_never_attends_by_cudnn_which_gives_biases_no_gradient(monkeypatch, device, kept):
    class Acting:
        def __init__(self, **_):
            self.device = torch.device(device)

    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        monkeypatch.setattr(runtime, "Accelerator", Acting)
        accelerator()
        assert torch.backends.cuda.cudnn_sdp_enabled() is kept
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
