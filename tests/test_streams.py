"""A terminal, a pipe or a log that is gone or full ends no run, and changes no exit status."""

import io
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from glue_bench.sweep.events import Observers
from glue_bench.sweep.stop import Stop
from glue_bench.terminal import Screen, echo, silence, tell

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@contextmanager
def broken(kind: str):
    """A stream that nobody can read any more: a full disk, or a pipe whose reader has ended."""
    if kind == "full":
        handle = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, handle = os.pipe()
        os.close(reader)
    unbuffered = kind == "unbuffered"  # as PYTHONUNBUFFERED=1 makes it
    stream = io.TextIOWrapper(os.fdopen(handle, "wb", 0 if unbuffered else -1), write_through=unbuffered)
    stream.reconfigure(line_buffering=not unbuffered)
    try:
        yield stream
    finally:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), handle)  # where what is left in it goes
        stream.close()


@pytest.fixture(params=["full", "pipe"])
def gone(request):
    with broken(request.param) as stream:
        yield stream


def test_a_line_that_cannot_be_written_is_lost_and_the_next_one_is_not(gone):
    screen = Screen(file=gone)
    tell(screen, "lost")
    screen.file = io.StringIO()
    tell(screen, "said")
    assert screen.file.getvalue() == "said\n"


def test_an_observer_is_left_out_where_nobody_can_be_told(gone):
    class Broken:
        def hear(self, _) -> None:
            raise ValueError

    observers = Observers([Broken()], Screen(file=gone))
    observers.hear(None)
    assert observers.observers == []


def test_a_screen_fails_as_a_file_does(gone):
    with pytest.raises(OSError, match=r"Broken pipe|No space left"):
        Screen(file=gone).print("lost")


def test_the_thread_that_speaks_of_ctrl_c_lives_on(gone):
    said = io.StringIO()
    screen = Screen(file=gone)
    with Stop(screen) as stop:
        stop._to_say.put("lost")
        while not stop._to_say.empty():
            time.sleep(0.01)
        time.sleep(0.05)
        screen.file = said
        stop._to_say.put("said")
    assert said.getvalue() == "said\n"


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize("stdout", ["pipe", "captured"])
def test_a_run_ends_well_with_nobody_to_hear_of_it(glue_bench, tiny, write_yaml, tmp_path, monkeypatch, gone, stdout):
    config = write_yaml(tiny(tasks=["cola"], arms=["add"]))
    monkeypatch.setattr(sys, "stderr", gone)
    if stdout == "captured":
        said = glue_bench("run", config, "--results", tmp_path)
        assert "1 cells run" in said.out
    else:
        with broken("pipe") as unread:
            monkeypatch.setattr(sys, "stdout", unread)
            said = glue_bench("run", config, "--results", tmp_path)
    assert said.status == 0
    assert len(list((tmp_path / "tiny" / "records").iterdir())) == 1


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize("kind", ["pipe", "unbuffered"])
def test_a_reader_of_standard_output_that_is_gone_does_not_keep_standard_error_from_failures(
    glue_bench, tiny, write_yaml, tmp_path, monkeypatch, kind
):
    def fail(*_, **__):
        raise RuntimeError("out of luck")

    monkeypatch.setattr("glue_bench.sweep.attempts.finetune", fail)
    config = write_yaml(tiny(tasks=["cola"], arms=["add"]))
    with broken(kind) as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        said = glue_bench("run", config, "--results", tmp_path)
    assert said.status == 1
    assert said.err.count("failed: add-cola") == 1


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize("kind", ["pipe", "unbuffered"])
def test_a_run_whose_reader_is_gone_still_trains_again_what_it_was_asked_to(
    glue_bench, tiny, write_yaml, tmp_path, monkeypatch, kind
):
    monkeypatch.setattr("glue_bench.cli.sweeps.print_leaderboard", lambda *_, **__: echo("x" * 10_000))
    glue_bench("run", write_yaml(tiny(tasks=["cola"], arms=["add"])), "--results", tmp_path)
    config = write_yaml(tiny(tasks=["cola"], arms=["add"], finetuning={"keep": "all"}))
    with broken(kind) as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        said = glue_bench("run", config, "--results", tmp_path, "--yes")
    assert said.status == 0
    assert len(list((tmp_path / "tiny" / "models").iterdir())) == 1


def test_no_write_of_any_size_fails_once_a_stream_is_silent():
    with broken("pipe") as stream:
        with pytest.raises(BrokenPipeError):
            stream.write("x" * 10_000 + "\n")
        silence(stream)
        stream.write("x" * 10_000 + "\n")
        stream.flush()


@pytest.mark.parametrize("kind", ["full", "pipe"])
def test_a_process_keeps_its_exit_status(tmp_path, kind):
    with broken(kind) as stream:
        words = [sys.executable, "-m", "glue_bench", "verify", str(tmp_path / "nothing")]
        assert subprocess.run(words, stderr=stream, check=False).returncode == 2


def test_a_console_of_the_caller_loses_a_line_of_a_full_disk():
    with broken("full") as stream:
        tell(Console(file=stream), "lost")
