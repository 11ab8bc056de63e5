"""Where a job computes: device, precision, threads."""

import pytest
import torch

from glue_bench.errors import UserError
from glue_bench.model.fresh import on_threads
from glue_bench.training import device
from glue_bench.training.device import Compute, choose_compute

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def capable(monkeypatch):
    """Return a function that gives the CPU some instructions. No choice was made before."""

    def give(*names):
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda: dict.fromkeys(names, True), raising=False
        )
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)

    monkeypatch.delenv("GLUE_BENCH_PRECISION", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    give()
    return give


@pytest.mark.parametrize(
    ("names", "precision"),
    [
        ((), "float32"),
        (("avx512_f",), "float32"),
        (("amx_bf16",), "bf16"),
        (("avx512_bf16",), "bf16"),
    ],
)
def test_a_cpu_with_instructions_for_bf16_computes_in_it_by_default(
    capable, monkeypatch, names, precision
):
    capable(*names)
    compute = choose_compute()
    assert compute.name == "cpu"
    assert compute.precision == precision
    assert choose_compute(precision="bf16").bf16 is True
    monkeypatch.setenv("GLUE_BENCH_PRECISION", "float32")
    assert choose_compute().precision == "float32"


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_gpu_is_taken_where_there_is_one_and_never_attends_by_cudnn(monkeypatch, has_bf16):
    """cuDNN gives biases no gradient."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bf16)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        compute = choose_compute()
        assert compute.device.type == "cuda"
        assert compute.bf16 == has_bf16
        assert not compute.graph  # graphs were not measured on this GPU
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert choose_compute("cpu").device.type == "cpu"


def test_an_unknown_precision_is_refused():
    with pytest.raises(UserError, match="precision 'fp16' is none of auto, float32, bf16"):
        choose_compute(precision="fp16")


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device 'cuda' is not there"):
        choose_compute("cuda")


def test_a_narrow_encoder_uses_one_thread_and_a_wide_one_all_of_them():
    compute = Compute(CPU, bf16=False, threads=3)
    before = torch.get_num_threads()
    threads = {width: compute.threads_for(width) for width in (64, 255, 256, 768)}
    expected = {64: 1, 255: 1, 256: 3, 768: 3}
    assert threads == expected
    with on_threads(2):
        assert torch.get_num_threads() == 2
        assert compute.environment().threads == 2
    assert torch.get_num_threads() == before


def test_shapes_are_few_where_each_of_them_keeps_a_kernel():
    compute = Compute(CPU, bf16=True, threads=1)
    rounded = {size: compute.round_up_size(size) for size in range(1, 513)}
    assert sorted(set(rounded.values())) == [
        *range(4, 33, 4),
        *range(40, 65, 8),
        *range(80, 129, 16),
        *range(160, 257, 32),
        *range(320, 513, 64),
    ]
    for size, rounded_size in rounded.items():
        assert size <= rounded_size < max(size + 4, 1.25 * size)


@pytest.mark.parametrize(("device", "bf16"), [("cpu", False), ("cuda", True)])
def test_shapes_stay_as_they_are_where_no_kernel_is_kept(device, bf16):
    assert Compute(torch.device(device), bf16, 1).round_up_size(17) == 17


def test_a_step_is_a_graph_on_measured_gpus_alone_unless_it_is_off(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(device, "MEASURED_GPUS", frozenset(["a GPU"]))
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        assert choose_compute().captures
        assert not choose_compute(graph="off").graph
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert not choose_compute("cpu").graph


def test_an_unknown_way_to_launch_is_refused():
    with pytest.raises(UserError, match="graph 'on' is none of auto, off"):
        choose_compute(graph="on")


def test_the_lengths_of_graphs_are_few():
    compute = Compute(CPU, bf16=True, threads=1, graph=True)
    sizes = {compute.round_up_length(length) for length in range(1, 129)}
    assert sizes == {16, 32, 48, 64, 96, 128}
