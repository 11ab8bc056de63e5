"""The interval of one arm's score over its seeds."""

import math

from scipy.stats import t as student_t

LEVEL = 0.95


def t_interval(mean: float, deviation: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Student's interval of a mean over n seeds with this sample deviation; (nan, nan) where it is undefined."""
    if n < 2 or math.isnan(mean) or math.isnan(deviation):
        return math.nan, math.nan
    half = float(student_t.ppf((1 + level) / 2, n - 1)) * deviation / math.sqrt(n)
    return mean - half, mean + half
