"""When a step is recorded, and what happens where it cannot be; a GPU is acted by the functions that reach one."""

from contextlib import contextmanager, nullcontext

import pytest
import torch

from glue_bench.training.replay import WARM_UPS, replayed


class Gpu:
    """Says what is asked of it; recording fails with `error`, if given."""

    def __init__(self, monkeypatch, error=None):
        self.calls, self.error = [], error
        gpu = self

        class Stream:
            def wait_stream(self, _):
                gpu.calls.append("wait")

        class Graph:
            def replay(self):
                gpu.calls.append("replay")

        @contextmanager
        def record(_, pool):
            gpu.calls.append(("record", pool))
            yield
            if gpu.error:
                raise gpu.error

        for name, value in {
            "Stream": Stream,
            "CUDAGraph": Graph,
            "graph": record,
            "current_stream": Stream,
            "stream": lambda _: nullcontext(),
            "synchronize": lambda: gpu.calls.append("synchronize"),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    def step(self):
        self.calls.append("step")


def test_without_a_gpu_a_step_is_run(monkeypatch):
    gpu = Gpu(monkeypatch)
    assert replayed(gpu.step, torch.device("cpu")) == gpu.step
    assert gpu.calls == []


def test_a_step_is_warmed_up_recorded_once_and_replayed(monkeypatch):
    gpu = Gpu(monkeypatch)
    run = replayed(gpu.step, torch.device("cuda"), "pool")
    assert gpu.calls == ["wait", *["step"] * WARM_UPS, "wait", ("record", "pool"), "step"]
    gpu.calls.clear()
    run()
    run()
    assert gpu.calls == ["replay", "replay"]


def test_a_step_that_cannot_be_recorded_is_run_with_a_warning(monkeypatch):
    gpu = Gpu(monkeypatch, RuntimeError("operation not permitted when stream is capturing\nmore"))
    with pytest.warns(UserWarning, match=r"without CUDA graphs.*: operation not permitted when stream is capturing$"):
        assert replayed(gpu.step, torch.device("cuda")) == gpu.step


def test_memory_that_is_too_short_is_not_mistaken_for_that(monkeypatch):
    gpu = Gpu(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        replayed(gpu.step, torch.device("cuda"))
