"""Where a job computes: device, precision, threads."""

import pytest
import torch

from glue_bench.errors import UserError
from glue_bench.model.fresh import on_threads
from glue_bench.training.device import Compute, choose_compute

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def capable(monkeypatch):
    """A CPU that has these instructions alone, and no choice made before."""

    def of(*names):
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda: dict.fromkeys(names, True), raising=False
        )
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)

    monkeypatch.delenv("GLUE_BENCH_PRECISION", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    of()
    return of


@pytest.mark.parametrize(
    ("names", "precision"),
    [
        ((), "float32"),
        (("avx512_f",), "float32"),
        (("amx_bf16",), "bf16"),
        (("avx512_bf16",), "bf16"),
    ],
)
def test_a_cpu_computes_in_bf16_where_it_has_instructions_for_it_unless_told_otherwise(
    capable, monkeypatch, names, precision
):
    capable(*names)
    compute = choose_compute()
    assert (compute.name, compute.precision) == ("cpu", precision)
    assert choose_compute(precision="bf16").bf16 is True
    monkeypatch.setenv("GLUE_BENCH_PRECISION", "float32")
    assert choose_compute().precision == "float32"


@pytest.mark.parametrize("able", [True, False])
def test_a_gpu_is_taken_where_there_is_one_and_never_attends_by_cudnn(monkeypatch, able):
    """cuDNN gives biases no gradient."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: able)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        compute = choose_compute()
        assert (compute.device.type, compute.bf16) == ("cuda", able)
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert choose_compute("cpu").device.type == "cpu"


def test_what_cannot_be_is_said():
    with pytest.raises(UserError, match="precision 'fp16' is none of auto, float32, bf16"):
        choose_compute(precision="fp16")
    with pytest.raises(UserError, match="device 'cuda' is not there"):
        choose_compute("cuda")


def test_a_narrow_encoder_uses_one_thread_and_a_wide_one_all_of_them():
    compute, before = Compute(CPU, False, 3), torch.get_num_threads()
    assert [compute.threads_for(width) for width in (64, 255, 256, 768)] == [1, 1, 3, 3]
    with on_threads(2):
        assert torch.get_num_threads() == 2
        assert compute.environment().threads == 2
    assert torch.get_num_threads() == before


def test_shapes_are_few_where_each_of_them_keeps_a_kernel():
    few = [Compute(CPU, True, 1).round_up_size(size) for size in range(1, 513)]
    steps = (
        range(4, 33, 4),
        range(40, 65, 8),
        range(80, 129, 16),
        range(160, 257, 32),
        range(320, 513, 64),
    )
    assert sorted(set(few)) == [size for part in steps for size in part]
    assert all(
        size <= rounded < max(size + 4, 1.25 * size) for size, rounded in enumerate(few, start=1)
    )
    assert (
        Compute(CPU, False, 1).round_up_size(17)
        == Compute(torch.device("cuda"), True, 1).round_up_size(17)
        == 17
    )
