"""What a measure leaves: a sum and a count for each sequence, hence its value and its standard error."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sums:
    """A measure is sum / count over all sequences. `sums` float64 (n,), `counts` float64 (n,), one per sequence.

    Arms that read the same text have the same sequences, so that differences can be paired over them.
    """

    sums: np.ndarray
    counts: np.ndarray

    @property
    def value(self) -> float:
        """The mean over all that was counted; NaN where nothing was."""
        total = self.counts.sum()
        return float(self.sums.sum() / total) if total else math.nan

    @property
    def standard_error(self) -> float:
        """That of a ratio of sums, the sequences drawn at random (Cochran 1977, equation 6.13); NaN of fewer than two.

        sqrt(n / (n - 1) * sum_k (s_k - R c_k)^2) / sum_k c_k, with R = value, over the sequences that count anything.
        """
        counted = self.counts > 0
        n = int(counted.sum())
        if n < 2:
            return math.nan
        residuals = (self.sums - self.value * self.counts)[counted]
        return float(np.sqrt(n / (n - 1) * np.square(residuals).sum()) / self.counts.sum())

    @property
    def n(self) -> int:
        """Sequences that count anything."""
        return int((self.counts > 0).sum())
