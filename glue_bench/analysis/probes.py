"""Can words and positions be told from their sum, and from hidden states?

Shapes: v words, n positions, e width of the tables, t examples, s sequences, l places, d width. Of x = w_i + p_j, and x
after LayerNorm, for random i and j:

    position   ridge regression (e -> n, one-hot), on 80% of the word types; told for the other 20%
    word       nearest row, argmin_v |x - p_mean - w_v|; with the position known, argmin_v |x - p_j - w_v|
    collision  the smallest |w_i + p_j - w_i' - p_j'| of two sums with i != i', against the median over words of the
               distance to the nearest other word

Of the sum, chance is random positions, of which each has the norm of the one whose place it takes. Of hidden states of
real text, layer by layer, without [CLS] and the last [SEP], which always stand at the same places, the word is told by
ridge regression (d -> the word's row, e), then the row with the largest cosine. There, and after LayerNorm, chance is
1 / n and 1 / v, and of the mean absolute error of a position (n^2 - 1) / 3n, that of two independent positions: the
best constant guess errs by n / 4, but these probes name the most likely position.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.linear_model import Ridge
from torch import Tensor

from glue_bench.analysis.chance import SEED, Interval, Measured, Row, expected, expected_share, row
from glue_bench.analysis.hooks import InputSum, float64, moving
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.tables import unit

PAIRS, FEWER_PAIRS = (
    10_000,
    2_000,
)  # whose word is told: of the sum; of a draw, after the norm, position known
TESTS, STATES = (
    5_000,
    1_000,
)  # words and positions whose position is told; tokens of text whose word is told
PER_POSITION, TRAINED = 20, 0.8  # examples to train on; of the word types
SUMS = 20_000  # among which a collision is looked for
DRAWS = 5  # of random positions
AT_ONCE = 250
Rows = Float[Tensor, "t e"]
States = Float[np.ndarray, "t d"]
Sample = Int[np.ndarray, " t"]
Norm = Callable[[Tensor], Tensor]
PLAIN = torch.nn.Identity()  # the sum as it is


@torch.inference_mode()
def measure_decoding(subject: Subject) -> Measured:
    """Word, position and collisions of the sum; word and position after the norm, and of what stands beside the sum."""
    table, norm = subject.sum, subject.model.norm
    table.check()

    def accuracies(table: InputSum, norm: Norm, pairs: int, draw: int = 0) -> dict[str, float]:
        return {"word_accuracy": word_told(table, norm, pairs, draw), **position_told(table, norm)}

    drawn = [
        accuracies(with_random_positions(table, draw), PLAIN, FEWER_PAIRS, draw)
        for draw in range(DRAWS)
    ]
    draws = {name: [draw[name] for draw in drawn] for name in drawn[0]}
    by_draws = {
        "word_accuracy": expected_share(draws["word_accuracy"], FEWER_PAIRS, PAIRS),
        "position_accuracy": expected_share(draws["position_accuracy"], TESTS, TESTS),
        "position_mae": expected(draws["position_mae"]),
    }
    by_luck = _by_luck(len(table.positions), len(table.words))
    words_alone = replace(table, positions=torch.zeros_like(table.positions))
    decoded = {
        "sum": accuracies(table, PLAIN, PAIRS),
        "norm": accuracies(table, norm, FEWER_PAIRS),
        "random": {name: float(np.mean(values)) for name, values in draws.items()},
        "words_alone": position_told(words_alone, PLAIN),
    }
    rows = [
        row(f"decoding.{of}.{name}", value, chance=(by_draws if of == "sum" else by_luck)[name])
        for of, values in decoded.items()
        for name, value in values.items()
    ]
    known = word_told(table, PLAIN, FEWER_PAIRS, known=True)
    rows.append(
        row("decoding.word_accuracy_position_known", known, chance=by_luck["word_accuracy"])
    )
    return Measured([*rows, *collisions(table)])


def _by_luck(positions: int, words: int) -> dict[str, Interval]:
    """What guesses have of so many positions and words."""
    error = (positions * positions - 1) / (3 * positions)
    chances = {
        "word_accuracy": 1 / words,
        "position_accuracy": 1 / positions,
        "position_mae": error,
    }
    return {name: (value, value) for name, value in chances.items()}


def position_told(table: InputSum, norm: Norm) -> dict[str, float]:
    """Accuracy and mean absolute error of the position, of word types that the regression has not seen."""
    generator, n = np.random.default_rng(SEED), len(table.positions)
    types = generator.permutation(len(table.words))
    trained = int(TRAINED * len(types))

    def examples(chosen: Sample, count: int) -> tuple[States, Sample]:
        words = generator.choice(chosen, count)
        positions = generator.integers(n, size=count)
        return norm(_sums(table, words, positions)).cpu().numpy(), positions

    train, test = examples(types[:trained], PER_POSITION * n), examples(types[trained:], TESTS)
    return _by_ridge(*train, *test, n)


def _by_ridge(
    rows: States, places: Sample, tests: States, right: Sample, n: int
) -> dict[str, float]:
    """As `position_told`, by one-hot ridge regression in float32."""
    middle, scale = rows.mean(0), rows.std()
    ridge = Ridge(alpha=1.0).fit((rows - middle) / scale, np.eye(n, dtype=np.float32)[places])
    away = np.abs(ridge.predict((tests - middle) / scale).argmax(1) - right)
    return {"position_accuracy": float((away == 0).mean()), "position_mae": float(away.mean())}


def word_told(
    table: InputSum, norm: Norm, pairs: int, draw: int = 0, *, known: bool = False
) -> float:
    """How often the word whose row, with the mean position or the `known` one, is nearest is the right one."""
    generator = np.random.default_rng([SEED, pairs, draw])
    words = generator.integers(len(table.words), size=pairs)
    positions = generator.integers(len(table.positions), size=pairs)
    rows = norm(_sums(table, words, positions))
    if known:
        rows = rows - table.positions[positions]
    return float((nearest(rows, norm(table.words + table.mean)).cpu().numpy() == words).mean())


def nearest(
    rows: Rows, candidates: Rows, words: tuple[Sample, Sample] | None = None
) -> Int[Tensor, " t"]:
    """The index of the nearest candidate to each row: of the largest x . c - |c|^2 / 2.

    With the `words` of rows and of candidates, the nearest one of another word.
    """
    memory = rows.new_empty(min(AT_ONCE, len(rows)), len(candidates))
    half, indices = candidates.square().sum(1) / -2, list[Tensor]()
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        nearness = torch.addmm(half, some, candidates.mT, out=memory[: len(some)])
        if words:
            same = words[0][start : start + AT_ONCE, None] == words[1]
            nearness.masked_fill_(torch.from_numpy(same).to(rows.device), -torch.inf)
        indices.append(nearness.argmax(1))
    return torch.cat(indices)


def with_random_positions(table: InputSum, draw: int) -> InputSum:
    """Positions of random directions, among the dimensions in which the table's own move, and of their norms."""
    drawn = np.random.default_rng([SEED, draw]).standard_normal(table.positions.shape)
    drawn *= moving(float64(table.positions))
    rows = torch.from_numpy(drawn).to(table.positions)
    rows = rows * (table.positions.norm(dim=1) / rows.norm(dim=1))[:, None]
    return replace(table, positions=rows - rows.mean(0))


def collisions(table: InputSum) -> list[Row]:
    """The smallest distance of two sums of different words, and the median distance of a word to the nearest other."""
    generator = np.random.default_rng(SEED)
    words = generator.integers(len(table.words), size=SUMS)
    sums = _sums(table, words, generator.integers(len(table.positions), size=SUMS))
    sample = generator.choice(len(table.words), min(FEWER_PAIRS, len(table.words)), replace=False)
    near = (sums - sums[nearest(sums, sums, (words, words))]).norm(dim=1)
    others = nearest(table.words[sample], table.words, (sample, np.arange(len(table.words))))
    of_words = (table.words[sample] - table.words[others]).norm(dim=1)
    values = {
        "smallest": near.min(),
        "median": near.median(),
        "nearest_word_median": of_words.median(),
    }
    return [row(f"decoding.collisions.{name}", float(value)) for name, value in values.items()]


def _sums(table: InputSum, words: Sample, positions: Sample) -> Rows:
    return table.words[words] + table.positions[positions] + table.mean


def measure_decoding_layers(subject: Subject) -> Measured:
    """Position and word told from what enters the first block (0) and what each block leaves.

    Word types to train on (80%) and to test on are disjoint.
    """
    states, places = subject.deep[0], subject.ids.shape[1] - 2
    sequences, ids = len(states[0]), subject.ids[: len(states[0]), 1:-1].ravel()
    table = subject.model.variant.words.weight.detach().cpu().numpy()
    table = table - table.mean(0)
    types = np.random.default_rng(SEED).permutation(np.unique(ids))
    trained = np.isin(ids, types[: int(TRAINED * len(types))])  # tokens of the types to train on
    tests = np.flatnonzero(~trained)[:STATES]
    where = np.tile(np.arange(places), sequences)
    by_luck = _by_luck(places, len(table))
    rows = list[Row]()
    for layer, of_layer in enumerate(states):
        tokens = of_layer[:, 1:-1].reshape(len(ids), -1)
        values = _by_ridge(
            tokens[trained], where[trained], tokens[~trained], where[~trained], places
        )
        scale = tokens.std()
        ridge = Ridge(alpha=1.0).fit(tokens[trained] / scale, table[ids[trained]])
        predicted = nearest(
            torch.from_numpy(unit(ridge.predict(tokens[tests] / scale))),
            torch.from_numpy(unit(table)),
        )
        values["word_accuracy"] = float((predicted.numpy() == ids[tests]).mean())
        for name, value in values.items():
            rows.append(
                row(
                    f"decoding.layers.{name}", value, chance=by_luck[name], layer=layer, n=sequences
                )
            )
    return Measured(rows)
