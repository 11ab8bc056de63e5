"""Intervals and bands cover what they say; of fresh weights each measure lies in its band in 90 to 99% of draws."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from glue_bench.analysis import positions, probes, subspaces, terms
from glue_bench.analysis.chance import Row, Sums, middle_band, prediction_band, share_band
from glue_bench.analysis.hooks import input_sum
from glue_bench.analysis.layers import parts_of
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh
from glue_bench.testing import encoder_config

SIMULATIONS = 200
SIZES = {"vocab_size": 400, "max_position_embeddings": 40, "hidden_size": 48, "pad_token_id": None}


def inside(bounds: tuple[float, float], value: float) -> bool:
    return bounds[0] <= value <= bounds[1]


def shares(share: float, sequences: int) -> Callable[[np.random.Generator], bool]:
    """Whether the interval of a share holds it, of few sequences with four trials each."""
    trials = np.full(sequences, 4.0)
    return lambda draw: inside(
        Sums(draw.binomial(4, share, sequences), trials).share_interval, share
    )


def one_more(draw: np.random.Generator) -> bool:
    band = share_band(draw.binomial(400, 0.995, 5) / 400, trials=400, examples=2_000)
    return inside(band, draw.binomial(2_000, 0.995) / 2_000)


COVERAGE = {
    "prediction_band": (
        lambda draw: inside(prediction_band(draw.standard_normal(3)), draw.standard_normal()),
        8_000,
        0.943,
        0.957,
    ),
    "interval": (
        lambda draw: inside(Sums(draw.normal(1, 1, 8), np.ones(8)).interval, 1),
        1_000,
        0.935,
        0.965,
    ),
    **{
        f"{share}, {n}": (shares(share, n), 400, 0.93, 1)
        for share in (0.5, 0.8, 0.95, 0.99, 1.0)
        for n in (8, 16)
    },
    "share_band": (one_more, 200, 0.94, 1),
}


@pytest.mark.parametrize("name", COVERAGE)
def test_intervals_and_bands_cover_what_they_say(name):
    covers, times, low, high = COVERAGE[name]
    generator = np.random.default_rng(0)
    assert low < np.mean([covers(generator) for _ in range(times)]) <= high


def test_an_interval_needs_two_sequences():
    one = Sums(np.array([0.0, 3.0]), np.array([0.0, 4.0]))
    assert np.isnan([one.standard_error, *one.interval, *one.share_interval]).all()
    assert Sums(np.zeros(8), np.full(8, 4.0)).share_interval == (
        0,
        pytest.approx(1 - 0.025 ** (1 / 8)),
    )
    assert Sums(np.full(8, 2.0), np.full(8, 4.0)).share_interval == (
        0.5,
        0.5,
    )  # ties, as without positions


def test_a_standard_error_is_that_of_a_ratio():
    """Of sequences of several sizes: the spread of the ratio itself when sequences are drawn anew."""
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 9, size=400).astype(float)
    sums = counts * generator.normal(2, 0.5, size=400) + generator.normal(size=400)
    drawn = generator.integers(400, size=(2000, 400))
    ratios = sums[drawn].sum(1) / counts[drawn].sum(1)
    assert Sums(sums, counts).standard_error == pytest.approx(ratios.std(), rel=0.06)


def test_bands_of_samples():
    """Many draws have their own middle. A share of no miss leaves room: by the exact test 5 misses are no finding."""
    assert middle_band(np.linspace(0, 1, 1001)) == pytest.approx((0.025, 0.975))
    low, high = share_band([1.0] * 5, trials=2_000, examples=10_000)
    assert (1 - 8 / 10_000) < low <= (1 - 5 / 10_000) < high == 1
    assert share_band([0.0] * 5, trials=2_000, examples=10_000) == pytest.approx(
        (1 - high, 1 - low)
    )


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
    subspaces: ("subspaces", "tables", "dimensions", "correlation"),
    positions: ("position_rows", "position_scores"),
    probes: ("decoding",),
}
WITH_TEXT = {"terms.mixed", "terms.mixed_to_words", *(f"terms.share.{term}" for term in terms.NINE)}


@pytest.mark.slow
def test_bands_hold_what_chance_gives(monkeypatch):
    for name, small in {
        "WORD_PAIRS": 400,
        "FEWER_WORD_PAIRS": 400,
        "TEST_PAIRS": 400,
        "SUMS": 200,
    }.items():
        monkeypatch.setattr(f"glue_bench.analysis.probes.{name}", small)
    monkeypatch.setattr("glue_bench.analysis.positions.ORDER_PAIRS", 1_000)
    monkeypatch.setattr("glue_bench.analysis.subspaces.PERMUTATIONS", 1_000)
    found: dict[str, list[bool]] = {}
    with threadpool_limits(
        1
    ):  # of matrices this small, several threads spend most of the time waiting for each other
        for seed in range(SIMULATIONS):
            for room in ("terms", "positions", "layers", "probes", "subspaces"):
                monkeypatch.setattr(
                    f"glue_bench.analysis.{room}.SEED", 1_000 + seed
                )  # baselines are drawn anew, too
            for one in of_fresh_weights(seed):
                if one.chance_low < one.chance_high:
                    found.setdefault(one.measure, []).append(
                        one.chance_low <= one.value <= one.chance_high
                    )
    inside = {name: float(np.mean(each)) for name, each in found.items()}
    assert inside.keys() > WITH_TEXT
    # A band of small counts errs on the wide side; subspaces whose dimensions together exceed the width always meet.
    widest = {"decoding.sum.word_accuracy": 1.0, "subspaces.angles.median": 1.0}
    assert all(0.9 <= share <= widest.get(name, 0.99) for name, share in inside.items()), inside
