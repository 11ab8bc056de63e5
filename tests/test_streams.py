"""A terminal, a pipe or a log that is gone or full ends no run, and changes no exit status."""

import io
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from glue_bench.model.variants import VARIANTS
from glue_bench.terminal import Screen, silence, tell

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


def test_a_screen_fails_as_a_file_does(gone):
    with pytest.raises(OSError, match=r"Broken pipe|No space left"):
        Screen(file=gone).print("lost")


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
    assert len(list((tmp_path / "tiny" / "cells").iterdir())) == 1


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize("kind", ["pipe", "unbuffered"])
def test_a_reader_of_standard_output_that_is_gone_does_not_keep_standard_error_from_failures(
    glue_bench, tiny, write_yaml, tmp_path, monkeypatch, kind
):
    class Failing(VARIANTS["add"]):
        def forward(self, token_ids, segment_ids):
            if self.training and token_ids.device.type != "meta":  # on which operations are only counted
                raise RuntimeError("out of luck")
            return super().forward(token_ids, segment_ids)

    monkeypatch.setitem(VARIANTS, "failing", Failing)
    config = write_yaml(tiny(tasks=["cola"], arms=["failing"]))
    with broken(kind) as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        said = glue_bench("run", config, "--results", tmp_path)
    assert said.status == 1
    assert said.err.count("failed: failing-cola") == 1


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
