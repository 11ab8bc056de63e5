"""Intervals and bands cover what they say; of fresh weights each measure lies in its band in 90 to 99% of draws."""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from glue_bench.analysis import positions, probes, tables, terms
from glue_bench.analysis.analyse import parts_of
from glue_bench.analysis.chance import Row, Sums, expected, expected_share, middle
from glue_bench.analysis.hooks import input_sum
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh
from glue_bench.testing import encoder_config

SIMULATIONS = 200
SIZES = {"vocab_size": 400, "max_position_embeddings": 40, "hidden_size": 48, "pad_token_id": None}


def test_bands_cover_what_they_say():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(8_000):
        low, high = expected(generator.standard_normal(3))
        inside += low < generator.standard_normal() < high
    assert 0.943 < inside / 8_000 < 0.957
    low, high = middle(generator.standard_normal(5_000))
    assert (low, high) == (pytest.approx(-1.96, abs=0.1), pytest.approx(1.96, abs=0.1))


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95, 0.99, 1.0])
@pytest.mark.parametrize("sequences", [8, 16])
def test_intervals_of_few_sequences_cover_what_they_say(share, sequences):
    generator, inside = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = Sums(generator.binomial(4, share, sequences), np.full(sequences, 4.0)).share_interval
        assert 0 <= low <= high <= 1
        inside += low <= share <= high
    assert inside / 400 > 0.93
    rises = [Sums(generator.normal(1, 1, sequences), np.ones(sequences)).interval for _ in range(1_000)]
    assert 0.935 < np.mean([low < 1 < high for low, high in rises]) < 0.965


def test_an_interval_needs_two_sequences():
    one = Sums(np.array([0.0, 3.0]), np.array([0.0, 4.0]))
    assert np.isnan([one.standard_error, *one.interval, *one.share_interval]).all()
    assert Sums(np.zeros(8), np.full(8, 4.0)).share_interval == (0, pytest.approx(1 - 0.025 ** (1 / 8)))
    assert Sums(np.full(8, 2.0), np.full(8, 4.0)).share_interval == (0.5, 0.5)  # ties, as without positions


def test_a_standard_error_is_that_of_a_ratio():
    """Of sequences of several sizes: the spread of the ratio itself when sequences are drawn anew."""
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 9, size=400).astype(float)
    sums = counts * generator.normal(2, 0.5, size=400) + generator.normal(size=400)
    drawn = generator.integers(400, size=(2000, 400))
    ratios = sums[drawn].sum(1) / counts[drawn].sum(1)
    assert Sums(sums, counts).standard_error == pytest.approx(ratios.std(), rel=0.06)


def test_the_band_of_a_share_leaves_room_for_what_a_sample_may_miss():
    """Both samples have no miss or few: by the exact test of two shares, 5 misses to none are no finding, 8 are."""
    low, high = expected_share([1.0] * 5, trials=2_000, tried=10_000)
    assert (1 - 8 / 10_000) < low <= (1 - 5 / 10_000)
    assert high == 1
    assert expected_share([0.0] * 5, trials=2_000, tried=10_000) == pytest.approx((1 - high, 1 - low))
    generator, inside = np.random.default_rng(0), 0
    for _ in range(200):
        draws, value = generator.binomial(400, 0.995, 5) / 400, generator.binomial(2_000, 0.995) / 2_000
        low, high = expected_share(draws, trials=400, tried=2_000)
        inside += low <= value <= high
    assert inside / 200 > 0.94


# Of fresh weights


@torch.no_grad()
def of_fresh_weights(seed: int) -> Iterator[Row]:
    model = fresh(EncoderModel, encoder_config("add", **SIZES), seed).eval()
    ids = torch.randint(400, (16, 40), generator=torch.Generator().manual_seed(seed))
    subject = SimpleNamespace(model=model, sum=input_sum(model, 40), tokens=ids)
    for room, names in OF_TABLES.items():
        for name in names:
            yield from getattr(room, f"measure_{name}")(subject).rows
    yield from (row for row in terms.measure_terms(subject).rows if row.measure in WITH_TEXT)
    yield from parts_of(np.random.default_rng(seed).standard_normal((16, 20, 24)))


OF_TABLES = {
    tables: ("subspaces", "tables", "dimensions", "correlation"),
    positions: ("position_rows", "position_scores"),
    probes: ("decoding",),
}
WITH_TEXT = {"terms.mixed", "terms.mixed_to_words", *(f"terms.share.{term}" for term in terms.NINE)}


@pytest.mark.slow
def test_bands_hold_what_chance_gives(monkeypatch):
    for name, small in {"PAIRS": 400, "FEWER": 400, "TESTS": 400, "SUMS": 200}.items():
        monkeypatch.setattr(f"glue_bench.analysis.probes.{name}", small)
    monkeypatch.setattr("glue_bench.analysis.positions.ORDERED", 1_000)
    monkeypatch.setattr("glue_bench.analysis.tables.PERMUTATIONS", 1_000)
    found: dict[str, list[bool]] = {}
    with threadpool_limits(1):  # of matrices this small, several threads spend most of the time waiting for each other
        for seed in range(SIMULATIONS):
            for room in ("terms", "positions", "analyse", "probes", "tables"):
                monkeypatch.setattr(f"glue_bench.analysis.{room}.SEED", 1_000 + seed)  # baselines are drawn anew, too
            for one in of_fresh_weights(seed):
                if one.chance_low < one.chance_high:
                    found.setdefault(one.measure, []).append(one.chance_low <= one.value <= one.chance_high)
    inside = {name: float(np.mean(each)) for name, each in found.items()}
    assert inside.keys() > WITH_TEXT
    # A band of small counts errs on the wide side; subspaces whose dimensions together exceed the width always meet.
    widest = {"decoding.sum.word_accuracy": 1.0, "subspaces.angles.median": 1.0}
    assert all(0.9 <= share <= widest.get(name, 0.99) for name, share in inside.items()), inside
