"""No text from outside controls a terminal, and no error is long: whatever is printed goes through one place."""

import io
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glue_bench.errors import LONGEST, QUOTED, DiskError, UserError, plain, quoted, shortened, unknown
from glue_bench.terminal import Screen, echo, tell

EVIL = "a\x1b[2J\x9b1m\x07\r\u202eb"
SHOWN = r"a\x1b[2J\x9b1m\x07\r\u202eb"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\ud800-\udfff]")


@given(st.text())
def test_what_is_shown_has_no_control_characters(text):
    assert not CONTROLS.search(plain(text))
    assert plain(plain(text)) == plain(text)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_a_text_that_controls_nothing_stays_as_it_is(text):
    assert plain(f"{text}\t\n") == f"{text}\t\n"


def test_the_screen_shows_codes_and_keeps_its_own_colours():
    file = io.StringIO()
    screen = Screen(file=file, force_terminal=True, color_system="standard", width=120, legacy_windows=False)
    table = Table(EVIL)
    table.add_row(Text(EVIL, style="red"))
    screen.print(table)
    screen.print(Text(EVIL + "more"))
    tell(screen, f"[bold]{EVIL}[/]", "red")
    said = file.getvalue()
    assert said.count(SHOWN) == 2  # of a Text what is measured is cut off
    assert "\x1b[31m" in said
    assert f"[bold]{SHOWN}[/]" in said
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", said))


def test_a_console_of_the_caller_is_told_no_control_characters_either():
    console = Console(file=io.StringIO(), width=40)
    tell(console, EVIL * 10)
    assert console.file.getvalue() == SHOWN * 10 + "\n"


def test_what_is_echoed_has_no_control_characters_but_the_colours_of_a_terminal(capsys):
    echo(EVIL, fg="red")
    echo(f"{EVIL}\n", nl=False, err=True)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")


@pytest.mark.parametrize("kind", [UserError, DiskError])
def test_an_error_is_one_short_line_that_goes_to_other_processes(kind):
    error = pickle.loads(pickle.dumps(kind("first\nsecond " + EVIL + "ä" * 3000 + " the end")))
    assert str(error).startswith(f"first second {SHOWN}")
    assert str(error).endswith("the end")
    assert len(str(error).encode()) <= LONGEST


@given(st.text(max_size=400), st.integers(20, 300))
def test_a_text_is_shortened_to_so_many_bytes(text, most):
    short = shortened(text, most)
    assert len(short.encode(errors="replace")) <= most
    assert short == text or len(text.encode(errors="replace")) > most


@pytest.mark.parametrize("kind", ["text", "list", "number", "object"])
def test_eighty_characters_of_a_value_are_quoted(kind):
    values = {"text": "x" * 3_000_000, "list": [0] * 10**5, "number": 10**5000, "object": {"a": "b" * 1000}}
    assert len(quoted(values[kind])) <= QUOTED + 3


def test_an_unknown_name_of_any_length_is_said_in_short():
    assert len(str(unknown("key", "x" * 3_000_000, ["a"]))) < 2 * QUOTED


def test_a_short_value_is_quoted_as_a_whole():
    assert quoted("it's") == '"it\'s"'
    assert quoted("x" * QUOTED) == f"'{'x' * QUOTED}'"
