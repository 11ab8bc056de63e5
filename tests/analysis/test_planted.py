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

WORDS = 400
PLACES = 40
WIDTH = 24
LEFT_HALF = slice(12)
RIGHT_HALF = slice(12, None)
FIRST_FOUR = slice(4)


def random_rows(
    rows: int, dimensions: slice = slice(None), scale: float = 1.0, seed: int = 0
) -> np.ndarray:
    """Draw centred normal rows in some of the dimensions, with zeros in the others."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, WIDTH))
    table = np.zeros((rows, WIDTH))
    table[:, dimensions] = scale * values[:, dimensions]
    return table - table.mean(0)


def subject_of(words: np.ndarray, places: np.ndarray) -> SimpleNamespace:
    """Make a subject whose input is the sum of these words and positions."""
    width = words.shape[1]
    table = InputSum(
        words=torch.from_numpy(words).float(),
        positions=torch.from_numpy(places).float(),
        mean=torch.zeros(width),
    )
    config = encoder_config("add", hidden_size=width)
    model = random_model(EncoderModel, config)
    return SimpleNamespace(sum=table, model=model)


NO_POSITIONS = np.zeros((PLACES, WIDTH))


def rows_by_name(measured: Measured) -> dict[str, Row]:
    return {row.measure.partition(".")[2]: row for row in measured.rows}


def side_of_band(row: Row) -> int:
    """Return -1 below the band of chance, 1 above it, 0 inside."""
    if row.value < row.chance_low:
        return -1
    return int(row.value > row.chance_high)


# Subspaces


@pytest.fixture
def words():
    return random_rows(WORDS)


@pytest.fixture
def places():
    return random_rows(PLACES, seed=1)


@pytest.fixture
def random_subspaces(words, places) -> Measured:
    return subspaces.measure_subspaces(subject_of(words, places))


def test_the_overlap_by_hand(random_subspaces, words, places):
    row = rows_by_name(random_subspaces)["overlap"]
    word_covariance = np.cov(words.T, bias=True)
    place_covariance = np.cov(places.T, bias=True)
    product = word_covariance @ place_covariance
    traces = np.trace(word_covariance) * np.trace(place_covariance)
    by_hand = WIDTH * np.trace(product) / traces
    assert row.value == pytest.approx(by_hand, rel=1e-4)
    assert row.chance_low < 1 < row.chance_high
    assert side_of_band(row) == 0


def test_the_curve_by_hand(random_subspaces, words, places):
    curve = random_subspaces.matrices["subspace_curve"].set_index("m")
    _, _, directions = np.linalg.svd(words)
    projected = places @ directions[:5].T
    by_hand = np.square(projected).sum() / np.square(places).sum()
    assert curve.loc[5, "share"] == pytest.approx(by_hand, rel=1e-4)


def test_the_mean_cosine_by_hand(random_subspaces, words, places):
    row = rows_by_name(random_subspaces)["mean_abs_cosine"]
    word_norms = np.linalg.norm(words, axis=1)
    place_norms = np.linalg.norm(places, axis=1)
    cosines = words @ places.T / np.outer(word_norms, place_norms)
    by_hand = np.abs(cosines).mean()
    assert row.value == pytest.approx(by_hand, rel=1e-4)
    assert side_of_band(row) == 0


def test_the_ratio_of_norms_by_hand(random_subspaces, words, places):
    row = rows_by_name(random_subspaces)["norm_ratio"]
    of_a_place = np.square(places).sum(1).mean()
    of_a_word = np.square(words).sum(1).mean()
    by_hand = np.sqrt(of_a_place / of_a_word)
    assert row.value == pytest.approx(by_hand, rel=1e-4)


def test_positions_in_the_leading_directions_of_the_words_overlap():
    words = random_rows(WORDS) * np.linspace(3, 0.1, WIDTH)
    places = random_rows(PLACES, FIRST_FOUR)
    measured = subspaces.measure_subspaces(subject_of(words, places))
    row = rows_by_name(measured)["overlap"]
    assert side_of_band(row) == 1
    curve = measured.matrices["subspace_curve"].set_index("m")
    assert curve.loc[6, "share"] > 0.9
    assert curve.loc[6, "high"] < 0.9
    assert curve.loc[WIDTH, "share"] == pytest.approx(1)


def test_disjoint_subspaces_do_not_overlap():
    words = random_rows(WORDS, LEFT_HALF)
    places = random_rows(PLACES, RIGHT_HALF)
    # They have two dimensions in common, but the values there are tiny.
    words[:, 12] = words[:, 0] * 1e-3
    places[:, 11] = places[:, 12] * 1e-3
    measured = subspaces.measure_subspaces(subject_of(words, places))
    rows = rows_by_name(measured)
    smallest_angle = rows["angles.smallest"].value
    assert rows["overlap"].value == pytest.approx(0, abs=1e-4)
    assert side_of_band(rows["mean_abs_cosine"]) == -1
    assert smallest_angle == pytest.approx(90, abs=0.5)
    assert rows["angles.median"].chance_high < 90


@pytest.fixture
def side_by_side() -> SimpleNamespace:
    """A subject whose words and positions have dimensions of their own, as in `concat-split`."""
    words = random_rows(WORDS, LEFT_HALF)
    places = random_rows(PLACES, RIGHT_HALF, seed=1)
    return subject_of(words, places)


def test_dimensions_of_the_other_table_do_not_count_in_the_shape_of_a_table(side_by_side):
    """A property by construction is no finding."""
    dimensions = subspaces.measure_dimensions(side_by_side)
    tables = subspaces.measure_tables(side_by_side)
    rows = rows_by_name(dimensions) | rows_by_name(tables)
    assert rows["moving"].value == WIDTH - 12
    for name in ("share_95", "participation_ratio.words", "participation_ratio.positions"):
        assert side_of_band(rows[name]) == 0, name


def test_the_participation_ratio_of_one_dimension_is_one(words):
    places = random_rows(PLACES, slice(1))
    measured = subspaces.measure_tables(subject_of(words, places))
    row = rows_by_name(measured)["participation_ratio.positions"]
    assert row.value == pytest.approx(1)


def test_random_positions_move_in_the_dimensions_of_the_tables_own(side_by_side):
    random = probes.with_random_positions(side_by_side.sum, 0)
    assert not random.positions[:, LEFT_HALF].any()


def test_the_probes_of_rows_leave_out_dimensions_in_which_no_row_moves(side_by_side):
    words = random_rows(WORDS)
    places = random_rows(PLACES, RIGHT_HALF, seed=1)
    narrow_subject = subject_of(words[:, RIGHT_HALF], places[:, RIGHT_HALF])
    narrow = positions.measure_position_rows(narrow_subject)
    wide = positions.measure_position_rows(side_by_side)
    assert wide.rows == narrow.rows


@pytest.mark.parametrize("measure", [subspaces.measure_subspaces, subspaces.measure_correlation])
def test_measures_of_common_dimensions_are_left_out_where_there_are_none(measure, side_by_side):
    with pytest.raises(LeftOut, match="words and positions have dimensions of their own"):
        measure(side_by_side)


@pytest.mark.parametrize(
    "measure",
    [subspaces.measure_subspaces, subspaces.measure_correlation, probes.measure_decoding],
)
def test_measures_of_positions_at_the_input_are_left_out_where_none_enters(measure, words):
    with pytest.raises(LeftOut, match="no position enters"):
        measure(subject_of(words, NO_POSITIONS))


def test_the_share_of_dimensions_by_hand():
    """The first dimension holds 90% of the variance; half of the second one holds 5% more."""
    deviations = np.array([3.0, 0.0, 0.0, 1.0])
    expected = (1 + 0.5) / 4
    assert subspaces.share_of_variance(deviations) == pytest.approx(expected)


def test_falling_and_rising_deviations_are_correlated(words, places):
    factors = 1.5 ** np.arange(1, 1 + WIDTH)
    subject = subject_of(words * factors, places / factors)
    rho, p = subspaces.measure_correlation(subject).rows
    assert rho.value == pytest.approx(-1, abs=0.02)
    assert p.value == pytest.approx(1 / 10_001)
    assert rho.chance_low == pytest.approx(-rho.chance_high, abs=0.05)


# Decoding


@pytest.fixture
def few_pairs(monkeypatch):
    """Set few pairs to decode."""
    sizes = {
        "WORD_PAIRS": 500,
        "FEWER_WORD_PAIRS": 200,
        "TEST_PAIRS": 300,
        "SEARCHED_SUMS": 300,
        "POSITION_DRAWS": 2,
    }
    for name, size in sizes.items():
        monkeypatch.setattr(probes, name, size)


@pytest.mark.usefixtures("few_pairs")
def test_words_and_positions_side_by_side_are_decoded(side_by_side):
    rows = rows_by_name(probes.measure_decoding(side_by_side))
    assert rows["sum.word_accuracy"].value == 1
    assert rows["sum.position_accuracy"].value > 0.8
    assert rows["words_alone.position_accuracy"].value < 0.1


@pytest.mark.usefixtures("few_pairs")
def test_a_few_missed_words_would_be_no_finding_where_no_draw_misses_a_word(side_by_side):
    rows = rows_by_name(probes.measure_decoding(side_by_side))
    word = rows["sum.word_accuracy"]
    assert rows["random.word_accuracy"].value == 1
    assert word.chance_low < 1
    assert word.chance_high == 1


@pytest.mark.usefixtures("few_pairs")
def test_the_chance_of_decoding_after_the_norm_is_a_guess(side_by_side):
    rows = rows_by_name(probes.measure_decoding(side_by_side))
    places = np.arange(PLACES)
    distances = np.abs(places - places[:, None])
    guesses = {
        "position_accuracy": 1 / PLACES,
        "word_accuracy": 1 / WORDS,
        "position_mae": distances.mean(),
    }
    for name, expected in guesses.items():
        row = rows[f"norm.{name}"]
        assert row.chance_low == pytest.approx(expected), name


@pytest.mark.usefixtures("few_pairs")
def test_far_larger_positions_hide_the_word():
    words = random_rows(WORDS, FIRST_FOUR)
    places = random_rows(PLACES, FIRST_FOUR, 100, seed=1)
    measured = probes.measure_decoding(subject_of(words, places))
    rows = rows_by_name(measured)
    assert rows["sum.word_accuracy"].value < 0.05
    assert rows["word_accuracy_position_known"].value == 1


@pytest.fixture(scope="module")
def decoded_layers() -> tuple[dict[str, Row], dict[str, Row]]:
    """Rows of a layer whose states have position and word side by side, and of a layer of noise."""
    generator = np.random.default_rng(0)
    table = torch.nn.Embedding(100, 16)
    ids = generator.integers(100, size=(60, 12))
    words = table(torch.from_numpy(ids)).detach()
    places = torch.eye(12).expand(60, 12, 12)
    states = torch.cat([words, places], 2).numpy()
    noise = generator.standard_normal(states.shape).astype(np.float32)
    model = SimpleNamespace(variant=SimpleNamespace(words=table))
    subject = SimpleNamespace(deep=([states, noise], []), ids=ids, model=model)
    layers: tuple[dict[str, Row], dict[str, Row]] = ({}, {})
    for row in probes.measure_decoding_layers(subject).rows:
        name = row.measure.rpartition(".")[2]
        layers[row.layer][name] = row
    return layers


def test_position_and_word_are_decoded_from_states_that_have_them_side_by_side(decoded_layers):
    """The probe has not seen the word types and sequences that it is tested on."""
    rows, _ = decoded_layers
    assert rows["position_accuracy"].value > 0.99
    assert rows["position_mae"].value < 0.01
    assert rows["word_accuracy"].value > 0.9


def test_noise_tells_no_position_and_no_word(decoded_layers):
    _, rows = decoded_layers
    position = rows["position_accuracy"]
    assert position.value == pytest.approx(position.chance_low, abs=0.1)
    assert rows["word_accuracy"].value < 0.1


def test_the_nearest_row_by_hand(monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.probes.PROBE_ROWS_AT_ONCE", 7)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    candidates = torch.randn(50, 5, generator=generator, dtype=torch.float64)
    distances = torch.cdist(rows, candidates)
    nearest = probes.nearest(rows, candidates)
    assert torch.equal(nearest, distances.argmin(1))


def test_the_nearest_row_of_another_word_by_hand(monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.probes.PROBE_ROWS_AT_ONCE", 7)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    candidates = torch.randn(50, 5, generator=generator, dtype=torch.float64)
    row_words = np.arange(30) % 4
    candidate_words = np.arange(50) % 4
    is_same_word = torch.from_numpy(row_words[:, None] == candidate_words)
    distances = torch.cdist(rows, candidates)
    distances[is_same_word] = torch.inf
    nearest = probes.nearest(rows, candidates, (row_words, candidate_words))
    assert torch.equal(nearest, distances.argmin(1))


# Positions


@pytest.fixture
def line() -> np.ndarray:
    """Rows that grow with the position along one dimension."""
    rows = random_rows(PLACES, scale=0.01)
    rows[:, 5] = np.arange(PLACES) - (PLACES - 1) / 2
    return rows


def test_a_position_in_one_dimension_is_found(line):
    assert positions.absolute_error(line) < 1
    assert positions.order_accuracy(line) > 0.9


def test_a_position_in_one_dimension_is_not_by_chance(line, words):
    subject = subject_of(words, line)
    dimensions = subspaces.measure_dimensions(subject)
    position_rows = positions.measure_position_rows(subject)
    share_95 = rows_by_name(dimensions)["share_95"]
    error = rows_by_name(position_rows)["absolute_mae"]
    assert share_95.value == pytest.approx(0.95 / WIDTH, rel=1e-2)
    assert side_of_band(share_95) == -1
    assert side_of_band(error) == -1


def test_sinusoids_by_hand():
    table = positions.sinusoid_table(128, 512)
    slowest = table[9, [255, 511]]
    expected = [np.sin(9e-4), np.cos(9e-4)]
    assert slowest == pytest.approx(expected)


DISTANCES = np.arange(30) - np.arange(30)[:, None]


def test_scores_by_nearness_are_toeplitz_local_and_symmetric():
    nearness = -np.abs(DISTANCES).astype(float)
    assert positions.toeplitz(nearness) == pytest.approx(1)
    assert positions.locality(nearness) == pytest.approx(1)
    assert positions.symmetric(nearness) == 1


def test_signed_distances_are_not_symmetric():
    assert positions.symmetric(DISTANCES.astype(float)) == 0


def test_the_toeplitz_share_by_hand():
    """The diagonals are 2, 5 and 2: 2 of 8.75 do not depend on the distance."""
    scores = np.array([[1.0, 5.0], [2.0, 3.0]])
    expected = 1 - 2 / 8.75
    assert positions.toeplitz(scores) == pytest.approx(expected)


def test_random_scores_are_hardly_toeplitz_and_half_symmetric():
    scores = np.random.default_rng(0).standard_normal((30, 30))
    assert positions.toeplitz(scores) < 0.15
    assert positions.symmetric(scores) == pytest.approx(0.5, abs=0.05)


def subject_without_positions_at_the_input(variant: str) -> SimpleNamespace:
    words = torch.zeros(3, 24)
    places = torch.zeros(POSITIONS, 24)
    model = random_model(EncoderModel, encoder_config(variant))
    return SimpleNamespace(model=model, sum=InputSum(words, places, torch.zeros(24)))


@pytest.mark.parametrize("variant", ["untied-tie-cls", "diet-abs", "four-term"])
def test_the_scores_of_positions_are_those_that_the_variant_adds(variant):
    """They may differ by a constant factor, which changes no measure."""
    subject = subject_without_positions_at_the_input(variant)
    zeros = torch.zeros(1, POSITIONS, dtype=torch.long)
    with torch.no_grad():
        (bias,) = subject.model.variant(zeros, zeros).biases()[0].double().numpy()
    rows = rows_by_name(positions.measure_position_scores(subject))
    for measure in (positions.toeplitz, positions.locality, positions.symmetric):
        row = rows[f"scores.{measure.__name__}"]
        by_hand = np.mean([measure(head) for head in bias])
        assert row.value == pytest.approx(by_hand, rel=1e-4), row.measure


@pytest.mark.parametrize("variant", ["untied-tie-cls", "diet-abs", "four-term"])
def test_a_table_has_a_row_for_every_position(variant):
    subject = subject_without_positions_at_the_input(variant)
    tables = positions.positions_of(subject)
    assert len(tables.rows) == POSITIONS


def test_the_constants_of_a_reset_cls_are_no_positions():
    subject = subject_without_positions_at_the_input("untied")
    before = positions.positions_of(subject)
    with torch.no_grad():
        subject.model.variant.positions.weight[:2] += 1
    after = positions.positions_of(subject)
    assert len(before.rows) == POSITIONS - 1
    assert len(before.queries_and_keys) == POSITIONS - 1
    assert torch.equal(before.rows, after.rows)
    assert torch.equal(before.queries_and_keys, after.queries_and_keys)


def test_where_attention_goes_by_hand():
    """Half of it goes to [CLS] and the last [SEP], which are left out."""
    inner = np.array(
        [[0.5, 0.5, 0.0, 0.0], [0.2, 0.5, 0.1, 0.2], [0.0, 0.6, 0.3, 0.1], [1.0, 0.0, 0.0, 0.0]]
    )
    attention = np.pad(inner / 2, 1, constant_values=0.25)
    subject = SimpleNamespace(deep=([], [attention[None]]))
    rows = rows_by_name(positions.measure_attention(subject))
    # The first and the last token have one side only.
    by_hand = {
        "within_1": (1 + 0.8 + 1 + 0) / 4,
        "within_2": (1 + 1 + 1 + 0) / 4,
        "left_minus_right": (0 + 0.1 + 0.5 + 0) / 4,
    }
    for name, expected in by_hand.items():
        row = rows[f"attention.{name}"]
        assert row.value == pytest.approx(expected), name


# Layers


def test_planted_parts_of_a_hidden_state_are_found():
    generator = np.random.default_rng(0)
    position = generator.standard_normal((1, 12, 8))
    context = generator.standard_normal((20, 1, 8))
    noise = generator.standard_normal((20, 12, 8))
    states = 2 * position + context + 0.1 * noise
    rows = rows_by_name(Measured(parts_of(states)))
    of_position = rows["position"]
    of_context = rows["context"]
    total = of_position.value + of_context.value + rows["residual"].value
    assert total == pytest.approx(1)
    assert of_position.value == pytest.approx(0.8, abs=0.1)
    assert of_context.value == pytest.approx(0.2, abs=0.1)
    assert side_of_band(of_position) == 1


def test_a_line_of_positions_has_rank_one_and_is_orthogonal_to_another_axis():
    first_axis, second_axis, *_ = np.eye(8)
    places = np.arange(12.0)[:, None] * first_axis
    contexts = np.random.default_rng(0).standard_normal((20, 1, 1)) * second_axis
    rows = rows_by_name(Measured(parts_of(places + contexts)))
    assert rows["rank"].value == 1
    assert rows["cosine"].value == pytest.approx(0, abs=1e-6)
    assert rows["residual"].value == pytest.approx(0, abs=1e-6)


def test_the_share_of_positions_in_noise_is_one_part_of_the_sequences():
    noise = np.random.default_rng(0).standard_normal((20, 12, 8))
    centred = noise - noise.mean((0, 1))
    assert share(centred, 0) == pytest.approx(1 / 20, abs=0.02)
