"""Measures of tables, positions and hidden states: by hand, and of planted structure."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glue_bench.analysis import positions, probes, subspaces
from glue_bench.analysis.chance import LeftOut, Measured, Row
from glue_bench.analysis.hooks import InputSum
from glue_bench.analysis.layers import parts_of, share
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.tiny import POSITIONS, encoder_config, random_model

WORDS, PLACES, WIDTH = 400, 40, 24


def drawn(
    rows: int, dimensions: slice = slice(None), scale: float = 1.0, seed: int = 0
) -> np.ndarray:
    """Centred normal rows in some of the dimensions, zeros in the others."""
    table = np.zeros((rows, WIDTH))
    table[:, dimensions] = (
        scale * np.random.default_rng(seed).standard_normal((rows, WIDTH))[:, dimensions]
    )
    return table - table.mean(0)


def summed(*of: np.ndarray) -> SimpleNamespace:
    """A subject whose input is the sum of these words and positions."""
    parts = (torch.from_numpy(part).float() for part in (*of, np.zeros(of[0].shape[1])))
    model = random_model(EncoderModel, encoder_config("add", hidden_size=of[0].shape[1]))
    return SimpleNamespace(sum=InputSum(*parts), model=model)


def by_name(measured: Measured) -> dict[str, Row]:
    return {row.measure.partition(".")[2]: row for row in measured.rows}


def side(row: Row) -> int:
    """-1 below what chance gives, 1 above, 0 inside."""
    return int(row.value > row.chance_high) - int(row.value < row.chance_low)


def test_the_overlap_by_hand():
    words, places = drawn(WORDS), drawn(PLACES, seed=1)
    measured = subspaces.measure_subspaces(summed(words, places))
    found = by_name(measured)
    first, second = (np.cov(part.T, bias=True) for part in (words, places))
    by_hand = WIDTH * np.trace(first @ second) / (np.trace(first) * np.trace(second))
    assert found["overlap"].value == pytest.approx(by_hand, rel=1e-4)
    assert found["overlap"].chance_low < 1 < found["overlap"].chance_high
    assert side(found["overlap"]) == side(found["mean_abs_cosine"]) == 0
    leading = np.linalg.svd(words)[2][:5].T
    curve = measured.matrices["subspace_curve"].set_index("m").loc[5, "share"]
    assert curve == pytest.approx(
        np.square(places @ leading).sum() / np.square(places).sum(), rel=1e-4
    )
    units = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (words, places)]
    assert found["mean_abs_cosine"].value == pytest.approx(
        np.abs(units[0] @ units[1].T).mean(), rel=1e-4
    )
    ratio = np.sqrt(np.square(places).sum(1).mean() / np.square(words).sum(1).mean())
    assert found["norm_ratio"].value == pytest.approx(ratio, rel=1e-4)


def test_planted_directions_are_found():
    planted = summed(drawn(WORDS) * np.linspace(3, 0.1, WIDTH), drawn(PLACES, slice(4)))
    measured = subspaces.measure_subspaces(planted)
    assert side(by_name(measured)["overlap"]) == 1
    curve = measured.matrices["subspace_curve"].set_index("m")
    assert curve.loc[6, "share"] > 0.9 > curve.loc[6, "high"]
    assert curve.loc[WIDTH, "share"] == pytest.approx(1)
    words, places = drawn(WORDS, slice(12)), drawn(PLACES, slice(12, None))
    words[:, 12], places[:, 11] = (
        words[:, 0] * 1e-3,
        places[:, 12] * 1e-3,
    )  # so little that they nearly miss
    apart = by_name(subspaces.measure_subspaces(summed(words, places)))
    assert apart["overlap"].value == pytest.approx(0, abs=1e-4)
    assert side(apart["mean_abs_cosine"]) == -1
    assert apart["angles.smallest"].value == pytest.approx(90, abs=0.5)
    assert apart["angles.median"].chance_high < 90


def test_dimensions_that_belong_to_the_other_table_are_none_of_a_tables_shape():
    """Of tables side by side, as in `concat-split`, what is so by construction is no finding."""
    places = drawn(PLACES, slice(12, None), seed=1)
    apart = summed(drawn(WORDS, slice(12)), places)
    found = by_name(subspaces.measure_dimensions(apart)) | by_name(subspaces.measure_tables(apart))
    assert found["moving"].value == WIDTH - 12
    for name in ("share_95", "participation_ratio.words", "participation_ratio.positions"):
        assert side(found[name]) == 0, name
    one = by_name(subspaces.measure_tables(summed(drawn(WORDS), drawn(PLACES, slice(1)))))
    assert one["participation_ratio.positions"].value == pytest.approx(1)
    assert not probes.with_random_positions(apart.sum, 0).positions[:, :12].any()
    narrow = summed(drawn(WORDS)[:, 12:], places[:, 12:])
    assert (
        positions.measure_position_rows(apart).rows == positions.measure_position_rows(narrow).rows
    )
    for measure in (subspaces.measure_subspaces, subspaces.measure_correlation):
        with pytest.raises(LeftOut, match="words and positions have dimensions of their own"):
            measure(apart)
        with pytest.raises(LeftOut, match="no position enters"):
            measure(summed(drawn(WORDS), np.zeros((PLACES, WIDTH))))


def test_deviations_by_dimension():
    assert subspaces.share_of_variance(np.array([3.0, 0.0, 0.0, 1.0])) == pytest.approx(
        (1 + 0.5) / 4
    )  # 90%, half of 10%
    rising = np.arange(1, 1 + WIDTH)
    falling = summed(drawn(WORDS) * 1.5**rising, drawn(PLACES, seed=1) / 1.5**rising)
    rho, p = subspaces.measure_correlation(falling).rows
    assert (rho.value, p.value) == (pytest.approx(-1, abs=0.02), pytest.approx(1 / 10_001))
    assert rho.chance_low == pytest.approx(-rho.chance_high, abs=0.05)


def test_a_sum_of_disjoint_parts_is_taken_apart_and_one_of_far_larger_positions_hides_the_word(
    monkeypatch,
):
    for name, small in {
        "WORD_PAIRS": 500,
        "FEWER_WORD_PAIRS": 200,
        "TEST_PAIRS": 300,
        "SUMS": 300,
        "DRAWS": 2,
    }.items():
        monkeypatch.setattr(probes, name, small)
    apart = summed(drawn(WORDS, slice(12)), drawn(PLACES, slice(12, None), seed=1))
    found = by_name(probes.measure_decoding(apart))
    word = found["sum.word_accuracy"]  # no draw misses one, and a few misses are no finding
    assert (
        word.chance_low < word.value == found["random.word_accuracy"].value == word.chance_high == 1
    )
    assert (
        found["sum.position_accuracy"].value
        > 0.8
        > 0.1
        > found["words_alone.position_accuracy"].value
    )
    error = np.abs(np.arange(PLACES) - np.arange(PLACES)[:, None]).mean()
    for name, luck in {
        "position_accuracy": 1 / PLACES,
        "word_accuracy": 1 / WORDS,
        "position_mae": error,
    }.items():
        assert found[f"norm.{name}"].chance_low == pytest.approx(luck)
    hidden = by_name(
        probes.measure_decoding(
            summed(drawn(WORDS, slice(4)), drawn(PLACES, slice(4), 100, seed=1))
        )
    )
    assert hidden["sum.word_accuracy"].value < 0.05
    assert hidden["word_accuracy_position_known"].value == 1
    with pytest.raises(LeftOut, match="no position enters"):
        probes.measure_decoding(summed(drawn(WORDS), np.zeros((PLACES, WIDTH))))


def test_position_and_word_are_told_from_states_that_have_them_side_by_side():
    """Of word types and sequences that the probe has not seen; of states of noise nothing is told."""
    generator, table = np.random.default_rng(0), torch.nn.Embedding(100, 16)
    ids = generator.integers(100, size=(60, 12))
    sides = (
        torch.cat([table(torch.from_numpy(ids)), torch.eye(12).expand(60, 12, 12)], 2)
        .detach()
        .numpy()
    )
    noise = generator.standard_normal(sides.shape).astype(np.float32)
    model = SimpleNamespace(variant=SimpleNamespace(words=table))
    measured = probes.measure_decoding_layers(
        SimpleNamespace(deep=([sides, noise], []), ids=ids, model=model)
    )
    rows = {(row.measure.rpartition(".")[2], row.layer): row for row in measured.rows}
    assert rows["position_accuracy", 0].value > 0.99
    assert rows["position_mae", 0].value < 0.01
    assert rows["word_accuracy", 0].value > 0.9
    assert abs(rows["position_accuracy", 1].value - rows["position_accuracy", 1].chance_low) < 0.1
    assert rows["word_accuracy", 1].value < 0.1


def test_the_nearest_row_by_hand(monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.probes.ROWS_AT_ONCE", 7)
    generator = np.random.default_rng(0)
    given, candidates = (torch.from_numpy(generator.standard_normal((n, 5))) for n in (30, 50))
    distances, words = torch.cdist(given, candidates), (np.arange(30) % 4, np.arange(50) % 4)
    assert probes.nearest(given, candidates).tolist() == distances.argmin(1).tolist()
    distances[torch.from_numpy(words[0][:, None] == words[1])] = torch.inf
    assert probes.nearest(given, candidates, words).tolist() == distances.argmin(1).tolist()


def test_a_position_in_one_dimension_is_found():
    one = drawn(PLACES, scale=0.01)
    one[:, 5] = np.arange(PLACES) - (PLACES - 1) / 2
    assert positions.absolute_error(one) < 1
    assert positions.order_accuracy(one) > 0.9
    subject = summed(drawn(WORDS), one)
    share_95 = by_name(subspaces.measure_dimensions(subject))["share_95"]
    assert (share_95.value, side(share_95)) == (pytest.approx(0.95 / WIDTH, rel=1e-2), -1)
    assert side(by_name(positions.measure_position_rows(subject))["absolute_mae"]) == -1
    assert positions.sinusoids(128, 512)[9, [255, 511]] == pytest.approx(
        [np.sin(9e-4), np.cos(9e-4)]
    )


def test_scores_by_distance_are_toeplitz_and_local():
    away = np.arange(30) - np.arange(30)[:, None]
    near = -np.abs(away).astype(float)
    assert (positions.toeplitz(near), positions.symmetric(near)) == (pytest.approx(1), 1)
    assert positions.locality(near) == pytest.approx(1)
    assert positions.symmetric(away.astype(float)) == 0
    by_hand = np.array(
        [[1.0, 5.0], [2.0, 3.0]]
    )  # diagonals 2, 5 and 2: 2 of 8.75 do not depend on distance
    assert positions.toeplitz(by_hand) == pytest.approx(1 - 2 / 8.75)
    random = np.random.default_rng(0).standard_normal((30, 30))
    assert positions.toeplitz(random) < 0.15
    assert positions.symmetric(random) == pytest.approx(0.5, abs=0.05)


def without_positions(variant: str) -> SimpleNamespace:
    """A subject whose variant adds no positions at the input."""
    table = InputSum(torch.zeros(3, 24), torch.zeros(POSITIONS, 24), torch.zeros(24))
    return SimpleNamespace(model=random_model(EncoderModel, encoder_config(variant)), sum=table)


@pytest.mark.parametrize("variant", ["untied-tie-cls", "diet-abs", "four-term"])
def test_the_scores_of_positions_are_those_that_the_variant_adds(variant):
    """But for a constant factor, which no measure sees."""
    subject, zeros = without_positions(variant), torch.zeros(1, POSITIONS, dtype=torch.long)
    bias = subject.model.variant(zeros, zeros).biases()[0][0].detach().double().numpy()
    found = by_name(positions.measure_position_scores(subject))
    for measure in (positions.toeplitz, positions.locality, positions.symmetric):
        by_hand = np.mean([measure(each) for each in bias])
        assert found[f"scores.{measure.__name__}"].value == pytest.approx(by_hand, rel=1e-4)
    assert len(positions.positions_of(subject)[0]) == POSITIONS


def test_the_constants_of_a_reset_cls_are_no_positions():
    subject = without_positions("untied")
    before = positions.positions_of(subject)
    with torch.no_grad():
        subject.model.variant.positions.weight[:2] += 1
    assert len(before[0]) == len(before[1]) == POSITIONS - 1
    assert all(map(torch.equal, before, positions.positions_of(subject)))


def test_where_attention_goes_by_hand():
    """Half of it to [CLS] and the last [SEP], which are left out."""
    attention = np.array(
        [[0.5, 0.5, 0.0, 0.0], [0.2, 0.5, 0.1, 0.2], [0.0, 0.6, 0.3, 0.1], [1.0, 0.0, 0.0, 0.0]]
    )
    given = np.pad(attention / 2, 1, constant_values=0.25)
    found = by_name(positions.measure_attention(SimpleNamespace(deep=([], [given[None]]))))
    assert found["attention.within_1"].value == pytest.approx((1 + 0.8 + 1 + 0) / 4)
    assert found["attention.within_2"].value == pytest.approx((1 + 1 + 1 + 0) / 4)
    left = found["attention.left_minus_right"].value
    assert left == pytest.approx((0 + 0.1 + 0.5 + 0) / 4)  # the ends have one side


def test_planted_parts_of_a_hidden_state_are_told_apart():
    generator = np.random.default_rng(0)
    position, context = generator.standard_normal((1, 12, 8)), generator.standard_normal((20, 1, 8))
    found = by_name(
        Measured(parts_of(2 * position + context + 0.1 * generator.standard_normal((20, 12, 8))))
    )
    assert sum(found[name].value for name in ("position", "context", "residual")) == pytest.approx(
        1
    )
    assert found["position"].value == pytest.approx(0.8, abs=0.1)
    assert found["context"].value == pytest.approx(0.2, abs=0.1)
    assert side(found["position"]) == 1
    axes, line = np.eye(8), np.arange(12.0)[None, :, None]
    found = by_name(
        Measured(parts_of(line * axes[0] + generator.standard_normal((20, 1, 1)) * axes[1]))
    )
    assert found["rank"].value == 1
    assert (found["cosine"].value, found["residual"].value) == pytest.approx((0, 0), abs=1e-6)
    noise = generator.standard_normal((20, 12, 8))
    assert share(noise - noise.mean((0, 1)), 0) == pytest.approx(1 / 20, abs=0.02)
