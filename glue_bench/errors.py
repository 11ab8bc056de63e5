"""The kind of error that is the user's to fix, the near match that helps, and how texts of others are said."""

import re
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

IN_A_FILE = "in an experiment file (glue-bench init writes one)"
"""Where a setting stands that no option of the command line has."""
LONGEST, QUOTED = 1000, 80  # at most: bytes of a message, characters that it quotes of a file
UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters but for tab and line feed, what changes the direction of a line or ends it, lone surrogates."""


def plain(text: str) -> str:
    """A text as a terminal may have it: characters that would control the terminal are shown by their codes."""
    return UNSHOWN.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(text: str, most: int = LONGEST) -> str:
    """A text of at most so many bytes: of a longer one its beginning and its end."""
    content = text.encode(errors="replace")
    if len(content) <= most:
        return text
    end = content[-(most // 4) :].decode(errors="ignore")
    return content[: most - most // 4 - 5].decode(errors="ignore") + " ... " + end


def quoted(value: Any) -> str:
    """A value of a file as Python writes it, at most QUOTED characters of it."""
    try:
        text = repr(value[: QUOTED + 1] if isinstance(value, str) else value)
    except (
        ValueError,
        RecursionError,
    ):  # a number of more than 4,300 digits, or a list within lists without end
        return f"a value that is too long to print ({type(value).__name__})"
    return text if len(text) <= QUOTED + 2 else f"{text[:QUOTED]}..."


def format_duration(seconds: float) -> str:
    """A duration as people say it: `4.5 s`, `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


class UserError(Exception):
    """Bad input: the message says what is wrong, where, and what to do. Shown without a traceback.

    The message is one line, of at most LONGEST bytes, and fit for a terminal, whatever it quotes.
    """

    def __str__(self) -> str:
        return shortened(plain(" ".join(super().__str__().split("\n"))))


class MistakesError(ValueError):
    """Several mistakes in one section of a file, each of them a sentence."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(self.mistakes))


class DiskError(UserError):
    """A disk that is full or cannot be written: what comes next would meet it, too, so it ends a sweep."""


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """Error for a name that is not in `known`, with the nearest one suggested."""
    names, name = [str(k) for k in known], str(name)[:LONGEST]
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
    return UserError(
        f"unknown {kind} '{shortened(name, QUOTED)}'{f' in {where}' if where else ''}; {hint}"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def line_of(error: BaseException | None, file: str | None) -> str:
    """` (FILE:LINE)`, the innermost line of a file that an error or its causes passed through; empty without one."""
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
