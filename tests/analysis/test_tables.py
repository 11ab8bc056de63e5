"""Measures of the tables of words and positions: by hand, planted structure, and the seed's printed sinusoids."""

import numpy as np
import pytest
import torch

from glue_bench.analysis.attention import left_minus_right, within
from glue_bench.analysis.decoding import (
    collisions,
    decoded,
    measure_decoding,
    nearest,
    plain,
    position_told,
    with_random_positions,
    word_told,
)
from glue_bench.analysis.dimensions import correlation, measure_correlation, measure_dimensions, share_of_variance
from glue_bench.analysis.input_sum import InputSum
from glue_bench.analysis.layers import parts_of, share
from glue_bench.analysis.measured import (
    LeftOut,
    confidence,
    expected,
    expected_share,
    middle,
    ratio_interval,
    share_interval,
)
from glue_bench.analysis.position_rows import heads, rows
from glue_bench.analysis.position_scores import locality, symmetric, toeplitz
from glue_bench.analysis.positions import absolute_error, cosines, measure_positions, order_accuracy
from glue_bench.analysis.subspaces import measure_subspaces, measure_tables, participation_ratio, subspaces
from glue_bench.analysis.sums import Sums
from glue_bench.model.encoder import EncoderModel
from glue_bench.testing import POSITIONS, encoder_config, random_model

WORDS, PLACES, WIDTH = 400, 40, 24


def centred(table: np.ndarray) -> np.ndarray:
    return table - table.mean(0)


def drawn(rows: int, dimensions: slice = slice(None), scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal rows in some of the dimensions, zeros in the others."""
    table = np.zeros((rows, WIDTH))
    table[:, dimensions] = scale * np.random.default_rng(seed).standard_normal((rows, WIDTH))[:, dimensions]
    return centred(table)


def summed(words: np.ndarray, positions: np.ndarray) -> InputSum:
    return InputSum(*(torch.from_numpy(part).float() for part in (words, positions, np.zeros(WIDTH))))


# Subspaces


def test_the_overlap_by_hand():
    words, positions = drawn(WORDS), drawn(PLACES, seed=1)
    numbers = subspaces(words, positions).numbers["subspaces"]
    first, second = (np.cov(part.T, bias=True) for part in (words, positions))
    by_hand = WIDTH * np.trace(first @ second) / (np.trace(first) * np.trace(second))
    assert numbers["overlap"] == pytest.approx(by_hand)
    low, high = numbers["overlap_random"]
    assert low < 1 < high
    leading = np.linalg.svd(words)[2][:5].T
    found = subspaces(words, positions).frames["subspace_curve"].set_index("m").loc[5, "share"]
    assert found == pytest.approx(np.square(positions @ leading).sum() / np.square(positions).sum())
    lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in (words, positions)]
    cosine = np.abs((words / lengths[0]) @ (positions / lengths[1]).T).mean()
    assert numbers["mean_abs_cosine"] == pytest.approx(cosine, rel=1e-5)


def test_planted_directions_are_found():
    spread = drawn(WORDS) * np.linspace(3, 0.1, WIDTH)
    shared = subspaces(spread, drawn(PLACES, slice(4)))
    apart = subspaces(drawn(WORDS, slice(12)), drawn(PLACES, slice(12, None)))
    assert shared.numbers["subspaces"]["overlap"] > shared.numbers["subspaces"]["overlap_random"][1]
    curve = shared.frames["subspace_curve"].set_index("m")
    assert curve.loc[6, "share"] > 0.9 > curve.loc[6, "high"]
    assert curve.loc[WIDTH, "share"] == pytest.approx(1)
    assert apart.numbers["subspaces"]["overlap"] == pytest.approx(0, abs=1e-9)
    assert (
        apart.numbers["subspaces"]["mean_abs_cosine"] < apart.numbers["subspaces"]["mean_abs_cosine_random_interval"][0]
    )
    angles = apart.numbers["subspaces"]["angles"]
    assert angles["smallest"] == pytest.approx(90)
    low, high = angles["median_random"]
    assert low < high < 90
    random = subspaces(drawn(WORDS), drawn(PLACES, seed=3)[:6]).numbers["subspaces"]["angles"]
    assert (random["words_dimensions"], random["positions_dimensions"]) == (23, 6)
    assert random["median_random"][0] < random["median"] < random["median_random"][1]


def test_a_participation_ratio_counts_the_dimensions():
    assert participation_ratio(drawn(20_000, slice(7))) == pytest.approx(7, rel=0.01)
    numbers = measure_tables(summed(drawn(WORDS), drawn(PLACES, slice(1)))).numbers["tables"]
    assert numbers["participation_ratio"]["positions"] == pytest.approx(1)
    low, high = numbers["participation_ratio_random"]["words"]
    assert low < numbers["participation_ratio"]["words"] < high


def test_dimensions_that_belong_to_the_other_table_are_none_of_a_tables_shape():
    """Of tables side by side, as in `concat-split`, what is so by construction is no finding."""
    apart = summed(drawn(WORDS, slice(16)), drawn(PLACES, slice(16, None), seed=1))
    numbers = measure_dimensions(apart).numbers["dimensions"]
    assert numbers["moving"] == WIDTH - 16
    low, high = numbers["share_95_random"]
    assert low < numbers["share_95"] < high
    ratios = measure_tables(apart).numbers["tables"]
    for name, (low, high) in ratios["participation_ratio_random"].items():
        assert low < ratios["participation_ratio"][name] < high
    assert not with_random_positions(apart, 0).positions[:, :16].any()
    rows = drawn(PLACES, slice(16, None), seed=1)
    assert measure_positions(rows).numbers == measure_positions(rows[:, 16:]).numbers
    for measure in (measure_subspaces, measure_correlation):
        with pytest.raises(LeftOut, match="words and positions have dimensions of their own"):
            measure(apart)
        with pytest.raises(LeftOut, match="no position enters"):
            measure(summed(drawn(WORDS), np.zeros((PLACES, WIDTH))))


# Decoding


def test_a_sum_of_disjoint_parts_is_taken_apart_and_one_of_far_larger_positions_hides_the_word():
    apart = summed(drawn(WORDS, slice(12)), drawn(PLACES, slice(12, None), seed=1))
    assert decoded(apart, plain, 500)["word_accuracy"] == 1
    assert position_told(apart, plain)[0] > 0.8
    hidden = summed(drawn(WORDS, slice(4)), drawn(PLACES, slice(4), scale=100, seed=1))
    assert word_told(hidden, plain, 500) < 0.05
    assert word_told(hidden, plain, 500, known=True) == 1
    assert position_told(summed(drawn(WORDS), np.zeros((PLACES, WIDTH))), plain)[0] < 0.1


def test_all_numbers_of_decoding_have_their_baselines(monkeypatch):
    for name, small in {"PAIRS": 300, "FEWER": 200, "TESTS": 300, "SUMS": 300, "DRAWS": 2}.items():
        monkeypatch.setattr(f"glue_bench.analysis.decoding.{name}", small)
    norm = torch.nn.LayerNorm(WIDTH)
    found = measure_decoding(summed(drawn(WORDS), drawn(PLACES, seed=1)), norm)
    numbers = found.numbers["decoding"]
    assert numbers["chance"] == {"position_accuracy": 1 / PLACES, "position_mae": 13.325, "word_accuracy": 1 / WORDS}
    places = np.arange(PLACES)
    assert np.abs(places - places[:, None]).mean() == pytest.approx(numbers["chance"]["position_mae"])
    assert numbers["position_mae_constant"] == np.abs(places - 19.5).mean() == PLACES / 4
    assert found.frames["decoding"]["mae_chance"].dropna().unique() == pytest.approx(13.325)
    assert numbers["random"]["position_accuracy"] == pytest.approx(numbers["sum"]["position_accuracy"], abs=0.1)
    assert numbers["words_alone"]["position_accuracy"] < 0.1
    assert found.frames["decoding"]["layer"].tolist() == ["sum", "sum", "norm", "norm"]
    with pytest.raises(LeftOut, match="no position enters"):
        measure_decoding(summed(drawn(WORDS), np.zeros((PLACES, WIDTH))), norm)


def test_where_no_draw_misses_a_word_a_few_misses_are_no_finding(monkeypatch):
    for name, small in {"PAIRS": 300, "FEWER": 200, "TESTS": 300, "SUMS": 300, "DRAWS": 2}.items():
        monkeypatch.setattr(f"glue_bench.analysis.decoding.{name}", small)
    small = summed(drawn(WORDS), drawn(PLACES, scale=0.01, seed=1))
    numbers = measure_decoding(small, torch.nn.LayerNorm(WIDTH)).numbers["decoding"]
    low, high = numbers["random_interval"]["word_accuracy"]
    assert low < numbers["random"]["word_accuracy"] == high == 1


def test_the_nearest_row_by_hand(monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.decoding.SUMS", 200)
    generator = np.random.default_rng(0)
    given, candidates = (torch.from_numpy(generator.standard_normal((n, 5))) for n in (30, 50))
    assert nearest(given, candidates).tolist() == torch.cdist(given, candidates).argmin(1).tolist()
    words = drawn(WORDS)
    words[7] = words[3]
    words = np.tile(words[[3, 7]], (200, 1))
    twins = summed(words, np.zeros((PLACES, WIDTH)))
    assert collisions(twins)["smallest"] == 0


# Positions


def test_a_position_in_one_dimension_is_found():
    one = np.zeros((PLACES, WIDTH))
    one[:, 5] = np.arange(PLACES)
    noise = drawn(PLACES, scale=0.01)
    assert absolute_error(centred(one) + noise) < 1
    assert order_accuracy(centred(one) + noise) > 0.9
    numbers = measure_dimensions(summed(drawn(WORDS), centred(one) + noise)).numbers["dimensions"]
    assert numbers["share_95"] == pytest.approx(0.95 / WIDTH, rel=1e-2)
    assert numbers["share_95_random"][0] > 0.8
    assert cosines(centred(one))["cosine"].abs().round(6).isin([0, 1]).all()


def test_scores_by_distance_are_toeplitz_and_local():
    away = np.arange(30) - np.arange(30)[:, None]
    near = -np.abs(away).astype(float)
    assert (toeplitz(near), symmetric(near)) == (pytest.approx(1), 1)
    assert locality(near) == pytest.approx(1)
    assert symmetric(away.astype(float)) == 0
    random = np.random.default_rng(0).standard_normal((30, 30))
    assert toeplitz(random) < 0.15
    assert abs(locality(random)) < 0.15
    assert symmetric(random) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("variant", ["untied-tie-cls", "diet-abs", "four-term"])
def test_the_rows_and_heads_of_a_variant_give_its_own_scores(variant):
    model = random_model(EncoderModel, encoder_config(variant))
    table = InputSum(torch.zeros(3, 24), torch.zeros(POSITIONS, 24), torch.zeros(24))
    zeros = torch.zeros(1, POSITIONS, dtype=torch.long)
    with torch.no_grad():
        bias = model.variant(zeros, zeros).biases()[0][0]
        queries, keys = heads(model, table)
    ratio = (queries @ keys.mT) / bias
    assert ratio == pytest.approx(float(ratio.mean()), rel=1e-3)  # a constant factor is left out
    assert len(rows(model, table)) == POSITIONS


@pytest.mark.parametrize("variant", ["untied", "untied-relative"])
def test_the_constants_of_a_reset_cls_are_no_positions(variant):
    model = random_model(EncoderModel, encoder_config(variant))
    table = InputSum(torch.zeros(3, 24), torch.zeros(POSITIONS, 24), torch.zeros(24))
    before = rows(model, table), *heads(model, table)
    with torch.no_grad():
        model.variant.positions.weight[:2] += 1
    assert len(before[0]) == before[1].shape[1] == POSITIONS - 1
    assert all(map(torch.equal, before, (rows(model, table), *heads(model, table))))
    assert cosines(drawn(PLACES), first=1)["i"].tolist()[::PLACES] == list(range(1, PLACES + 1))


@pytest.mark.parametrize("variant", ["rotary", "alibi", "disentangled", "none"])
def test_a_variant_without_rows_of_positions_is_left_out(variant):
    model = random_model(EncoderModel, encoder_config(variant))
    table = InputSum(torch.zeros(3, 24), torch.zeros(POSITIONS, 24), torch.zeros(24))
    with pytest.raises(LeftOut, match="no row for each position"):
        rows(model, table)
    with pytest.raises(LeftOut, match="no product of two positions"):
        heads(model, table)


# Attention and layers


def test_where_attention_goes_by_hand():
    attention = np.array([[0.5, 0.5, 0.0, 0.0], [0.2, 0.5, 0.1, 0.2], [0.0, 0.6, 0.3, 0.1], [1.0, 0.0, 0.0, 0.0]])
    assert within(attention, 1) == pytest.approx((1 + 0.8 + 1 + 0) / 4)
    assert within(attention, 2) == pytest.approx((1 + 1 + 1 + 0) / 4)
    assert left_minus_right(attention) == pytest.approx((0 + 0.1 + 0.5 + 0) / 4)  # the ends have one side


def test_planted_parts_of_a_hidden_state_are_told_apart():
    generator = np.random.default_rng(0)
    position, context = generator.standard_normal((1, 12, 8)), generator.standard_normal((20, 1, 8))
    states = 2 * position + context + 0.1 * generator.standard_normal((20, 12, 8))
    found = parts_of(states)
    assert found["position"] + found["context"] + found["residual"] == pytest.approx(1)
    assert found["position"] == pytest.approx(0.8, abs=0.1)
    assert found["context"] == pytest.approx(0.2, abs=0.1)
    assert found["position"] > found["position_random"][1]
    noise = generator.standard_normal((20, 12, 8))
    noise -= noise.mean((0, 1))
    assert share(noise, 0, np.square(noise).sum()) == pytest.approx(1 / 20, abs=0.02)


# Dimensions


def test_the_seeds_printed_sinusoids_hold_where_they_do():
    printed = measure_dimensions(summed(drawn(WORDS), drawn(PLACES))).numbers["dimensions"]["sinusoid"]
    found = {(each["width"], each["dimension"] - each["width"], each["position"]): each for each in printed}
    assert [found[128, -1, place]["value"] for place in (63, 127)] == pytest.approx([0.99998015, 0.99991935], abs=1e-8)
    assert [found[128, -16, place]["value"] for place in (63, 127)] == pytest.approx([0.9984067, 0.9935305], abs=1e-7)
    assert [found[512, -16, place]["value"] for place in (63, 127)] == pytest.approx([0.99994, 0.99976], abs=1e-5)
    held = {place for place, each in found.items() if each["holds"]}
    assert held == {(width, -1, place) for width in (512, 128) for place in (63, 127)} | {
        (128, -16, 63),
        (128, -16, 127),
    }


def test_deviations_by_dimension():
    assert share_of_variance(np.array([3.0, 0.0, 0.0, 1.0])) == pytest.approx((1 + 0.5) / 4)  # 90%, and half of 10%
    assert share_of_variance(np.ones(100)) == pytest.approx(0.95)
    rising = np.arange(30.0)
    rho, (low, high), p = correlation(rising, -rising)
    assert (rho, p) == (pytest.approx(-1), pytest.approx(1 / 10_001))
    assert low == pytest.approx(-high, abs=0.05)


# Bands


def test_bands_cover_what_they_say():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        low, high = expected(generator.standard_normal(10))
        inside += low < generator.standard_normal() < high
    assert 0.92 < inside / 400 < 0.98
    low, high = middle(generator.standard_normal(5_000))
    assert (low, high) == (pytest.approx(-1.96, abs=0.1), pytest.approx(1.96, abs=0.1))
    assert confidence(generator.standard_normal((1_000, 2))) == pytest.approx(1.96 / np.sqrt(1_000), rel=0.1)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95, 0.99, 1.0])
@pytest.mark.parametrize("sequences", [8, 16])
def test_intervals_of_few_sequences_cover_what_they_say(share, sequences):
    generator, inside = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = share_interval(Sums(generator.binomial(4, share, sequences), np.full(sequences, 4.0)))
        assert 0 <= low <= high <= 1
        inside += low <= share <= high
    assert inside / 400 > 0.93
    rises = [ratio_interval(Sums(generator.normal(1, 1, sequences), np.ones(sequences))) for _ in range(1_000)]
    assert 0.935 < np.mean([low < 1 < high for low, high in rises]) < 0.965


def test_an_interval_needs_two_sequences():
    one = Sums(np.array([0.0, 3.0]), np.array([0.0, 4.0]))
    assert ratio_interval(one) is share_interval(one) is None
    low, high = share_interval(Sums(np.zeros(8), np.full(8, 4.0)))
    assert (low, high) == (0, pytest.approx(1 - 0.025 ** (1 / 8)))
    assert share_interval(Sums(np.full(8, 2.0), np.full(8, 4.0))) == [0.5, 0.5]  # ties, as without positions


def test_the_band_of_a_share_leaves_room_for_what_a_sample_may_miss():
    """Both samples have no miss or few: by the exact test of two shares, 5 misses to none are no finding, 8 are."""
    low, high = expected_share([1.0] * 5, trials=2_000, tried=10_000)
    assert (1 - 8 / 10_000) < low <= (1 - 5 / 10_000)
    assert high == 1
    assert expected_share([0.0] * 5, trials=2_000, tried=10_000) == pytest.approx([1 - high, 1 - low])
    spread = [0.2, 0.4, 0.5, 0.6, 0.8]
    assert expected_share(spread, trials=2_000, tried=2_000) == pytest.approx(np.clip(expected(spread), 0, 1))


def test_bands_of_shares_cover_what_they_say():
    generator, inside = np.random.default_rng(0), 0
    for _ in range(200):
        draws, value = generator.binomial(400, 0.995, 5) / 400, generator.binomial(2_000, 0.995) / 2_000
        low, high = expected_share(draws, trials=400, tried=2_000)
        inside += low <= value <= high
    assert inside / 200 > 0.94
