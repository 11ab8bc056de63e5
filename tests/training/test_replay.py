"""When a step is recorded, and what happens where it cannot be; a GPU is acted by the functions that reach one."""

from contextlib import contextmanager

import pytest
import torch

from glue_bench.training.replay import WARM_UPS, replayed


class Gpu:
    """Says what is asked of it; recording fails with `error`, if given, and its end with `at_end`.

    As torch's own, a recording whose end fails leaves `current` at the stream that it was made on.
    """

    def __init__(self, monkeypatch, error=None, at_end=None):
        self.calls, self.error, self.waits = [], error, "default"
        gpu = self

        class Stream:
            def wait_stream(self, _):
                gpu.calls.append("wait")

        class Graph:
            def replay(self):
                gpu.calls.append("replay")

        @contextmanager
        def on(stream):
            kept, gpu.current = gpu.current, stream
            try:
                yield
            finally:
                gpu.current = kept

        @contextmanager
        def record(_, pool):
            gpu.calls.append(("record", pool))
            kept, gpu.current = gpu.current, Stream()
            try:
                yield
                if gpu.error:
                    raise gpu.error
            finally:
                if at_end:
                    raise at_end
                gpu.current = kept

        self.current = Stream()
        for name, value in {
            "Stream": Stream,
            "CUDAGraph": Graph,
            "graph": record,
            "current_stream": lambda: gpu.current,
            "stream": on,
            "synchronize": lambda: gpu.calls.append("synchronize"),
            "get_sync_debug_mode": lambda: gpu.waits,
            "set_sync_debug_mode": lambda mode: setattr(gpu, "waits", mode),
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
    aside = ["wait", *["step"] * WARM_UPS, "wait", "wait", "step", "wait"]
    assert gpu.calls == [*aside, ("record", "pool"), "step"]
    gpu.calls.clear()
    run()
    run()
    assert gpu.calls == ["replay", "replay"]


def test_a_step_that_cannot_be_recorded_is_run_with_a_warning(monkeypatch):
    gpu = Gpu(monkeypatch, RuntimeError("operation not permitted when stream is capturing\nmore"))
    with pytest.warns(UserWarning, match=r"without CUDA graphs.*: operation not permitted when stream is capturing$"):
        assert replayed(gpu.step, torch.device("cuda")) == gpu.step


def test_a_step_that_waits_is_never_recorded(monkeypatch):
    gpu = Gpu(monkeypatch)

    def waiting():
        if gpu.waits == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        gpu.step()

    with pytest.warns(UserWarning, match="without CUDA graphs.*: called a synchronizing CUDA operation"):
        assert replayed(waiting, torch.device("cuda")) is waiting
    assert not any("record" in call for call in gpu.calls)
    assert gpu.waits == "default"


def test_an_error_of_the_step_itself_is_its_own(monkeypatch):
    Gpu(monkeypatch)

    def broken():
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        replayed(broken, torch.device("cuda"))


def test_nor_if_the_end_of_the_recording_hides_it(monkeypatch):
    gpu = Gpu(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("capture was invalidated"))
    before = gpu.current
    with pytest.raises(torch.OutOfMemoryError):
        replayed(gpu.step, torch.device("cuda"))
    assert gpu.current is before


def test_memory_that_is_too_short_is_not_mistaken_for_that(monkeypatch):
    gpu = Gpu(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        replayed(gpu.step, torch.device("cuda"))
