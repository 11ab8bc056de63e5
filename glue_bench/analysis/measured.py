"""What a measure of an encoder leaves: numbers, tidy frames, or the reason why it does not apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy import stats
from torch import Tensor

COVERAGE = 0.95
SEED = 0  # of everything that the measures draw
EXACT = 1e-5  # of the largest value: what rounding in float32 may make of a sum


class LeftOut(Exception):
    """A measure does not apply to an encoder; the message is the reason, and how to get the measure."""


@dataclass(frozen=True)
class Measured:
    """`numbers` by nested names, as analysis.json has them; `frames` by name, without the column `checkpoint`."""

    numbers: dict[str, Any]
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def middle(draws: Sequence[float] | np.ndarray) -> list[float]:
    """[low, high]: the middle 95% of many draws (200 or more) of what chance gives."""
    tail = (1 - COVERAGE) / 2
    return [float(value) for value in np.quantile(draws, [tail, 1 - tail])]


def expected(draws: Sequence[float] | np.ndarray) -> list[float]:
    """[low, high]: where 95% of further draws fall, told from a few, as if they were normal.

    mean -+ t * s * sqrt(1 + 1 / m) of m draws, t of Student's distribution with m - 1 degrees of freedom.
    """
    m = len(draws)
    reach = stats.t.ppf((1 + COVERAGE) / 2, m - 1) * np.std(draws, ddof=1) * np.sqrt(1 + 1 / m)
    return [float(np.mean(draws) - reach), float(np.mean(draws) + reach)]


def expected_share(draws: Sequence[float] | np.ndarray, trials: int, tried: int) -> list[float]:
    """[low, high]: as `expected`, of the share that is told of `tried` when each draw had so many `trials`.

    Draws that all tell everything do not spread, and another sample may still miss some. So the band is at least the
    middle 95% of what a sample of `tried` gives after the draws: of the beta-binomial distribution with one told and
    one missed added, as Agresti & Caffo (2000) add them to compare two proportions.
    """
    low, high = expected(draws)
    told, missed = (share * trials * len(draws) + 1 for share in (np.mean(draws), 1 - np.mean(draws)))
    tail = (1 - COVERAGE) / 2
    few, many = np.asarray(stats.betabinom.ppf([tail, 1 - tail], tried, told, missed)) / tried
    return [max(0.0, min(low, float(few))), min(1.0, max(high, float(many)))]


def confidence(values: np.ndarray) -> np.ndarray:
    """The half width of the 95% interval of a mean over the first axis, by Student's t: the shape of the rest."""
    n = len(values)
    return stats.t.ppf((1 + COVERAGE) / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)


def moving(table: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, " d"]:
    """In which dimensions centred rows differ by more than rounding; a table of zeros moves in all of them."""
    largest = np.abs(table).max(0)
    found: np.ndarray = largest >= EXACT * largest.max()
    return found


def numpy(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers in float64."""
    return tensor.double().cpu().numpy()
