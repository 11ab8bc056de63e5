"""Can words and positions be predicted from their sum, and from hidden states?

Shapes: v words, n positions, e width of the tables, t examples, s sequences, l places, d width.
From x = w_i + p_j, and from x after LayerNorm, for random i and j:

    position   ridge regression (e -> n, one-hot), on 80% of the word types; tested on the other 20%
    word       nearest row, argmin_v |x - p_mean - w_v|; if p_j is known, argmin_v |x - p_j - w_v|
    collision  the smallest |w_i + p_j - w_i' - p_j'| of two sums with i != i', against the median
               over words of the distance to the nearest other word

For the sum, chance is the value with random positions, each with the norm of the position that it
replaces.

Positions and words are also predicted from hidden states of real text, layer by layer. [CLS] and
the last [SEP] are left out, because they always stand at the same places. Ridge regression predicts
the word's row (d -> e), and the word is the row with the largest cosine to it. For hidden states,
and after LayerNorm, chance is 1 / n for positions and 1 / v for words. For the mean absolute error
of a position it is (n^2 - 1) / 3n, the error between two independent positions. (The best constant
guess errs by n / 4, but these probes name the most likely position.)
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import Ridge
from torch import Tensor

from glue_bench.analysis.chance import (
    Interval,
    Measured,
    Row,
    prediction_band,
    row,
    seeded_generator,
    share_band,
)
from glue_bench.analysis.hooks import InputSum, to_float64, varying_dimensions
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.subspaces import unit

WORD_PAIRS = 10_000  # pairs of the sum whose word is predicted
FEWER_WORD_PAIRS = 2_000  # pairs of a draw by chance, after the norm, and with the position known
TEST_PAIRS = 5_000  # pairs whose position is predicted
TEST_TOKENS = 1_000  # tokens of text whose word is predicted
PAIRS_PER_POSITION = 20  # training pairs of each position
TRAIN_SHARE = 0.8  # the share of word types to train on
SEARCHED_SUMS = 20_000  # a collision is looked for among so many sums
POSITION_DRAWS = 5  # draws of random positions
PROBE_ROWS_AT_ONCE = 250
Rows = Float[Tensor, "t e"]
States = Float[np.ndarray, "t d"]
Sample = Int[np.ndarray, " t"]
Norm = Callable[[Tensor], Tensor]
NO_NORM = torch.nn.Identity()  # the sum as it is


@torch.inference_mode()
def measure_decoding(subject: Subject) -> Measured:
    """Predict word and position from the sum, and measure its collisions.

    Words and positions are predicted from the sum itself, from the sum after LayerNorm, from the
    sum with random positions, and from words alone.
    """
    table = subject.sum
    norm = subject.model.norm
    table.check_positions()

    draws: dict[str, list[float]] = {}
    for draw in range(POSITION_DRAWS):
        random = with_random_positions(table, draw)
        for name, value in _accuracies(random, NO_NORM, FEWER_WORD_PAIRS, draw).items():
            draws.setdefault(name, []).append(value)

    band_of_draws = {
        "word_accuracy": share_band(draws["word_accuracy"], FEWER_WORD_PAIRS, WORD_PAIRS),
        "position_accuracy": share_band(draws["position_accuracy"], TEST_PAIRS, TEST_PAIRS),
        "position_mae": prediction_band(draws["position_mae"]),
    }
    band_of_guesses = _band_of_guesses(len(table.positions), len(table.words))

    words_alone = replace(table, positions=torch.zeros_like(table.positions))
    decoded = {
        "sum": _accuracies(table, NO_NORM, WORD_PAIRS),
        "norm": _accuracies(table, norm, FEWER_WORD_PAIRS),
        "random": {name: float(np.mean(values)) for name, values in draws.items()},
        "words_alone": predict_positions(words_alone, NO_NORM),
    }

    rows = []
    for source, values in decoded.items():
        bands = band_of_draws if source == "sum" else band_of_guesses
        for name, value in values.items():
            rows.append(row(f"decoding.{source}.{name}", value, chance=bands[name]))

    accuracy = word_accuracy(table, NO_NORM, FEWER_WORD_PAIRS, position_is_known=True)
    chance = band_of_guesses["word_accuracy"]
    of_known = row("decoding.word_accuracy_position_known", accuracy, chance=chance)
    rows.append(of_known)
    rows += collisions(table)
    return Measured(rows)


def _accuracies(table: InputSum, norm: Norm, pairs: int, draw: int = 0) -> dict[str, float]:
    accuracy = word_accuracy(table, norm, pairs, draw)
    return {"word_accuracy": accuracy, **predict_positions(table, norm)}


def _band_of_guesses(positions: int, words: int) -> dict[str, Interval]:
    """Return the scores of random guesses among these numbers of positions and words."""
    error = (positions * positions - 1) / (3 * positions)
    return {
        "word_accuracy": (1 / words, 1 / words),
        "position_accuracy": (1 / positions, 1 / positions),
        "position_mae": (error, error),
    }


def predict_positions(table: InputSum, norm: Norm) -> dict[str, float]:
    """Return accuracy and mean absolute error of positions predicted for unseen word types."""
    generator = seeded_generator()
    n = len(table.positions)
    vocabulary = len(table.words)
    types = generator.permutation(vocabulary)
    train_types = int(TRAIN_SHARE * vocabulary)

    def draw_pairs(chosen: Sample, count: int) -> tuple[States, Sample]:
        words = generator.choice(chosen, count)
        positions = generator.integers(n, size=count)
        return norm(_sums(table, words, positions)).cpu().numpy(), positions

    train_rows, train_positions = draw_pairs(types[:train_types], PAIRS_PER_POSITION * n)
    test_rows, test_positions = draw_pairs(types[train_types:], TEST_PAIRS)
    return _ridge_scores(train_rows, train_positions, test_rows, test_positions, n)


def _ridge_scores(
    train_rows: States, train_positions: Sample, test_rows: States, test_positions: Sample, n: int
) -> dict[str, float]:
    """Return accuracy and mean absolute error of one-hot ridge regression, in float32."""
    mean = train_rows.mean(0)
    scale = train_rows.std()
    targets = np.eye(n, dtype=np.float32)[train_positions]
    ridge = Ridge(alpha=1.0).fit((train_rows - mean) / scale, targets)
    scores = ridge.predict((test_rows - mean) / scale)
    predicted = scores.argmax(1)
    differences = predicted - test_positions
    errors = np.abs(differences)
    is_right = errors == 0
    return {"position_accuracy": float(is_right.mean()), "position_mae": float(errors.mean())}


def word_accuracy(
    table: InputSum, norm: Norm, pairs: int, draw: int = 0, *, position_is_known: bool = False
) -> float:
    """Return how often the nearest word row is the right one.

    Args:
        table: The input as a sum.
        norm: The function that is applied to the sum, such as LayerNorm.
        pairs: The number of random pairs of a word and a position.
        draw: Draws with other numbers have other pairs.
        position_is_known: Whether the pair's own position is subtracted, and not the mean position.
    """
    generator = seeded_generator(pairs, draw)
    words = generator.integers(len(table.words), size=pairs)
    positions = generator.integers(len(table.positions), size=pairs)
    sums = _sums(table, words, positions)
    rows = norm(sums)
    if position_is_known:
        rows = rows - table.positions[positions]
    predicted = nearest(rows, norm(table.words + table.mean))
    predicted_words = predicted.cpu().numpy()
    is_right = predicted_words == words
    return float(is_right.mean())


def nearest(
    rows: Rows, candidates: Rows, words: tuple[Sample, Sample] | None = None
) -> Int[Tensor, " t"]:
    """Return for each row x the index of the nearest candidate c: max of x . c - |c|^2 / 2.

    Args:
        rows: The rows.
        candidates: The rows to choose from, (v, e).
        words: The words of the rows and of the candidates. If they are given, the nearest candidate
            of another word is returned.
    """
    memory = rows.new_empty(min(PROBE_ROWS_AT_ONCE, len(rows)), len(candidates))
    half = candidates.square().sum(1) / -2
    indices = []
    for start in range(0, len(rows), PROBE_ROWS_AT_ONCE):
        batch = rows[start : start + PROBE_ROWS_AT_ONCE]
        nearness = torch.addmm(half, batch, candidates.mT, out=memory[: len(batch)])
        if words:
            same = words[0][start : start + PROBE_ROWS_AT_ONCE, None] == words[1]
            nearness.masked_fill_(torch.from_numpy(same).to(rows.device), -torch.inf)
        indices.append(nearness.argmax(1))
    return torch.cat(indices)


def with_random_positions(table: InputSum, draw: int) -> InputSum:
    """Return the table with positions of random directions, and with the norms of its positions.

    The random positions move in the dimensions in which the table's positions move.
    """
    directions = seeded_generator(draw).standard_normal(table.positions.shape)
    directions *= varying_dimensions(to_float64(table.positions))
    rows = torch.from_numpy(directions).to(table.positions)
    rows = rows * (table.positions.norm(dim=1) / rows.norm(dim=1))[:, None]
    return replace(table, positions=rows - rows.mean(0))


def collisions(table: InputSum) -> list[Row]:
    """Measure how near two sums of different words come, and how near two words are."""
    generator = seeded_generator()
    words = generator.integers(len(table.words), size=SEARCHED_SUMS)
    sums = _sums(table, words, generator.integers(len(table.positions), size=SEARCHED_SUMS))
    count = min(FEWER_WORD_PAIRS, len(table.words))
    sample = generator.choice(len(table.words), count, replace=False)
    nearest_sums = sums[nearest(sums, sums, (words, words))]
    sum_distances = (sums - nearest_sums).norm(dim=1)
    all_words = np.arange(len(table.words))
    nearest_words = nearest(table.words[sample], table.words, (sample, all_words))
    word_distances = (table.words[sample] - table.words[nearest_words]).norm(dim=1)
    return [
        row("decoding.collisions.smallest", float(sum_distances.min())),
        row("decoding.collisions.median", float(sum_distances.median())),
        row("decoding.collisions.nearest_word_median", float(word_distances.median())),
    ]


def _sums(table: InputSum, words: Sample, positions: Sample) -> Rows:
    return table.words[words] + table.positions[positions] + table.mean


def measure_decoding_layers(subject: Subject) -> Measured:
    """Predict position and word from the input of the first block (0) and each block's output.

    Word types to train on (80%) and to test on are disjoint.
    """
    layers = subject.deep[0]
    sequences = len(layers[0])
    places = subject.ids.shape[1] - 2
    ids = subject.ids[:sequences, 1:-1].ravel()

    words = subject.model.variant.words.weight.detach().cpu().numpy()
    words = words - words.mean(0)
    types = seeded_generator().permutation(np.unique(ids))
    is_trained = np.isin(ids, types[: int(TRAIN_SHARE * len(types))])  # for each token
    positions = np.tile(np.arange(places), sequences)
    bands = _band_of_guesses(places, len(words))

    rows = []
    for layer, states in enumerate(layers):
        tokens = states[:, 1:-1].reshape(len(ids), -1)
        values = _ridge_scores(
            tokens[is_trained],
            positions[is_trained],
            tokens[~is_trained],
            positions[~is_trained],
            places,
        )
        values["word_accuracy"] = _token_accuracy(tokens, ids, is_trained, words)
        for name, value in values.items():
            measure = f"decoding.layers.{name}"
            rows.append(row(measure, value, chance=bands[name], layer=layer, n=sequences))
    return Measured(rows)


def _token_accuracy(
    tokens: States, ids: Sample, is_trained: Bool[np.ndarray, " t"], words: Float[np.ndarray, "v e"]
) -> float:
    """Return how often ridge regression of word rows on states is nearest to the right word.

    Args:
        tokens: The hidden state of each token.
        ids: The word of each token.
        is_trained: Whether the token is to train on.
        words: The centred table of words.
    """
    tests = np.flatnonzero(~is_trained)[:TEST_TOKENS]
    scale = tokens.std()
    ridge = Ridge(alpha=1.0).fit(tokens[is_trained] / scale, words[ids[is_trained]])
    directions = torch.from_numpy(unit(ridge.predict(tokens[tests] / scale)))
    predicted = nearest(directions, torch.from_numpy(unit(words))).numpy()
    return float((predicted == ids[tests]).mean())
