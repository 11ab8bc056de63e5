"""The kind of error that is the user's to fix, and the near match that helps to fix it."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Bad input: the message says what is wrong, where, and what to do. Shown without a traceback."""


class DiskError(UserError):
    """A disk that is full or cannot be written: what comes next would meet it, too, so it ends a sweep."""


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """Error for a name that is not in `known`, with the nearest one suggested."""
    names = [str(k) for k in known]
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
    place = f" in {where}" if where else ""
    return UserError(f"unknown {kind} '{name}'{place}; {hint}")


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
