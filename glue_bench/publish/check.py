"""The result of a check of stored results."""

from dataclasses import dataclass

REWRITE_ADVICE = "run the experiment again, which writes {} anew"


@dataclass(frozen=True)
class Check:
    """What was checked (`name`), the result in a few words, and a line about each fault.

    The line has the file, what is wrong with it, and what to do.
    """

    name: str
    result: str
    faults: tuple[str, ...] = ()
