"""Measures of tables, positions and hidden states: by hand, and of planted structure."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glue_bench.analysis import positions as read
from glue_bench.analysis import probes, tables
from glue_bench.analysis.analyse import parts_of, share
from glue_bench.analysis.chance import LeftOut, Measured, Row
from glue_bench.analysis.tables import InputSum, measure_dimensions, measure_subspaces, measure_tables
from glue_bench.model.encoder import EncoderModel
from glue_bench.testing import POSITIONS, encoder_config, random_model

WORDS, PLACES, WIDTH = 400, 40, 24


def drawn(rows: int, dimensions: slice = slice(None), scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Centred normal rows in some of the dimensions, zeros in the others."""
    table = np.zeros((rows, WIDTH))
    table[:, dimensions] = scale * np.random.default_rng(seed).standard_normal((rows, WIDTH))[:, dimensions]
    return table - table.mean(0)


def summed(words: np.ndarray, positions: np.ndarray) -> InputSum:
    return InputSum(*(torch.from_numpy(part).float() for part in (words, positions, np.zeros(WIDTH))))


def by_name(measured: Measured) -> dict[str, Row]:
    return {row.measure.partition(".")[2]: row for row in measured.rows}


def side(row: Row) -> int:
    """-1 below what chance gives, 1 above, 0 inside."""
    return int(row.value > row.chance_high) - int(row.value < row.chance_low)


# Subspaces and dimensions


def test_the_overlap_by_hand():
    words, positions = drawn(WORDS), drawn(PLACES, seed=1)
    measured = measure_subspaces(summed(words, positions))
    found = by_name(measured)
    first, second = (np.cov(part.T, bias=True) for part in (words, positions))
    by_hand = WIDTH * np.trace(first @ second) / (np.trace(first) * np.trace(second))
    assert found["overlap"].value == pytest.approx(by_hand, rel=1e-4)
    assert found["overlap"].chance_low < 1 < found["overlap"].chance_high
    assert side(found["overlap"]) == side(found["mean_abs_cosine"]) == 0
    leading = np.linalg.svd(words)[2][:5].T
    curve = measured.matrices["subspace_curve"].set_index("m").loc[5, "share"]
    assert curve == pytest.approx(np.square(positions @ leading).sum() / np.square(positions).sum(), rel=1e-4)
    lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in (words, positions)]
    cosine = np.abs((words / lengths[0]) @ (positions / lengths[1]).T).mean()
    assert found["mean_abs_cosine"].value == pytest.approx(cosine, rel=1e-4)
    ratio = np.sqrt(np.square(positions).sum(1).mean() / np.square(words).sum(1).mean())
    assert found["norm_ratio"].value == pytest.approx(ratio, rel=1e-4)


def test_planted_directions_are_found():
    measured = measure_subspaces(summed(drawn(WORDS) * np.linspace(3, 0.1, WIDTH), drawn(PLACES, slice(4))))
    assert side(by_name(measured)["overlap"]) == 1
    curve = measured.matrices["subspace_curve"].set_index("m")
    assert curve.loc[6, "share"] > 0.9 > curve.loc[6, "high"]
    assert curve.loc[WIDTH, "share"] == pytest.approx(1)
    words, positions = drawn(WORDS, slice(12)), drawn(PLACES, slice(12, None))
    words[:, 12], positions[:, 11] = words[:, 0] * 1e-3, positions[:, 12] * 1e-3  # so little that they nearly miss
    apart = by_name(measure_subspaces(summed(words, positions)))
    assert apart["overlap"].value == pytest.approx(0, abs=1e-4)
    assert side(apart["mean_abs_cosine"]) == -1
    assert apart["angles.smallest"].value == pytest.approx(90, abs=0.5)
    assert apart["angles.median"].chance_high < 90


def test_dimensions_that_belong_to_the_other_table_are_none_of_a_tables_shape():
    """Of tables side by side, as in `concat-split`, what is so by construction is no finding."""
    apart = summed(drawn(WORDS, slice(16)), drawn(PLACES, slice(16, None), seed=1))
    found = by_name(measure_dimensions(apart)) | by_name(measure_tables(apart))
    assert found["moving"].value == WIDTH - 16
    for name in ("share_95", "participation_ratio.words", "participation_ratio.positions"):
        assert side(found[name]) == 0, name
    one = by_name(measure_tables(summed(drawn(WORDS), drawn(PLACES, slice(1)))))
    assert one["participation_ratio.positions"].value == pytest.approx(1)
    assert not probes.with_random_positions(apart, 0).positions[:, :16].any()
    rows = drawn(PLACES, slice(16, None), seed=1)
    assert probes.measure_position_rows(rows, PLACES).rows == probes.measure_position_rows(rows[:, 16:], PLACES).rows
    for measure in (measure_subspaces, tables.measure_correlation):
        with pytest.raises(LeftOut, match="words and positions have dimensions of their own"):
            measure(apart)
        with pytest.raises(LeftOut, match="no position enters"):
            measure(summed(drawn(WORDS), np.zeros((PLACES, WIDTH))))


def test_deviations_by_dimension():
    assert tables.share_of_variance(np.array([3.0, 0.0, 0.0, 1.0])) == pytest.approx((1 + 0.5) / 4)  # 90%, half of 10%
    rising = np.arange(30.0)
    rho, (low, high), p = tables.correlation(rising, -rising)
    assert (rho, p, low) == (pytest.approx(-1), pytest.approx(1 / 10_001), pytest.approx(-high, abs=0.05))


def test_the_printed_sinusoids_hold_for_a_width_of_128_and_not_for_512():
    """Values that a thread prints of tensor2tensor's layout for d = 512."""
    narrow, wide = probes.sinusoids(128, 128), probes.sinusoids(128, 512)
    assert narrow[[63, 127], -1] == pytest.approx([0.99998015, 0.99991935], abs=1e-8)
    assert narrow[[63, 127], -16] == pytest.approx([0.9984067, 0.9935305], abs=1e-7)
    assert wide[[63, 127], -16] == pytest.approx([0.99994, 0.99976], abs=1e-5)


# Decoding


def test_a_sum_of_disjoint_parts_is_taken_apart_and_one_of_far_larger_positions_hides_the_word():
    apart = summed(drawn(WORDS, slice(12)), drawn(PLACES, slice(12, None), seed=1))
    assert probes.word_told(apart, probes.PLAIN, 500) == 1
    assert probes.position_told(apart, probes.PLAIN)["position_accuracy"] > 0.8
    hidden = summed(drawn(WORDS, slice(4)), drawn(PLACES, slice(4), scale=100, seed=1))
    assert probes.word_told(hidden, probes.PLAIN, 500) < 0.05
    assert probes.word_told(hidden, probes.PLAIN, 500, known=True) == 1


def test_all_numbers_of_decoding_have_their_chance(monkeypatch):
    for name, small in {"PAIRS": 300, "FEWER": 200, "TESTS": 300, "SUMS": 300, "DRAWS": 2}.items():
        monkeypatch.setattr(f"glue_bench.analysis.probes.{name}", small)
    norm = torch.nn.LayerNorm(WIDTH)
    found = by_name(probes.measure_decoding(summed(drawn(WORDS), drawn(PLACES, scale=0.01, seed=1)), norm))
    places = np.arange(PLACES)
    by_luck = {"position_accuracy": 1 / PLACES, "word_accuracy": 1 / WORDS}
    by_luck["position_mae"] = np.abs(places - places[:, None]).mean()
    for name, value in by_luck.items():
        assert found[f"norm.{name}"].chance_low == pytest.approx(value)
    assert found["words_alone.position_accuracy"].value < 0.1
    word = found["sum.word_accuracy"]  # no draw misses one, and a few misses are no finding
    assert word.chance_low < found["random.word_accuracy"].value == word.chance_high == 1
    with pytest.raises(LeftOut, match="no position enters"):
        probes.measure_decoding(summed(drawn(WORDS), np.zeros((PLACES, WIDTH))), norm)


def test_position_and_word_are_told_from_states_that_have_them_side_by_side():
    """Of word types and sequences that the probe has not seen; of states of noise nothing is told."""
    generator, table = np.random.default_rng(0), torch.nn.Embedding(100, 16)
    ids = generator.integers(100, size=(60, 12))
    sides = torch.cat([table(torch.from_numpy(ids)), torch.eye(12).expand(60, 12, 12)], 2).detach().numpy()
    noise = generator.standard_normal(sides.shape).astype(np.float32)
    model = SimpleNamespace(variant=SimpleNamespace(words=table))
    subject = SimpleNamespace(deep=SimpleNamespace(states=[sides, noise]), ids=ids, model=model)
    rows = {(row.measure.rpartition(".")[2], row.layer): row for row in probes.measure_decoding_layers(subject).rows}
    assert rows["position_accuracy", 0].value > 0.99
    assert rows["position_mae", 0].value < 0.01
    assert rows["word_accuracy", 0].value > 0.9
    assert abs(rows["position_accuracy", 1].value - rows["position_accuracy", 1].chance_low) < 0.1
    assert rows["word_accuracy", 1].value < 0.1


def test_the_nearest_row_by_hand(monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.probes.SUMS", 200)
    generator = np.random.default_rng(0)
    given, candidates = (torch.from_numpy(generator.standard_normal((n, 5))) for n in (30, 50))
    assert probes.nearest(given, candidates).tolist() == torch.cdist(given, candidates).argmin(1).tolist()
    twins = np.tile(drawn(WORDS)[[3, 3]], (200, 1))
    assert probes.collisions(summed(twins, np.zeros((PLACES, WIDTH))))[0].value == 0


# Positions


def test_a_position_in_one_dimension_is_found():
    one = drawn(PLACES, scale=0.01)
    one[:, 5] = np.arange(PLACES) - (PLACES - 1) / 2
    assert probes.absolute_error(one) < 1
    assert probes.order_accuracy(one) > 0.9
    share_95 = by_name(measure_dimensions(summed(drawn(WORDS), one)))["share_95"]
    assert (share_95.value, side(share_95)) == (pytest.approx(0.95 / WIDTH, rel=1e-2), -1)
    measured = probes.measure_position_rows(one, PLACES + 1)
    assert side(by_name(measured)["absolute_mae"]) == -1
    cosines = measured.matrices["positions_cosine"]
    assert cosines["i"].tolist()[::PLACES] == list(range(1, PLACES + 1))


def test_scores_by_distance_are_toeplitz_and_local():
    away = np.arange(30) - np.arange(30)[:, None]
    near = -np.abs(away).astype(float)
    assert (read.toeplitz(near), read.symmetric(near)) == (pytest.approx(1), 1)
    assert read.locality(near) == pytest.approx(1)
    assert read.symmetric(away.astype(float)) == 0
    by_hand = np.array([[1.0, 5.0], [2.0, 3.0]])  # diagonals 2, 5 and 2: 2 of 8.75 do not depend on distance
    assert read.toeplitz(by_hand) == pytest.approx(1 - 2 / 8.75)
    random = np.random.default_rng(0).standard_normal((30, 30))
    assert read.toeplitz(random) < 0.15
    assert read.symmetric(random) == pytest.approx(0.5, abs=0.05)


def without_positions(variant: str) -> tuple[EncoderModel, InputSum]:
    model = random_model(EncoderModel, encoder_config(variant))
    return model, InputSum(torch.zeros(3, 24), torch.zeros(POSITIONS, 24), torch.zeros(24))


@pytest.mark.parametrize("variant", ["untied-tie-cls", "diet-abs", "four-term"])
def test_the_rows_and_heads_of_a_variant_give_its_own_scores(variant):
    model, table = without_positions(variant)
    zeros = torch.zeros(1, POSITIONS, dtype=torch.long)
    with torch.no_grad():
        bias = model.variant(zeros, zeros).biases()[0][0].numpy()
    queries, keys = read.position_heads(model, table)
    ratio = (queries @ keys.transpose(0, 2, 1)) / bias
    assert ratio == pytest.approx(float(ratio.mean()), rel=1e-3)  # a constant factor is left out
    assert len(read.position_rows(model, table)) == POSITIONS


def test_the_constants_of_a_reset_cls_are_no_positions():
    model, table = without_positions("untied")
    before = read.position_rows(model, table), *read.position_heads(model, table)
    with torch.no_grad():
        model.variant.positions.weight[:2] += 1
    assert len(before[0]) == before[1].shape[1] == POSITIONS - 1
    assert all(map(np.array_equal, before, (read.position_rows(model, table), *read.position_heads(model, table))))


@pytest.mark.parametrize("variant", ["rotary", "disentangled", "none"])
def test_a_variant_without_rows_of_positions_is_left_out(variant):
    model, table = without_positions(variant)
    with pytest.raises(LeftOut, match="no row for each position"):
        read.position_rows(model, table)
    with pytest.raises(LeftOut, match="no product of two positions"):
        read.position_heads(model, table)


def test_where_attention_goes_by_hand():
    attention = np.array([[0.5, 0.5, 0.0, 0.0], [0.2, 0.5, 0.1, 0.2], [0.0, 0.6, 0.3, 0.1], [1.0, 0.0, 0.0, 0.0]])
    found = read.attended(attention)
    assert found["within_1"] == pytest.approx((1 + 0.8 + 1 + 0) / 4)
    assert found["within_2"] == pytest.approx((1 + 1 + 1 + 0) / 4)
    assert found["left_minus_right"] == pytest.approx((0 + 0.1 + 0.5 + 0) / 4)  # the ends have one side


def test_planted_parts_of_a_hidden_state_are_told_apart():
    generator = np.random.default_rng(0)
    position, context = generator.standard_normal((1, 12, 8)), generator.standard_normal((20, 1, 8))
    found = by_name(Measured(parts_of(2 * position + context + 0.1 * generator.standard_normal((20, 12, 8)))))
    assert sum(found[name].value for name in ("position", "context", "residual")) == pytest.approx(1)
    assert found["position"].value == pytest.approx(0.8, abs=0.1)
    assert found["context"].value == pytest.approx(0.2, abs=0.1)
    assert side(found["position"]) == 1
    axes, line = np.eye(8), np.arange(12.0)[None, :, None]
    found = by_name(Measured(parts_of(line * axes[0] + generator.standard_normal((20, 1, 1)) * axes[1])))
    assert found["rank"].value == 1
    assert (found["cosine"].value, found["residual"].value) == pytest.approx((0, 0), abs=1e-6)
    noise = generator.standard_normal((20, 12, 8))
    noise -= noise.mean((0, 1))
    assert share(noise, 0, np.square(noise).sum()) == pytest.approx(1 / 20, abs=0.02)
