"""What the timing of cells on a GPU counts as theirs: all memory of a first cell, and attention as each chooses it."""

import pytest
import torch

import gpu_speed
from cells import Settings
from glue_bench.training import runtime
from gpu_cells import Plan

PLAN = Plan(device="cpu", tiny=True, data="demo", corpus="demo", checkpoint="scratch-tiny", aside="")


def test_the_peak_is_that_of_a_first_cell_which_records_what_later_ones_replay(monkeypatch):
    peak = [0]

    def work(steps):
        peak[0] = max(peak[0], 10 if cells else 70)
        cells.append(steps)
        return {"total_seconds": 1.0, "training_seconds": 1.0, "tokens": 8}

    cells = []
    monkeypatch.setattr(gpu_speed, "reset_peak", lambda: peak.__setitem__(0, 0))
    monkeypatch.setattr(gpu_speed, "peak_bytes", lambda: peak[0] * 2**20)
    monkeypatch.setattr(gpu_speed, "flops_per_token", lambda *_: 1)
    monkeypatch.setattr(gpu_speed, "_peak", lambda _: 1.0)
    peak[0] = 500  # of another contender
    found = gpu_speed._timed_cells(PLAN, Settings("demo", "wnli", "scratch-tiny"), lambda: work)
    assert found["figures"]["peak_mib"] == 70
    assert len(cells) == 2


@pytest.mark.parametrize(("device", "kept"), [("cuda", False), ("cpu", True)])
def test_ours_chooses_how_to_attend_though_the_process_has_been_described_before(monkeypatch, device, kept):
    class Acting:
        def __init__(self, **_):
            self.device = torch.device(device)

    monkeypatch.setattr(runtime, "Accelerator", Acting)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    runtime.settle_anew()
    try:
        runtime.accelerator()
        assert gpu_speed._made(torch.backends.cuda.cudnn_sdp_enabled)  # a peer
        made = gpu_speed._made(lambda: runtime.accelerator() and torch.backends.cuda.cudnn_sdp_enabled())
        assert made is kept
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
