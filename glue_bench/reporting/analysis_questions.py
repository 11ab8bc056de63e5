"""The questions that the inside of an encoder answers: where analysis.json has the number, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["below", "inside", "above"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """`number` and `baseline` are places in analysis.json, the latter that of a value or of [low, high].

    `says` has what follows where the number is below, inside or above its baseline; `but` is what that does not say.
    """

    title: str
    what: str
    number: str
    baseline: str
    against: str
    says: Mapping[Side, str]
    but: str
    interval: str = ""
    percent: bool = False


QUESTIONS = (
    Question(
        title="Do words and positions lie in different subspaces?",
        what="Overlap R of their covariances",
        number="subspaces.overlap",
        baseline="subspaces.overlap_random",
        against="positions turned at random, 95% of rotations",
        says={
            "below": "Words and positions share fewer directions than chance gives: their sum is nearer to a "
            "concatenation than a sum of unrelated tables would be.",
            "inside": "Words and positions share as many directions as chance gives.",
            "above": "Words and positions share more directions than chance gives: they compete for the same "
            "dimensions.",
        },
        but="In so many dimensions unrelated tables are nearly orthogonal, too, so that only the difference to the "
        "baseline is something learned.",
    ),
    Question(
        title="How orthogonal is a word to a position?",
        what="Mean |cos| of a word and a position",
        number="subspaces.mean_abs_cosine",
        baseline="subspaces.mean_abs_cosine_random_interval",
        against="positions turned at random, 95% of rotations",
        says={
            "below": "A position is more orthogonal to a word than two random directions are.",
            "inside": "A position is as orthogonal to a word as two random directions are, and not more.",
            "above": "A position is less orthogonal to a word than two random directions are.",
        },
        but="A mean over pairs does not say whether the few directions that matter are shared; R and the curve of "
        "shares do.",
    ),
)


def at(numbers: Mapping[str, Any], place: str) -> Any:
    """What stands at a place such as `subspaces.overlap`; None where nothing does."""
    value: Any = numbers
    for name in place.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def side(value: float, baseline: float | list[float]) -> Side:
    """On which side of its baseline, a value or [low, high], a number lies."""
    low, high = baseline if isinstance(baseline, list) else (baseline, baseline)
    if value < low:
        return "below"
    return "above" if value > high else "inside"
