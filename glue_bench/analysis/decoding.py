"""Can the sum be taken apart: is embed(foo) + p_1 ever embed(bar) + p_2?

Shapes: v words, n positions, e width, t examples. x = w_i + p_j, and x after LayerNorm, for random i and j.

    position   ridge regression (e -> n, one-hot), on 80% of the word types; told for the other 20%
    word       nearest row, argmin_v |x - p_mean - w_v|; with the position known, argmin_v |x - p_j - w_v|
    collision  the smallest |w_i + p_j - w_i' - p_j'| of two sums with i != i', against the median over words of the
               distance to the nearest other word

Baselines: words alone, where nothing tells the position; and random positions, of which each has the norm of the one
whose place it takes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from sklearn.linear_model import Ridge
from torch import Tensor

from glue_bench.analysis.input_sum import InputSum
from glue_bench.analysis.measured import SEED, Measured, expected, expected_share, moving, numpy

PAIRS = 10_000  # words and positions whose word is told
FEWER = 2_000  # of each draw of random positions, after the norm, and where the position is known
TESTS = 5_000  # words and positions whose position is told
PER_POSITION = 20  # examples to train on
SUMS = 20_000  # among which a collision is looked for
TRAINED = 0.8  # of the word types
DRAWS = 5  # of random positions
AT_ONCE = 250
COLUMNS = ["layer", "what", "accuracy", "chance", "mae", "mae_chance", "random"]
Rows = Float[Tensor, "t e"]
Sample = Int[np.ndarray, " t"]


@torch.inference_mode()
def measure_decoding(table: InputSum, norm: Callable[[Tensor], Tensor]) -> Measured:
    """The three of the sum and after `norm`, with their baselines, and the frame `decoding`.

    Raises:
        LeftOut: no position enters at the input.
    """
    table.check_positions()
    n, v = len(table.positions), len(table.words)
    found = {"sum": decoded(table, plain, PAIRS), "norm": decoded(table, norm, FEWER)}
    draws = [decoded(with_random_positions(table, draw), plain, FEWER, draw) for draw in range(DRAWS)]
    by_name = {name: [draw[name] for draw in draws] for name in draws[0]}
    alone = InputSum(table.words, torch.zeros_like(table.positions), table.mean)
    numbers: dict[str, Any] = {
        **found,
        "random": {name: float(np.mean(values)) for name, values in by_name.items()},
        "random_interval": {name: expected(values) for name, values in by_name.items()}
        | {
            "word_accuracy": expected_share(by_name["word_accuracy"], FEWER, PAIRS),
            "position_accuracy": expected_share(by_name["position_accuracy"], TESTS, TESTS),
        },
        "words_alone": dict(zip(("position_accuracy", "position_mae"), position_told(alone, plain), strict=True)),
        "chance": {"position_accuracy": 1 / n, "position_mae": mae_by_chance(n), "word_accuracy": 1 / v},
        "position_mae_constant": n / 4,
        "word_accuracy_position_known": word_told(table, plain, FEWER, known=True),
        "collisions": collisions(table),
        "pairs": {"sum": PAIRS, "norm": FEWER, "random": FEWER},
    }
    rows = []
    for layer, told in found.items():
        word, position, mae = (told[name] for name in ("word_accuracy", "position_accuracy", "position_mae"))
        random = numbers["random"] if layer == "sum" else {}
        rows.append(
            (layer, "position", position, 1 / n, mae, mae_by_chance(n), random.get("position_accuracy", np.nan))
        )
        rows.append((layer, "word", word, 1 / v, np.nan, np.nan, random.get("word_accuracy", np.nan)))
    return Measured({"decoding": numbers}, {"decoding": pd.DataFrame(rows, columns=COLUMNS)})


def plain(rows: Rows) -> Rows:
    """The sum as it is."""
    return rows


def decoded(table: InputSum, norm: Callable[[Tensor], Tensor], pairs: int, draw: int = 0) -> dict[str, float]:
    """How often word and position are told, and the mean absolute error of the position; each `draw` has its pairs."""
    accuracy, error = position_told(table, norm)
    word = word_told(table, norm, pairs, draw)
    return {"word_accuracy": word, "position_accuracy": accuracy, "position_mae": error}


def mae_by_chance(n: int) -> float:
    """The mean |i - j| of two independent positions of n: the error of a probe that tells any of them.

    The best constant guess errs by n / 4, but these probes name the most likely position.
    """
    return (n * n - 1) / (3 * n)


def position_told(table: InputSum, norm: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """Accuracy and mean absolute error of the position, of word types that the regression has not seen."""
    generator, n = np.random.default_rng(SEED), len(table.positions)
    types = generator.permutation(len(table.words))
    trained = int(TRAINED * len(types))

    def examples(chosen: Sample, count: int) -> tuple[np.ndarray, Sample]:
        words, positions = generator.choice(chosen, count), generator.integers(n, size=count)
        return norm(_sums(table, words, positions)).cpu().numpy(), positions

    train, test = examples(types[:trained], PER_POSITION * n), examples(types[trained:], TESTS)
    return told_by_ridge(*train, *test, n)


def told_by_ridge(
    rows: Float[np.ndarray, "t e"], places: Sample, tests: Float[np.ndarray, "u e"], expected_places: Sample, n: int
) -> tuple[float, float]:
    """Accuracy and mean absolute error of the place that one-hot ridge regression tells, in float32."""
    middle, scale = rows.mean(0), rows.std()
    ridge = Ridge(alpha=1.0).fit((rows - middle) / scale, np.eye(n, dtype=np.float32)[places])
    told = ridge.predict((tests - middle) / scale).argmax(1)
    return float((told == expected_places).mean()), float(np.abs(told - expected_places).mean())


def word_told(
    table: InputSum, norm: Callable[[Tensor], Tensor], pairs: int, draw: int = 0, *, known: bool = False
) -> float:
    """How often the word whose row, with the mean position or the `known` one, is nearest is the right one."""
    generator = np.random.default_rng([SEED, pairs, draw])
    words = generator.integers(len(table.words), size=pairs)
    positions = generator.integers(len(table.positions), size=pairs)
    given = norm(_sums(table, words, positions))
    if known:
        given = given - table.positions[positions]
    told = nearest(given, norm(table.words + table.mean))
    return float((told.cpu().numpy() == words).mean())


def nearest(rows: Rows, candidates: Float[Tensor, "v e"]) -> Int[Tensor, " t"]:
    """The index of the nearest candidate to each row: of the largest x . c - |c|^2 / 2."""
    return torch.cat([scores.argmax(1) for scores in _nearness(rows, candidates)])


def _nearness(rows: Rows, candidates: Float[Tensor, "v e"]) -> Iterator[Float[Tensor, "some v"]]:
    """x . c - |c|^2 / 2 of some rows at a time, each time in the same memory."""
    memory = rows.new_empty(min(AT_ONCE, len(rows)), len(candidates))
    half = candidates.square().sum(1) / -2
    for some in rows.split(AT_ONCE):
        yield torch.addmm(half, some, candidates.mT, out=memory[: len(some)])


def with_random_positions(table: InputSum, draw: int) -> InputSum:
    """Positions of random directions, among the dimensions in which the table's own move, and of their norms."""
    drawn = np.random.default_rng([SEED, draw]).standard_normal(table.positions.shape)
    drawn *= moving(numpy(table.positions))
    rows = torch.from_numpy(drawn).to(table.positions)
    rows = rows * (table.positions.norm(dim=1) / rows.norm(dim=1))[:, None]
    return InputSum(table.words, rows - rows.mean(0), table.mean)


def collisions(table: InputSum) -> dict[str, float]:
    """The smallest distance of two sums of different words, and the median distance of a word to the nearest other."""
    generator = np.random.default_rng(SEED)
    words = generator.integers(len(table.words), size=SUMS)
    sums = _sums(table, words, generator.integers(len(table.positions), size=SUMS))
    sample = generator.choice(len(table.words), min(FEWER, len(table.words)), replace=False)
    near = nearest_other(sums, sums, words, words)
    return {
        "smallest": float(near.min()),
        "median": float(near.median()),
        "nearest_word_median": float(
            nearest_other(table.words[sample], table.words, sample, np.arange(len(table.words))).median()
        ),
        "sums": SUMS,
    }


def nearest_other(rows: Rows, candidates: Rows, of_rows: Sample, of_candidates: Sample) -> Float[Tensor, " t"]:
    """The distance of each row to the nearest candidate of another word."""
    mine, theirs = (torch.from_numpy(words).to(rows.device) for words in (of_rows, of_candidates))
    near = [
        scores.masked_fill_(words[:, None] == theirs, -torch.inf).argmax(1)
        for scores, words in zip(_nearness(rows, candidates), mine.split(AT_ONCE), strict=True)
    ]
    return (rows - candidates[torch.cat(near)]).norm(dim=1)


def _sums(table: InputSum, words: Sample, positions: Sample) -> Rows:
    return table.words[words] + table.positions[positions] + table.mean
