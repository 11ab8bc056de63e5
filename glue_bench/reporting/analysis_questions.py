"""The questions that the inside of an encoder answers: where analysis.json has the number, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["below", "inside", "above"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """`number` and `baseline` are places in analysis.json, the latter that of [low, high], or of a value.

    `says` has what follows where the number is below, inside or above its baseline; `but` is what that does not say.
    `interval` is the place of the number's own 95% interval, where it has one.
    """

    title: str
    what: str
    number: str
    baseline: str
    against: str
    below: str
    inside: str
    above: str
    but: str
    interval: str = ""
    percent: bool = False


TURNED = "positions turned at random, 95% of rotations"
QUESTIONS = (
    Question(
        title="Are the mixed terms of attention weak?",
        what="Share of the two mixed terms in the variance of the first block's logits",
        number="terms.mixed",
        baseline="terms.mixed_random",
        interval="terms.mixed_interval",
        against=TURNED,
        percent=True,
        below="Word-to-position and position-to-word scores hold a smaller share than with positions turned at random.",
        inside="Word-to-position and position-to-word scores hold what they hold with positions turned at random: "
        "nothing was learned that makes the mixed terms weak or strong.",
        above="Word-to-position and position-to-word scores hold a larger share than with positions turned at random.",
        but="A share also falls where another term grows. It does not say what a term is good for, either; `terms.kl` "
        "and `terms.loss_rise` say what changes without it.",
    ),
    Question(
        title="Are they weak beside word to word?",
        what="Share of the two mixed terms in themselves and word to word, mean over heads",
        number="terms.mixed_to_words",
        baseline="terms.mixed_to_words_random",
        against=TURNED,
        percent=True,
        below="Beside word to word the mixed terms are weaker than with positions turned at random.",
        inside="Beside word to word the mixed terms are as strong as with positions turned at random.",
        above="Beside word to word the mixed terms are stronger than with positions turned at random.",
        but="Turning the positions leaves word to word as it is, so that this number hardly falls where position to "
        "position grows. Whether the mixed terms help is another question: see `terms.loss_rise`.",
    ),
    Question(
        title="Do words and positions lie in different subspaces?",
        what="Overlap R of their covariances",
        number="subspaces.overlap",
        baseline="subspaces.overlap_random",
        against=TURNED,
        below="Words and positions share fewer directions than chance gives: their sum is nearer to a concatenation "
        "than a sum of unrelated tables would be.",
        inside="Words and positions share as many directions as chance gives: training has not kept them apart.",
        above="Words and positions share more directions than chance gives: they compete for the same dimensions.",
        but="Unrelated tables are nearly orthogonal in so many dimensions, too, so that only the difference to the "
        "baseline is learned.",
    ),
    Question(
        title="How orthogonal is a word to a position?",
        what="Mean |cos| of a word and a position",
        number="subspaces.mean_abs_cosine",
        baseline="subspaces.mean_abs_cosine_random_interval",
        against=TURNED,
        below="A position is more orthogonal to a word than two random directions are.",
        inside="A position is as orthogonal to a word as two random directions are, and not more.",
        above="A position is less orthogonal to a word than two random directions are.",
        but="A mean over pairs does not say whether the few directions that matter are shared; R and the curve of "
        "shares do.",
    ),
    Question(
        title="Can the word be told from the sum?",
        what="Words told by the nearest row, the position unknown",
        number="decoding.sum.word_accuracy",
        baseline="decoding.random_interval.word_accuracy",
        against="random positions of the same norms",
        percent=True,
        below="The sum hides the word more often than with random positions of the same size.",
        inside="The word is told as often as with random positions of the same size.",
        above="The word is told more often than with random positions of the same size.",
        but="That a nearest row tells the word does not say that attention reads it that way.",
    ),
    Question(
        title="Can the position be told from the sum?",
        what="Positions told by a linear probe, of words that it has not seen",
        number="decoding.sum.position_accuracy",
        baseline="decoding.random_interval.position_accuracy",
        against="random positions of the same norms",
        percent=True,
        below="A linear probe tells the position less often than it would tell random positions of the same size.",
        inside="A linear probe tells the position as often as it would tell random positions of the same size.",
        above="A linear probe tells the position more often than it would tell random positions of the same size.",
        but="Neighbouring positions that look alike are confused by such a probe, which need not hurt: the mean error "
        "is `decoding.sum.position_mae`.",
    ),
    Question(
        title="Do the rows of positions know their order?",
        what="Mean error of the position that a linear probe tells from its row",
        number="positions.absolute_mae",
        baseline="positions.absolute_mae_random",
        against="a random table of the same shape",
        below="A row tells where it stands to a probe that has not seen it: the table has learnt an order.",
        inside="A row tells no more of where it stands than a random one: no order can be seen in the table.",
        above="A row tells less of where it stands than a random one would.",
        but="A constant guess is off by a quarter of the positions, and a smooth table is told well whatever the "
        "model does with it.",
    ),
    Question(
        title="Do scores of positions depend on the distance alone?",
        what="Share of their variance that depends on the distance alone",
        number="positions.scores.toeplitz",
        baseline="positions.scores.toeplitz_random",
        against="positions in random order",
        percent=True,
        below="The scores of two positions depend on their distance less than in random order.",
        inside="The scores of two positions do not depend on their distance.",
        above="The scores of two positions depend on their distance: absolute positions have become partly relative.",
        but="The share is of the first block alone, and a mean over heads, which differ.",
    ),
    Question(
        title="Do only some dimensions move with the position?",
        what="Dimensions that hold 95% of the positions' variance",
        number="dimensions.share_95",
        baseline="dimensions.share_95_random",
        against="independent normal numbers",
        percent=True,
        below="The positions live in fewer dimensions than random rows would.",
        inside="The positions are spread over the dimensions as random rows are.",
        above="The positions are spread more evenly than random rows are.",
        but="Dimensions are those of the table; in a rotated basis the same rows may need fewer, which "
        "`tables.participation_ratio` counts.",
    ),
    Question(
        title="Do words avoid the dimensions of the positions?",
        what="Spearman's correlation of the spread of words and of positions over dimensions",
        number="dimensions.spearman",
        baseline="dimensions.spearman_random",
        against="dimensions in random order, 10,000 permutations",
        below="Words spread where positions do not: the dimensions have been divided.",
        inside="Words spread with no regard to where positions do.",
        above="Words spread where positions do: no dimension has been left to one of them.",
        but="Division into other directions than single dimensions is not seen here; R sees it.",
    ),
    Question(
        title="How much does the model use the order of words?",
        what="Texts preferred to the same text with two neighbours swapped",
        number="order.swap.1",
        baseline="order.chance.swap",
        interval="order.swap_interval.1",
        against="an encoder without positions",
        percent=True,
        below="The model prefers the swapped text, which is worse than no use of order.",
        inside="The model does not tell the text from the same one with two neighbours swapped.",
        above="The model prefers the text as it was written: it uses the order of neighbours.",
        but="The test is of masked words, and says nothing of how much a task needs their order.",
    ),
)


def at(numbers: Mapping[str, Any], place: str) -> Any:
    """What stands at a place such as `subspaces.overlap`; None where nothing does."""
    value: Any = numbers
    for name in place.split(".") if place else ():
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value if place else None


def side(value: float, baseline: float | list[float], interval: list[float] | None) -> Side:
    """Where a number lies beside the interval of its baseline; or its own interval beside a baseline that is exact."""
    if isinstance(baseline, list):
        low, high = baseline
        return "below" if value < low else "above" if value > high else "inside"
    low, high = interval or (value, value)
    return "below" if high < baseline else "above" if low > baseline else "inside"
