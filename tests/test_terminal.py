"""What is printed controls no terminal, no error is long, and a stream that is gone or full ends
no run.
"""

import io
import os
import pickle
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from glue_bench.errors import (
    MAX_MESSAGE_BYTES,
    MAX_QUOTED,
    DiskError,
    UserError,
    escape_controls,
    quoted,
    shortened,
    unknown,
)
from glue_bench.terminal import Screen, echo, print_line

EVIL = "a\x1b[2J\x9b1m\x07\r\u202eb"
SHOWN = r"a\x1b[2J\x9b1m\x07\r\u202eb"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\ud800-\udfff]")


@given(st.text(), st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_what_is_shown_has_no_control_characters_and_what_controls_nothing_stays_as_it_is(
    text, harmless
):
    assert not CONTROLS.search(escape_controls(text))
    assert escape_controls(escape_controls(text)) == escape_controls(text)
    assert escape_controls(f"{harmless}\t\n") == f"{harmless}\t\n"


def test_the_screen_shows_codes_and_keeps_its_own_colours(capsys):
    file = io.StringIO()
    screen = Screen(
        file=file, force_terminal=True, color_system="standard", width=120, legacy_windows=False
    )
    table = Table(EVIL)
    table.add_row(Text(EVIL, style="red"))
    screen.print(table)
    print_line(screen, f"[bold]{EVIL}[/]", "red")
    text = file.getvalue()
    assert text.count(SHOWN) == 2  # of a Text what is measured is cut off
    assert "\x1b[31m" in text
    assert f"[bold]{SHOWN}[/]" in text
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", text))
    echo(f"{EVIL}\n", nl=False, err=True)
    assert capsys.readouterr() == ("", f"{SHOWN}\n")


@pytest.mark.parametrize("kind", [UserError, DiskError])
def test_an_error_is_one_short_line_that_goes_to_other_processes(kind):
    error = pickle.loads(pickle.dumps(kind("first\nsecond " + EVIL + "ä" * 3000 + " the end")))
    assert str(error).startswith(f"first second {SHOWN}")
    assert str(error).endswith("the end")
    assert len(str(error).encode()) <= MAX_MESSAGE_BYTES


@given(st.text(max_size=400), st.integers(20, 300))
def test_a_text_is_shortened_to_so_many_bytes(text, limit):
    short = shortened(text, limit)
    assert len(short.encode(errors="replace")) <= limit
    assert short == text or len(text.encode(errors="replace")) > limit


def test_eighty_characters_of_a_value_are_quoted_and_a_short_one_as_a_whole():
    for value in ("x" * 3_000_000, [0] * 10**5, 10**5000, {"a": "b" * 1000}):
        assert len(quoted(value)) <= MAX_QUOTED + 3
    assert len(str(unknown("key", "x" * 3_000_000, ["a"]))) < 2 * MAX_QUOTED
    assert quoted("it's") == '"it\'s"'
    assert quoted("x" * MAX_QUOTED) == f"'{'x' * MAX_QUOTED}'"


@pytest.fixture(params=["full", "pipe"])
def gone(request):
    """A stream that takes no more: on a full disk, or a pipe whose reader has ended."""
    if request.param == "full":
        handle = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, handle = os.pipe()
        os.close(reader)
    stream = io.TextIOWrapper(os.fdopen(handle, "wb"), line_buffering=True)
    yield stream
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), handle)  # where what is left in it goes
    stream.close()


def test_what_nobody_reads_is_lost_and_output_that_does_not_fit_on_the_disk_is_an_error(
    gone, request, monkeypatch
):
    monkeypatch.setattr(sys, "stdout", gone)
    for say in (echo, Screen().print):
        full = request.node.callspec.params["gone"] == "full"
        with pytest.raises(OSError, match="No space left") if full else nullcontext():
            say("x" * 10_000)
    # Of a line alone is lost what cannot be written, and the next one is not.
    screen = Screen(file=gone)
    print_line(screen, "lost")
    screen.file = io.StringIO()
    print_line(screen, "said")
    assert screen.file.getvalue().endswith("said\n")


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize(
    ("gone", "name"), [("full", "stderr"), ("pipe", "stdout")], indirect=["gone"]
)
def test_a_run_ends_as_it_would_with_nobody_to_hear_of_it(
    glue_bench, tiny, write_yaml, tmp_path, monkeypatch, gone, name
):
    config = write_yaml(
        tiny(
            tasks=["stsb"],
            arms=["add"],
            finetuning={"learning_rates": [1.0], "weight_decay": 1e9},
        )
    )
    with monkeypatch.context() as patch:
        patch.setattr(sys, name, gone)
        output = glue_bench("run", config, "--results", tmp_path)
    assert output.status == 1
    assert f"{output.out}{output.err}".count("failed: " if name == "stdout" else "failed: 1") == 1


@pytest.mark.parametrize("gone", ["full"], indirect=True)
def test_a_process_keeps_its_exit_status(tmp_path, gone):
    words = [sys.executable, "-m", "glue_bench", "verify", str(tmp_path / "nothing")]
    assert subprocess.run(words, stderr=gone, check=False).returncode == 2
