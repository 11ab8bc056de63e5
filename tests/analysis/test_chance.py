"""Intervals and bands cover what they say; of fresh weights each measure lies in its band in 90 to 99% of draws."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from glue_bench.analysis.analyse import parts_of
from glue_bench.analysis.chance import Row, Sums, expected, expected_share, middle, row
from glue_bench.analysis.hooks import numpy
from glue_bench.analysis.positions import measure_position_scores, position_heads
from glue_bench.analysis.probes import measure_decoding, measure_position_rows
from glue_bench.analysis.score_terms import mixed_to_words
from glue_bench.analysis.tables import (
    input_sum,
    measure_correlation,
    measure_dimensions,
    measure_subspaces,
    measure_tables,
)
from glue_bench.analysis.terms import DRAWS, NINE, head_shares, turned
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh
from glue_bench.testing import encoder_config

SIMULATIONS = 200
WORDS, POSITIONS, WIDTH = 400, 40, 48


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


def start(seed: int) -> EncoderModel:
    sizes = {"vocab_size": WORDS, "max_position_embeddings": POSITIONS, "hidden_size": WIDTH, "pad_token_id": None}
    return fresh(EncoderModel, encoder_config("add", **sizes), seed).eval()


def of_tables(seed: int) -> Iterator[Row]:
    table = input_sum(start(seed), POSITIONS)
    for measure in (measure_subspaces, measure_tables, measure_dimensions, measure_correlation):
        yield from measure(table).rows


def of_positions(seed: int) -> Iterator[Row]:
    model = start(seed)
    table = input_sum(model, POSITIONS)
    yield from measure_position_rows(numpy(table.positions), POSITIONS).rows
    yield from (one for one in measure_position_scores(*position_heads(model, table)).rows if one.head is None)
    yield from measure_decoding(table, model.norm).rows


@torch.no_grad()
def of_text(seed: int) -> Iterator[Row]:
    model = start(seed)
    table, generator = input_sum(model, POSITIONS), torch.Generator().manual_seed(seed)
    ids = torch.randint(WORDS, (16, POSITIONS), generator=generator)
    by_head = np.array([head_shares(model, turned(table, draw), ids) for draw in range(DRAWS)])
    draws, found = by_head.mean(1), head_shares(model, table, ids)
    for term, value in enumerate(found.mean(0)):
        yield row(f"share_{term}", value, chance=expected(draws[:, term]))
    chance = expected([mixed_to_words(NINE, draw) for draw in by_head])
    yield row("mixed_to_words", mixed_to_words(NINE, found), chance=chance)
    yield from parts_of(np.random.default_rng(seed).standard_normal((16, 20, 24)))


@pytest.mark.slow
@pytest.mark.parametrize("simulated", [of_tables, of_positions, of_text])
def test_bands_hold_what_chance_gives(simulated: Callable[[int], Iterator[Row]], monkeypatch):
    for name, small in {"PAIRS": 400, "FEWER": 400, "TESTS": 400, "SUMS": 200, "ORDERED": 1_000}.items():
        monkeypatch.setattr(f"glue_bench.analysis.probes.{name}", small)
    monkeypatch.setattr("glue_bench.analysis.tables.PERMUTATIONS", 1_000)
    found: dict[str, list[bool]] = {}
    with threadpool_limits(1):  # of matrices this small, several threads spend most of the time waiting for each other
        for seed in range(SIMULATIONS):
            for room in ("terms", "positions", "analyse", "probes", "tables"):
                monkeypatch.setattr(f"glue_bench.analysis.{room}.SEED", 1_000 + seed)  # baselines are drawn anew, too
            for one in simulated(seed):
                if one.chance_low < one.chance_high:
                    found.setdefault(one.measure, []).append(one.chance_low <= one.value <= one.chance_high)
    inside = {name: float(np.mean(each)) for name, each in found.items()}
    assert inside
    # A band of small counts errs on the wide side; subspaces whose dimensions together exceed the width always meet.
    widest = {"decoding.sum.word_accuracy": 1.0, "subspaces.angles.median": 1.0}
    assert all(0.9 <= share <= widest.get(name, 0.99) for name, share in inside.items()), inside
