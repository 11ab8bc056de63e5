"""Curves of losses whose lags are known by hand."""

import numpy as np
import pandas as pd


def losses_of(loss_by_run):
    """Return the losses of runs (arm, seed), from a function of the tokens in millions for each."""
    rows = []
    for (arm, seed), loss in loss_by_run.items():
        for tokens in np.arange(0.1, 10.01, 0.1):
            rows.append((arm, seed, round(tokens * 1e6), loss(tokens)))
    columns = ["arm", "pretraining_seed", "tokens", "validation_loss"]
    return pd.DataFrame(rows, columns=columns)


def falling_loss(tokens):
    """Return the loss after so many million tokens: it falls from 9 by half a nat a million."""
    return 9.0 - 0.5 * tokens
