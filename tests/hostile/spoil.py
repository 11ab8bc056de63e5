"""What may be wrong with a value, a text, a file: careless, damaged or hostile."""

import copy
import json
import os
import re
from pathlib import Path
from random import Random
from typing import Any

NAMES = [
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "two\nlines", "back\rover", "tab\there", "nul\x00"),
    *("\u202egnp.exe", "\u2028", "\ufeff", "=1+1", "+1", "-2+3", "@x", "", " ", ".", "..", "../../up", "/etc/passwd"),
    *("-rf", "--help", "a" * 300, "ä" * 200, "[red]markup[/red]", "[/]", "%s%n", "{0}", "`x`", "**b**", "<b>", "\\"),
    *("con", "nan", "null", "1e999", "http://[", "hub:x", "scratch", "lone \ud800", "'quoted'", '"', "|", "a" * 20_000),
]
NUMBERS = [0, -1, 1, 2, 3, 7, 255, 2**31, 2**63, 2**64, 10**11, 10**24, 0.5, 5.0, -0.0, 1e308, 1e-320, 1e-9]
PLAUSIBLE = [1, 2, 3, 4, 5, 7, 8, 16, 20, 64, 100, 128, 1000, 10**6]
DEEP, NAN, INFINITE, HUGE = "%DEEP%", "%NAN%", "%INFINITE%", "%HUGE%"
MARKED = {DEEP: "[" * 100_000 + "]" * 100_000, NAN: "NaN", INFINITE: "-Infinity", HUGE: "1" * 5000}
"""Strings that stand for what `json.dumps` does not write."""
OTHERS: list[Any] = [
    *(None, True, False, [], {}, [[]], [None], {"": None}, {"a": {"a": {"a": []}}}, [1, "a", None], list(range(2000))),
    *(*MARKED, {str(i): i for i in range(500)}),
]
_MARK = re.compile('"?(' + "|".join(MARKED) + ')"?')


def value(random: Random) -> Any:
    """Some value that is hardly what was expected."""
    kind = random.randrange(4)
    return copy.deepcopy(random.choice(NAMES if kind == 0 else NUMBERS if kind == 1 else OTHERS))


def document(tree: Any, random: Random) -> Any:
    """A tree of objects and lists with one to three things changed in it."""
    tree = copy.deepcopy(tree)
    for _ in range(random.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            return value(random)
        holder, key = random.choice(places)
        how = random.randrange(11)
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[random.choice(NAMES)] = holder.pop(key)
        elif how == 2 and isinstance(holder, dict):
            holder[random.choice(NAMES)] = value(random)
        elif how == 3:
            holder[key] = [holder[key]]
        elif how == 4 and isinstance(holder, list):
            holder += [copy.deepcopy(holder[key])] * random.choice([1, 3, 1000])
        elif how < 8:
            holder[key] = value(random)
        elif isinstance(holder[key], int | float):
            holder[key] += random.choice([-1, 1, holder[key]])
        else:  # what stands elsewhere
            other, place = random.choice(places)
            holder[key] = copy.deepcopy(other[place])
    return tree


def number(tree: Any, random: Random) -> Any:
    """A tree with one or two numbers in it that are others, but no less plausible."""
    tree = copy.deepcopy(tree)
    for _ in range(random.randint(1, 2)):
        holder, key = random.choice(
            [(holder, key) for holder, key in _places(tree) if type(holder[key]) in (int, float)]
        )
        others = PLAUSIBLE if type(holder[key]) is int else [1e-8, 1e-3, 0.1, 0.5, 0.999, 1.0, 50.0]
        holder[key] = random.choice(others)
    return tree


def _places(tree: Any) -> Any:
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, one in inside:
        yield tree, key
        yield from _places(one)


def json_text(tree: Any) -> str:
    """JSON, and what only resembles it."""
    return _MARK.sub(lambda found: MARKED[found[1]], json.dumps(tree, indent=1))


def content(given: bytes, random: Random) -> bytes:
    """Bytes with something changed in them."""
    at, to = sorted(random.randrange(len(given) + 1) for _ in range(2))
    junk = random.choice(
        [b"\0", b"\xff\xfe", b"\x1b[2J", b"\n", b"\r", b"\t", b'"', b"\xef\xbb\xbf", b"9" * 6000, b"{" * 50]
    )
    how = random.randrange(6)
    if how == 0:
        return given[:at]
    if how == 1:
        return given[:at] + junk + given[at:]
    if how == 2:
        return given[:at] + given[to:]
    if how == 3:
        return given[:to] + given[at:]
    if how == 4 and given:
        at = min(at, len(given) - 1)
        return given[:at] + bytes([given[at] ^ 1 << random.randrange(8)]) + given[at + 1 :]
    return random.choice([b"", junk, given + given, given + junk, junk * 100])


def is_plain(path: Path) -> bool:
    """Whether it is a file that has not been spoiled so that it cannot be read."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 2**27


def file(path: Path, random: Random) -> None:
    """In place of a file something that is none, or not one of a sensible size."""
    if path.is_dir() and not path.is_symlink():
        return
    path.unlink(missing_ok=True)
    how = random.randrange(8)
    if how == 0:
        path.mkdir()
    elif how == 1:
        os.mkfifo(path)
    elif how == 2:
        path.symlink_to(path.name)  # a loop
    elif how == 3:
        path.symlink_to("/dev/zero")
    elif how == 4:
        path.symlink_to("nowhere")
    elif how == 5:
        path.symlink_to("..")
    elif how == 6:
        with path.open("wb") as sparse:
            sparse.truncate(50 * 2**30)
    # else it is gone
