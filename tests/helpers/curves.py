"""Curves of losses whose lags are known by hand."""

import numpy as np
import pandas as pd


def losses_of(arms):
    """Return losses of arms, from a function of tokens in millions for each arm and seed."""
    rows = []
    for (arm, seed), loss in arms.items():
        for tokens in np.arange(0.1, 10.01, 0.1):
            rows.append((arm, seed, round(tokens * 1e6), loss(tokens)))
    columns = ["arm", "pretraining_seed", "tokens", "validation_loss"]
    return pd.DataFrame(rows, columns=columns)


def straight(tokens):
    """Return a loss that falls by half a nat a million tokens."""
    return 9.0 - 0.5 * tokens
