"""Where attention goes: how near, and to which side (Chen et al. 2023, arXiv 2310.12864).

Shapes: h heads, l length. a[i, j] is the mean over sequences of the attention of token i to token j, without [CLS] and
the last [SEP], rows scaled to 1.

    within_m         = mean over i of the sum of a[i, j] over |i - j| <= m, the token itself included
    left_minus_right = mean over i of the sum over j < i less the sum over j > i, where both sides are as wide

Baseline: places in random order.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from glue_bench.analysis.measured import SEED, Measured, middle

WITHIN = (1, 2, 5)
DRAWS = 200
Attention = Float[np.ndarray, "*h l l"]


def measure_attention(attention: Mapping[int, Float[np.ndarray, "h l l"]]) -> Measured:
    """The measures by block (from 1) and head, and the frames `attention` and `attention_baseline`."""
    numbers: dict[str, Any] = {}
    rows, baselines = [], []
    for block, whole in attention.items():
        inside = whole[:, 1:-1, 1:-1]
        inside = inside / inside.sum(-1, keepdims=True)
        mean = inside.mean(0)
        rows += [{"block": block, "head": head, **_told(each)} for head, each in enumerate([mean, *inside])]
        # The middle 95% of what is told with places in random order.
        generator = np.random.default_rng([SEED, len(mean)])
        orders = [generator.permutation(len(mean)) for _ in range(DRAWS)]
        drawn = pd.DataFrame([_told(mean[np.ix_(order, order)]) for order in orders])
        bands = {str(name): middle(values.to_numpy()) for name, values in drawn.items()}
        numbers[str(block)] = _told(mean) | {f"{name}_random": band for name, band in bands.items()}
        baselines += [
            {"block": block, "measure": name, "value": _told(mean)[name], "low": low, "high": high}
            for name, (low, high) in bands.items()
        ]
    frames = {"attention": pd.DataFrame(rows), "attention_baseline": pd.DataFrame(baselines)}
    return Measured({"positions": {"attention": numbers}}, frames)


def within(attention: Attention, reach: int) -> float:
    """The attention to tokens at most `reach` away."""
    return float((attention * (np.abs(_distances(attention)) <= reach)).sum(-1).mean())


def left_minus_right(attention: Attention) -> float:
    """The attention to the left less that to the right, over as many tokens on each side as both have."""
    away, length = _distances(attention), attention.shape[-1]
    place = np.arange(length)
    both = np.minimum(place, length - 1 - place)[:, None]
    return float((attention * np.where(np.abs(away) <= both, -np.sign(away), 0)).sum(-1).mean())


def _told(attention: Attention) -> dict[str, float]:
    return {f"within_{m}": within(attention, m) for m in WITHIN} | {"left_minus_right": left_minus_right(attention)}


def _distances(attention: Attention) -> np.ndarray:
    places = np.arange(attention.shape[-1])
    return places - places[:, None]
