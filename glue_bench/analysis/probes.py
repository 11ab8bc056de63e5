"""What can be told by a probe: the word and the position from their sum and from hidden states, order from rows.

Shapes: v words, n positions, e width of the tables, t examples, s sequences, l places, d width.

Can the sum be taken apart? Of x = w_i + p_j, and x after LayerNorm, for random i and j:

    position   ridge regression (e -> n, one-hot), on 80% of the word types; told for the other 20%
    word       nearest row, argmin_v |x - p_mean - w_v|; with the position known, argmin_v |x - p_j - w_v|
    collision  the smallest |w_i + p_j - w_i' - p_j'| of two sums with i != i', against the median over words of the
               distance to the nearest other word

Of the sum, chance is random positions, of which each has the norm of the one whose place it takes. Of hidden states of
real text, layer by layer, without [CLS] and the last [SEP], which always stand at the same places, the word is told by
ridge regression (d -> the word's row, e), then the row with the largest cosine. There, and after LayerNorm, chance is
1 / n and 1 / v, and of the mean absolute error of a position (n^2 - 1) / 3n, that of two independent positions: the
best constant guess errs by n / 4, but these probes name the most likely position.

What have rows of positions learnt (Wang & Chen 2020; Dufter et al. 2022)?

    absolute   ridge regression of j on p_j, 5-fold: mean |j^ - j|
    order      logistic regression of [i < j] on [p_i; p_j], on pairs of positions that it was not trained on: accuracy

The positions of the pairs to train on and to test on are disjoint; a split over pairs alone would leak. Chance is a
table of independent normal numbers; beside it stand the same rows with shuffled positions, and a sinusoid.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from glue_bench.analysis.chance import SEED, Interval, LeftOut, Measured, Row, expected, expected_share, row
from glue_bench.analysis.hooks import numpy
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.tables import InputSum, moving, unit

PAIRS, FEWER = 10_000, 2_000  # words and positions whose word is told; of each draw, after the norm, position known
TESTS, STATES = 5_000, 1_000  # words and positions whose position is told; tokens of text whose word is told
PER_POSITION, TRAINED = 20, 0.8  # examples to train on; of the word types
SUMS = 20_000  # among which a collision is looked for
DRAWS, TABLES = 5, 10  # of random positions; random tables
AT_ONCE, FOLDS = 250, 5
ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
ORDERED = 10_000  # pairs of rows, of which a fifth, of other positions, is to test on
SHOWN, FEWEST = 40, 20  # positions of the matrix of cosines, at most; positions that a probe needs
Rows = Float[Tensor, "t e"]
Table = Float[np.ndarray, "n d"]
States = Float[np.ndarray, "t d"]
Sample = Int[np.ndarray, " t"]
Norm = Callable[[Tensor], Tensor]
PLAIN = torch.nn.Identity()  # the sum as it is


@torch.inference_mode()
def measure_decoding(table: InputSum, norm: Norm) -> Measured:
    """Word, position and collisions of the sum; word and position after `norm`, and of what stands beside the sum."""
    table.check()
    drawn = [told(with_random_positions(table, draw), PLAIN, FEWER, draw) for draw in range(DRAWS)]
    draws = {name: [draw[name] for draw in drawn] for name in drawn[0]}
    by_draws = {
        "word_accuracy": expected_share(draws["word_accuracy"], FEWER, PAIRS),
        "position_accuracy": expected_share(draws["position_accuracy"], TESTS, TESTS),
        "position_mae": expected(draws["position_mae"]),
    }
    by_luck = _by_luck(len(table.positions), len(table.words))
    words_alone = replace(table, positions=torch.zeros_like(table.positions))
    found = {
        "sum": told(table, PLAIN, PAIRS),
        "norm": told(table, norm, FEWER),
        "random": {name: float(np.mean(values)) for name, values in draws.items()},
        "words_alone": position_told(words_alone, PLAIN),
    }
    rows = [
        row(f"decoding.{of}.{name}", value, chance=(by_draws if of == "sum" else by_luck)[name])
        for of, values in found.items()
        for name, value in values.items()
    ]
    known = word_told(table, PLAIN, FEWER, known=True)
    rows.append(row("decoding.word_accuracy_position_known", known, chance=by_luck["word_accuracy"]))
    return Measured([*rows, *collisions(table)])


def _by_luck(positions: int, words: int) -> dict[str, Interval]:
    """What guesses have of so many positions and words."""
    error = (positions * positions - 1) / (3 * positions)
    found = {"word_accuracy": 1 / words, "position_accuracy": 1 / positions, "position_mae": error}
    return {name: (value, value) for name, value in found.items()}


def told(table: InputSum, norm: Norm, pairs: int, draw: int = 0) -> dict[str, float]:
    """The three measures; each `draw` has its pairs."""
    return {"word_accuracy": word_told(table, norm, pairs, draw), **position_told(table, norm)}


def position_told(table: InputSum, norm: Norm) -> dict[str, float]:
    """Accuracy and mean absolute error of the position, of word types that the regression has not seen."""
    generator, n = np.random.default_rng(SEED), len(table.positions)
    types = generator.permutation(len(table.words))
    trained = int(TRAINED * len(types))

    def examples(chosen: Sample, count: int) -> tuple[States, Sample]:
        words, positions = generator.choice(chosen, count), generator.integers(n, size=count)
        return norm(_sums(table, words, positions)).cpu().numpy(), positions

    train, test = examples(types[:trained], PER_POSITION * n), examples(types[trained:], TESTS)
    return _by_ridge(*train, *test, n)


def _by_ridge(rows: States, places: Sample, tests: States, right: Sample, n: int) -> dict[str, float]:
    """As `position_told`, by one-hot ridge regression in float32."""
    middle, scale = rows.mean(0), rows.std()
    ridge = Ridge(alpha=1.0).fit((rows - middle) / scale, np.eye(n, dtype=np.float32)[places])
    away = np.abs(ridge.predict((tests - middle) / scale).argmax(1) - right)
    return {"position_accuracy": float((away == 0).mean()), "position_mae": float(away.mean())}


def word_told(table: InputSum, norm: Norm, pairs: int, draw: int = 0, *, known: bool = False) -> float:
    """How often the word whose row, with the mean position or the `known` one, is nearest is the right one."""
    generator = np.random.default_rng([SEED, pairs, draw])
    words = generator.integers(len(table.words), size=pairs)
    positions = generator.integers(len(table.positions), size=pairs)
    given = norm(_sums(table, words, positions))
    if known:
        given = given - table.positions[positions]
    return float((nearest(given, norm(table.words + table.mean)).cpu().numpy() == words).mean())


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
    return replace(table, positions=rows - rows.mean(0))


def collisions(table: InputSum) -> list[Row]:
    """The smallest distance of two sums of different words, and the median distance of a word to the nearest other."""
    generator = np.random.default_rng(SEED)
    words = generator.integers(len(table.words), size=SUMS)
    sums = _sums(table, words, generator.integers(len(table.positions), size=SUMS))
    sample = generator.choice(len(table.words), min(FEWER, len(table.words)), replace=False)
    near = nearest_other(sums, sums, words, words)
    of_words = nearest_other(table.words[sample], table.words, sample, np.arange(len(table.words)))
    values = {"smallest": near.min(), "median": near.median(), "nearest_word_median": of_words.median()}
    return [row(f"decoding.collisions.{name}", float(value)) for name, value in values.items()]


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


def measure_decoding_layers(subject: Subject) -> Measured:
    """Position and word told from what enters the first block (0) and what each block leaves.

    Word types to train on (80%) and to test on are disjoint.
    """
    deep, places = subject.deep, subject.ids.shape[1] - 2
    sequences, ids = len(deep.states[0]), subject.ids[: len(deep.states[0]), 1:-1].ravel()
    table = subject.model.variant.words.weight.detach().cpu().numpy()
    table = table - table.mean(0)
    types = np.random.default_rng(SEED).permutation(np.unique(ids))
    trained = np.isin(ids, types[: int(TRAINED * len(types))])  # tokens of the types to train on
    tests = np.flatnonzero(~trained)[:STATES]
    where, by_luck, rows = np.tile(np.arange(places), sequences), _by_luck(places, len(table)), list[Row]()
    for layer, of_layer in enumerate(deep.states):
        states = of_layer[:, 1:-1].reshape(len(ids), -1)
        values = _by_ridge(states[trained], where[trained], states[~trained], where[~trained], places)
        scale = states.std()
        ridge = Ridge(alpha=1.0).fit(states[trained] / scale, table[ids[trained]])
        found = nearest(torch.from_numpy(unit(ridge.predict(states[tests] / scale))), torch.from_numpy(unit(table)))
        values["word_accuracy"] = float((found.numpy() == ids[tests]).mean())
        for name, value in values.items():
            rows.append(row(f"decoding.layers.{name}", value, chance=by_luck[name], layer=layer, n=sequences))
    return Measured(rows)


def measure_position_rows(rows: Table, positions: int) -> Measured:
    """The probes of the rows of the last of so many `positions`, and the matrix `positions_cosine` of some of them.

    Dimensions in which no row moves are left out, of the tables beside them too.
    """
    if len(rows) < FEWEST:
        raise LeftOut(f"{len(rows)} positions; a probe needs {FEWEST}")
    rows = rows[:, moving(rows)]
    generator = np.random.default_rng([SEED, *rows.shape])
    others = {"shuffled": generator.permutation(rows), "sinusoid": sinusoids(len(rows), rows.shape[1] // 2 * 2)}
    random = [generator.standard_normal(rows.shape) for _ in range(TABLES)]
    found = []
    for name, probe in (("absolute_mae", absolute_error), ("order_accuracy", order_accuracy)):
        found.append(row(f"positions.{name}", probe(rows), chance=expected([probe(table) for table in random])))
        found += [row(f"positions.{name}_{other}", probe(table)) for other, table in others.items()]
    places = np.unique(np.linspace(0, len(rows) - 1, SHOWN).astype(int))
    some, first = unit(rows[places]).astype(np.float64), positions - len(rows)
    i, j = (each.ravel() for each in np.meshgrid(first + places, first + places, indexing="ij"))
    return Measured(found, {"positions_cosine": pd.DataFrame({"i": i, "j": j, "cosine": (some @ some.T).ravel()})})


def sinusoids(positions: int, width: int) -> Table:
    """tensor2tensor's layout: sines first, then cosines, of position / 10000^(m / (d / 2 - 1)), 0 <= m < d / 2."""
    turns = np.arange(positions)[:, None] * 10_000.0 ** -(np.arange(width // 2) / max(width // 2 - 1, 1))
    return np.concatenate([np.sin(turns), np.cos(turns)], axis=1)


def absolute_error(rows: Table) -> float:
    """The mean absolute error, in positions, of the position that ridge regression tells."""
    places = np.arange(len(rows), dtype=float)
    folds = KFold(FOLDS, shuffle=True, random_state=SEED)
    told = cross_val_predict(make_pipeline(StandardScaler(), RidgeCV(ALPHAS)), rows, places, cv=folds)
    return float(np.abs(told - places).mean())


def order_accuracy(rows: Table) -> float:
    """How often logistic regression tells which of two positions, neither of them seen before, comes first."""
    generator = np.random.default_rng([SEED, len(rows)])
    order = generator.permutation(len(rows))
    held_out = max(len(rows) // 5, 2)
    scaled = StandardScaler().fit_transform(rows)

    def pairs(places: Sample, count: int) -> tuple[Table, Sample]:
        """[p_i; p_j] of different positions, and whether i < j."""
        first = generator.integers(len(places), size=count)
        i, j = places[first], places[(first + generator.integers(1, len(places), size=count)) % len(places)]
        return np.concatenate([scaled[i], scaled[j]], axis=1).astype(np.float32), i < j

    test, train = pairs(order[:held_out], ORDERED // 5), pairs(order[held_out:], ORDERED - ORDERED // 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # separable pairs have no largest likelihood
        told = LogisticRegression(max_iter=100, tol=1e-3).fit(*train)
    return float(told.score(*test))
