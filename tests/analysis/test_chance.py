"""Intervals and bands cover what they state.

With fresh weights each measure lies in its band in 90 to 99% of draws.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from glue_bench.analysis import chance, positions, probes, subspaces, terms
from glue_bench.analysis.chance import Row, Sums, middle_band, prediction_band, share_band
from glue_bench.analysis.hooks import input_sum
from glue_bench.analysis.layers import parts_of
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh
from glue_bench.testing import encoder_config

SIMULATIONS = 200
SIZES = {"vocab_size": 400, "max_position_embeddings": 40, "hidden_size": 48, "pad_token_id": None}
Trial = Callable[[np.random.Generator], bool]
"""Draws a sample, and returns whether its interval or band contains the right value."""


def is_inside(bounds: tuple[float, float], value: float) -> bool:
    return bounds[0] <= value <= bounds[1]


def interval_holds_the_mean(draw: np.random.Generator) -> bool:
    sums = Sums(draw.normal(1, 1, 8), np.ones(8))
    return is_inside(sums.interval, 1)


def band_holds_another_draw(draw: np.random.Generator) -> bool:
    band = prediction_band(draw.standard_normal(3))
    return is_inside(band, draw.standard_normal())


def band_holds_another_share(draw: np.random.Generator) -> bool:
    shares = draw.binomial(400, 0.995, 5) / 400
    band = share_band(shares, trials=400, examples=2_000)
    share = draw.binomial(2_000, 0.995) / 2_000
    return is_inside(band, share)


@pytest.mark.parametrize(
    ("trial", "times", "low", "high"),
    [
        (band_holds_another_draw, 8_000, 0.943, 0.957),
        (interval_holds_the_mean, 1_000, 0.935, 0.965),
        (band_holds_another_share, 200, 0.94, 1),
    ],
)
def test_intervals_and_bands_cover_as_much_as_they_state(trial: Trial, times, low, high):
    generator = np.random.default_rng(0)
    coverage = np.mean([trial(generator) for _ in range(times)])
    assert low < coverage <= high


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95, 0.99, 1.0])
@pytest.mark.parametrize("sequences", [8, 16])
def test_the_interval_of_a_share_covers_it(share, sequences):
    """There are few sequences with four trials each."""
    trials = np.full(sequences, 4.0)
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        drawn = generator.binomial(4, share, sequences)
        sums = Sums(drawn, trials)
        hits += is_inside(sums.share_interval, share)
    assert 0.93 < hits / 400 <= 1


def test_an_interval_needs_two_sequences():
    sums = Sums(np.array([0.0, 3.0]), np.array([0.0, 4.0]))
    assert np.isnan(sums.standard_error)
    assert np.isnan(sums.interval).all()
    assert np.isnan(sums.share_interval).all()


def test_without_a_hit_the_interval_counts_one_trial_for_each_sequence():
    low, high = Sums(np.zeros(8), np.full(8, 4.0)).share_interval
    assert low == 0
    expected = 1 - 0.025 ** (1 / 8)
    assert high == pytest.approx(expected)


def test_ties_alone_have_no_spread():
    """An encoder without positions has ties alone."""
    hits = np.full(8, 2.0)
    sums = Sums(hits, 2 * hits)
    assert sums.share_interval == (0.5, 0.5)


def test_the_standard_error_is_the_spread_of_a_ratio():
    """It is the spread of the ratio when sequences of several sizes are drawn anew."""
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 9, size=400).astype(float)
    of_sequences = generator.normal(2, 0.5, size=400)
    noise = generator.normal(size=400)
    sums = counts * of_sequences + noise
    chosen = generator.integers(400, size=(2000, 400))
    ratios = sums[chosen].sum(1) / counts[chosen].sum(1)
    standard_error = Sums(sums, counts).standard_error
    assert standard_error == pytest.approx(ratios.std(), rel=0.06)


def test_the_middle_of_many_draws():
    draws = np.linspace(0, 1, 1001)
    assert middle_band(draws) == pytest.approx((0.025, 0.975))


def test_a_share_without_a_miss_leaves_room():
    """By the exact test 5 misses are no finding."""
    low, high = share_band([1.0] * 5, trials=2_000, examples=10_000)
    assert 1 - 8 / 10_000 < low <= 1 - 5 / 10_000
    assert high == 1
    mirrored = share_band([0.0] * 5, trials=2_000, examples=10_000)
    assert mirrored == pytest.approx((1 - high, 1 - low))


@torch.no_grad()
def rows_of_fresh_weights(seed: int) -> Iterator[Row]:
    """Measure an encoder of fresh weights on random tokens."""
    config = encoder_config("add", **SIZES)
    model = fresh(EncoderModel, config, seed).eval()
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(400, (16, 40), generator=generator)
    subject = SimpleNamespace(model=model, sum=input_sum(model, 40), tokens=ids)
    for measure in MEASURES_OF_TABLES:
        yield from measure(subject).rows
    for row in terms.measure_terms(subject).rows:
        if row.measure in MEASURES_OF_TEXT:
            yield row
    states = np.random.default_rng(seed).standard_normal((16, 20, 24))
    yield from parts_of(states)


MEASURES_OF_TABLES = [
    subspaces.measure_subspaces,
    subspaces.measure_tables,
    subspaces.measure_dimensions,
    subspaces.measure_correlation,
    positions.measure_position_rows,
    positions.measure_position_scores,
    probes.measure_decoding,
]
MEASURES_OF_TEXT = {
    "terms.mixed",
    "terms.mixed_to_words",
    *(f"terms.share.{term}" for term in terms.NINE_TERMS),
}


@pytest.fixture
def small_sizes(monkeypatch):
    """Few pairs and permutations."""
    for name in ("WORD_PAIRS", "FEWER_WORD_PAIRS", "TEST_PAIRS"):
        monkeypatch.setattr(probes, name, 400)
    monkeypatch.setattr(probes, "SEARCHED_SUMS", 200)
    monkeypatch.setattr(positions, "ORDER_PAIRS", 1_000)
    monkeypatch.setattr(subspaces, "PERMUTATIONS", 1_000)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sizes")
def test_bands_hold_the_values_by_chance(monkeypatch):
    outcomes: dict[str, list[bool]] = {}
    # With such small matrices, several threads mostly wait for each other.
    with threadpool_limits(1):
        for seed in range(SIMULATIONS):
            for module in (chance, positions, terms):
                # Baselines are drawn anew, too.
                monkeypatch.setattr(module, "CHANCE_SEED", 1_000 + seed)
            for row in rows_of_fresh_weights(seed):
                if row.chance_low < row.chance_high:
                    is_in_band = row.chance_low <= row.value <= row.chance_high
                    outcomes.setdefault(row.measure, []).append(is_in_band)
    assert outcomes.keys() > MEASURES_OF_TEXT
    # A band of small counts errs on the wide side; subspaces whose dimensions together exceed the
    # width always meet.
    widest = {"decoding.sum.word_accuracy": 1.0, "subspaces.angles.median": 1.0}
    for name, in_band in outcomes.items():
        assert 0.9 <= np.mean(in_band) <= widest.get(name, 0.99), name
