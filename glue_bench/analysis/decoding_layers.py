"""What can be told from hidden states of real text, layer by layer: the position, and the word.

Shapes: s sequences, l places, t tokens, d width, v words, e width of their table. Layer 0 is what enters the first
block. [CLS] and the last [SEP], which always stand at the same places, are left out; word types to train on (80%) and
to test on are disjoint.

    position   ridge regression (d -> places, one-hot); chance is 1 / places
    word       ridge regression (d -> the word's row, e), then the row with the largest cosine of all v; chance is 1 / v
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from sklearn.linear_model import Ridge

from glue_bench.analysis.decoding import COLUMNS, TRAINED, mae_by_chance, nearest, told_by_ridge
from glue_bench.analysis.measured import SEED, Measured
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.subspaces import unit

TESTS = 1_000  # tokens whose word is told


def measure_decoding_layers(subject: Subject) -> Measured:
    """Accuracies by layer, and rows of the frame `decoding`.

    Raises:
        LeftOut: there is no text.
    """
    deep, places = subject.deep, subject.reading.ids.shape[1] - 2
    ids = subject.reading.ids[: len(deep.states[0]), 1:-1].ravel()
    table = subject.model.variant.words.weight.detach().cpu().numpy()
    table = table - table.mean(0)
    types = np.random.default_rng(SEED).permutation(np.unique(ids))
    trained = np.isin(ids, types[: int(TRAINED * len(types))])  # tokens of the types to train on
    numbers: dict[str, Any] = {"sequences": len(deep.states[0])}
    by_chance = mae_by_chance(places)
    numbers["chance"] = {"position_accuracy": 1 / places, "position_mae": by_chance, "word_accuracy": 1 / len(table)}
    numbers["position_mae_constant"] = places / 4
    rows = []
    for layer in (0, *subject.blocks):
        states = deep.states[layer][:, 1:-1].reshape(len(ids), -1)
        position, mae = position_told(states, trained, places)
        word = word_told(states, ids, trained, table)
        numbers[str(layer)] = {"position_accuracy": position, "position_mae": mae, "word_accuracy": word}
        rows.append((str(layer), "position", position, 1 / places, mae, by_chance, np.nan))
        rows.append((str(layer), "word", word, 1 / len(table), np.nan, np.nan, np.nan))
    return Measured({"decoding": {"layers": numbers}}, {"decoding": pd.DataFrame(rows, columns=COLUMNS)})


def position_told(states: Float[np.ndarray, "t d"], trained: np.ndarray, places: int) -> tuple[float, float]:
    """Accuracy and mean absolute error of the place, of tokens of other types than those trained on."""
    where = np.tile(np.arange(places), len(states) // places)
    return told_by_ridge(states[trained], where[trained], states[~trained], where[~trained], places)


def word_told(
    states: Float[np.ndarray, "t d"], ids: Int[np.ndarray, " t"], trained: np.ndarray, table: Float[np.ndarray, "v e"]
) -> float:
    """How often the word is told, of types that the regression has not seen."""
    tests = np.flatnonzero(~trained)[:TESTS]
    scale = states.std()
    ridge = Ridge(alpha=1.0).fit(states[trained] / scale, table[ids[trained]])
    told = nearest(torch.from_numpy(unit(ridge.predict(states[tests] / scale))), torch.from_numpy(unit(table)))
    return float((told.numpy() == ids[tests]).mean())
