"""Errors that a user can mend, and how texts of others are quoted in messages."""

import re
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

IN_A_FILE = "in an experiment file (glue-bench init writes one), or by `run --set`"
"""The place of settings that have no option of their own on the command line."""
MAX_MESSAGE_BYTES = 1000
"""The most bytes of a message."""
MAX_QUOTED = 80
"""The most characters that a message quotes of a file."""
NAME_CUTOFF = 0.5
"""The `cutoff` of get_close_matches for a name to suggest."""
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that are shown by their codes.

They are control characters except tab and line feed, characters that change the direction of a line
or end it, and lone surrogates.
"""


def escape_controls(text: str) -> str:
    """Return a text in which characters that would control a terminal are shown by their codes."""
    return CONTROL_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(text: str, max_bytes: int = MAX_MESSAGE_BYTES) -> str:
    """Return a text of at most `max_bytes`: of a longer one the beginning and the end."""
    content = text.encode(errors="replace")
    if len(content) <= max_bytes:
        return text
    dots = " ... "
    end_bytes = max_bytes // 4
    start_bytes = max_bytes - end_bytes - len(dots)
    start = content[:start_bytes].decode(errors="ignore")
    end = content[-end_bytes:].decode(errors="ignore")
    return start + dots + end


def quoted(value: Any) -> str:
    """Return the first MAX_QUOTED characters of a value as Python writes it."""
    if isinstance(value, str):
        value = value[: MAX_QUOTED + 1]
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more than 4,300 digits; lists within lists without end
        return f"a value that is too long to print ({type(value).__name__})"
    return text if len(text) <= MAX_QUOTED + 2 else f"{text[:MAX_QUOTED]}..."


def format_duration(seconds: float) -> str:
    """Format a duration: `4.5 s`, `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


class UserError(Exception):
    """Bad input. The message says what is wrong, where, and what to do.

    It is shown without a traceback: one line of at most MAX_MESSAGE_BYTES that is fit for a
    terminal, whatever it quotes.
    """

    def __str__(self) -> str:
        return shortened(escape_controls(" ".join(super().__str__().split("\n"))))


class MistakesError(ValueError):
    """The mistakes in one section of a file, a sentence each."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(self.mistakes))


class DiskError(UserError):
    """A disk that is full or cannot be written. It ends a sweep, because all jobs would meet it."""


def unknown(kind: str, name: str, names: Iterable[str], place: str = "") -> UserError:
    """Make the error for a name that is none of `names`, in which the nearest one is suggested."""
    name = str(name)[:MAX_MESSAGE_BYTES]
    known_names = list(map(str, names))
    nearest = get_close_matches(name, known_names, n=1, cutoff=NAME_CUTOFF)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(known_names)}"
    location = f" in {place}" if place else ""
    return UserError(f"unknown {kind} '{shortened(name, MAX_QUOTED)}'{location}; {hint}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class if there is no message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def line_of(error: BaseException | None, file: str | None) -> str:
    """Return ` (FILE:LINE)`, the innermost line of a file that an error or a cause passed through.

    Without such a line the text is empty.
    """
    while error is not None:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == file
        ]
        if isinstance(error, SyntaxError) and error.filename == file:
            lines.append(error.lineno)
        if file and lines:
            return f" ({Path(file).name}:{lines[-1]})"
        error = error.__cause__
    return ""
