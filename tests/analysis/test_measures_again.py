"""Measures with other options than the defaults, compared with another computation."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.tiny_models import SENTENCES, encoder_config, random_model

from glue_bench.analysis import positions, probes, subspaces, word_order
from glue_bench.analysis.chance import Row
from glue_bench.analysis.held_out import HeldOut
from glue_bench.analysis.hooks import InputSum, input_sum
from glue_bench.analysis.word_order import order_sums, pairs, swap_sums
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import train_tokenizer

LENGTHS = (14, 9, 16, 12)


@pytest.fixture(scope="module")
def text() -> HeldOut:
    """Sequences of unequal lengths in two segments, with a separator between them."""
    tokenizer = train_tokenizer(SENTENCES, 150)
    generator = np.random.default_rng(0)
    rows = []
    cuts = []
    for length in LENGTHS * 2:
        row = generator.integers(5, len(tokenizer), size=length)
        cut = length // 2
        row[0] = tokenizer.cls_token_id
        row[cut - 1] = tokenizer.sep_token_id
        row[-1] = tokenizer.sep_token_id
        rows.append(row.astype(np.int32))
        cuts.append(cut)
    offsets = np.cumsum([0, *map(len, rows)])
    packed = PackedText(np.concatenate(rows), offsets, cuts=np.array(cuts))
    return HeldOut(packed, tokenizer)


@pytest.fixture(scope="module")
def model(text) -> EncoderForMaskedLM:
    config = encoder_config("add", vocab_size=len(text.tokenizer))
    return random_model(EncoderForMaskedLM, config)


def subject_with(model: EncoderForMaskedLM, text: HeldOut) -> SimpleNamespace:
    """Make a subject that has this encoder and reads this text."""
    return SimpleNamespace(model=model.base, positions=16, head_and_text=lambda _: (model, text))


@torch.no_grad()
def likelihood(model, text, ids: list[int], places: list[int], segments: torch.Tensor) -> float:
    """Return the log-probability of the tokens at these places, each masked by itself."""
    total = 0.0
    for place in places:
        masked = torch.tensor([ids])
        masked[0, place] = text.tokenizer.mask_token_id
        logits = model(masked, None, segments).logits[0, place]
        log_p = logits.log_softmax(-1)
        total += log_p[ids[place]].item()
    return total


@pytest.mark.parametrize("distance", [1, 2])
def test_swaps_are_counted_for_each_sequence_with_its_segments(text, model, distance):
    """The model itself is asked whether it prefers each original."""
    sums = swap_sums(model, text, distance)
    for index, probe in enumerate(text.probes):
        ids = probe.ids.tolist()
        segments = torch.from_numpy(probe.masked.segments)[None]
        assert segments.any(), "there are two segments"
        preferred = 0
        chosen = pairs(probe, distance, index, text)
        for (a, b), (c, d) in chosen:
            # The first word is ids[a:b], and the second word is ids[c:d].
            swapped = ids[:a] + ids[c:d] + ids[b:c] + ids[a:b] + ids[d:]
            places = [*range(a, b), *range(c, d)]
            swapped_places = [*range(a, a + d - c), *range(d - b + a, d)]
            of_original = likelihood(model, text, ids, places, segments)
            of_swapped = likelihood(model, text, swapped, swapped_places, segments)
            preferred += of_original > of_swapped
        assert sums.sums[index] == preferred, index
        assert sums.counts[index] == len(chosen), index


def test_equal_sequences_have_swaps_of_their_own(text):
    """If not, a text that repeats itself would give the same swap again and again."""
    probe = text.probes[0]
    swaps = {tuple(pairs(probe, 1, index, text)) for index in range(8)}
    assert len(swaps) > 1


@pytest.mark.parametrize(
    ("large", "distances", "sequences"), [(2e7, (1, 2, 4, 8), 128), (0, (1,), 16)]
)
def test_a_large_encoder_swaps_neighbours_alone_in_fewer_sequences(
    text, model, monkeypatch, large, distances, sequences
):
    monkeypatch.setattr(word_order, "LARGE_WEIGHTS", large)
    asked = []

    def head_and_text(count: int) -> tuple[EncoderForMaskedLM, HeldOut]:
        asked.append(count)
        return model, text

    subject = SimpleNamespace(model=model.base, positions=16, head_and_text=head_and_text)
    measured = word_order.measure_order(subject)
    names = [row.measure for row in measured.rows]
    names += measured.left_out
    swaps = {name for name in names if "swap" in name}
    assert asked == [sequences]
    assert swaps == {f"order.swap.{distance}" for distance in distances}


def rows_of_order(model: EncoderForMaskedLM, text: HeldOut) -> dict[str, Row]:
    """Measure how much an encoder uses the order of words; return the rows by measure."""
    measured = word_order.measure_order(subject_with(model, text))
    return {row.measure: row for row in measured.rows}


def test_swapped_words_have_the_interval_of_a_share_and_a_chance_of_a_half(text, model):
    row = rows_of_order(model, text)["order.swap.1"]
    sums = order_sums(model, text, 16)["swap_1"]
    assert (row.low, row.high) == pytest.approx(sums.share_interval)
    assert row.chance_low == 0.5
    assert row.chance_high == 0.5


def test_a_rise_of_the_loss_has_students_interval_and_a_chance_of_zero(text, model):
    row = rows_of_order(model, text)["order.shuffle.1"]
    sums = order_sums(model, text, 16)["shuffle_1"]
    assert (row.low, row.high) == pytest.approx(sums.interval)
    assert row.chance_low == 0.0
    assert row.chance_high == 0.0


def short_text(tokenizer, rows: list[list[int]]) -> HeldOut:
    framed = []
    for row in rows:
        framed.append([tokenizer.cls_token_id, *row, tokenizer.sep_token_id])
    offsets = np.cumsum([0, *map(len, framed)])
    ids = np.concatenate(framed).astype(np.int32)
    return HeldOut(PackedText(ids, offsets), tokenizer)


def test_originals_that_are_all_preferred_have_an_interval_of_some_width(text, model):
    """Their spread is 0, but a few texts do not prove that every original is preferred."""
    generator = np.random.default_rng(0)
    rows = generator.integers(5, len(text.tokenizer), size=(60, 4)).tolist()
    sums = swap_sums(model, short_text(text.tokenizer, rows), 1)
    is_preferred = (sums.sums == sums.counts) & (sums.counts > 0)
    preferred_rows = [rows[index] for index in np.flatnonzero(is_preferred)]
    preferred_text = short_text(text.tokenizer, preferred_rows)
    row = rows_of_order(model, preferred_text)["order.swap.1"]
    expected = 0.025 ** (1 / row.n)
    assert row.n == len(preferred_rows)
    assert row.value == row.high == 1.0
    assert row.low == pytest.approx(expected)


# Bands


def table_of(words: int = 90, places: int = 20, width: int = 12) -> InputSum:
    generator = torch.Generator().manual_seed(0)
    word_rows = torch.randn(words, width, generator=generator)
    place_rows = torch.randn(places, width, generator=generator)
    return InputSum(
        words=word_rows - word_rows.mean(0),
        positions=place_rows - place_rows.mean(0),
        mean=torch.randn(width, generator=generator),
    )


def test_the_bands_of_decoding_come_from_random_tables_that_differ(monkeypatch):
    sizes = {
        "WORD_PAIRS": 200,
        "FEWER_WORD_PAIRS": 100,
        "TEST_PAIRS": 200,
        "SEARCHED_SUMS": 100,
        "POSITION_DRAWS": 3,
    }
    for name, size in sizes.items():
        monkeypatch.setattr(probes, name, size)
    model = SimpleNamespace(norm=torch.nn.Identity())
    subject = SimpleNamespace(sum=table_of(), model=model)
    measured = {row.measure: row for row in probes.measure_decoding(subject).rows}
    for name in ("position_mae", "position_accuracy", "word_accuracy"):
        row = measured[f"decoding.sum.{name}"]
        assert row.chance_low < row.chance_high, name


def test_attention_of_tokens_to_themselves_is_the_same_in_every_random_order():
    """All tokens change places together, so a token still attends to itself."""
    attention = np.eye(14)[None]
    subject = SimpleNamespace(deep=([], [attention]))
    measured = positions.measure_attention(subject)
    for row in measured.rows:
        expected = 0.0 if row.measure.endswith("right") else 1.0
        assert row.value == row.chance_low == row.chance_high == expected, row.measure


@torch.no_grad()
def test_only_the_scores_of_the_first_positions_are_measured(monkeypatch):
    monkeypatch.setattr(positions, "SCORE_ORDERS", 3)
    monkeypatch.setattr(positions, "MAX_MEASURED_POSITIONS", 20)
    config = encoder_config("untied-tie-cls", max_position_embeddings=30)
    model = random_model(EncoderModel, config)
    subject = SimpleNamespace(model=model, sum=input_sum(model, 30))
    measured = positions.measure_position_scores(subject)
    values = {row.measure: row.value for row in measured.rows}
    zeros = torch.zeros(1, 20, dtype=torch.long)
    scores = model.variant(zeros, zeros).bias[0].double().numpy()
    for measure in (positions.toeplitz, positions.locality, positions.symmetric):
        name = f"positions.scores.{measure.__name__}"
        expected = np.mean([measure(of_head) for of_head in scores])
        assert values[name] == pytest.approx(expected, rel=1e-4), name


def planted_table(rows: int, directions: int, generator: np.random.Generator) -> np.ndarray:
    """Draw centred rows in a subspace with this number of directions."""
    coordinates = generator.standard_normal((rows, directions))
    table = coordinates @ generator.standard_normal((directions, 12))
    return table - table.mean(0)


def leading_basis(table: np.ndarray) -> np.ndarray:
    """Return the directions that hold 95% of the variance, as rows."""
    _, sizes, directions = np.linalg.svd(table, full_matrices=False)
    variances = sizes**2
    shares = np.cumsum(variances) / variances.sum()
    count = 1 + np.count_nonzero(shares < 0.95)
    return directions[:count]


@pytest.mark.parametrize(("word_directions", "place_directions"), [(3, 7), (7, 3), (5, 5)])
def test_angles_are_between_the_leading_directions_of_both_tables(
    word_directions, place_directions
):
    """The angles are computed from the singular values of the product of both bases."""
    generator = np.random.default_rng(0)
    words = planted_table(90, word_directions, generator)
    places = planted_table(40, place_directions, generator)
    word_basis = leading_basis(words)
    place_basis = leading_basis(places)
    products = word_basis @ place_basis.T
    cosines = np.linalg.svd(products, compute_uv=False).clip(max=1)
    by_hand = np.degrees(np.arccos(cosines))
    table = InputSum(
        words=torch.from_numpy(words).float(),
        positions=torch.from_numpy(places).float(),
        mean=torch.zeros(12),
    )
    measured = subspaces.measure_subspaces(SimpleNamespace(sum=table))
    values = {row.measure.rpartition(".")[2]: row.value for row in measured.rows}
    assert values["words_dimensions"] == len(word_basis)
    assert values["positions_dimensions"] == len(place_basis)
    assert values["median"] == pytest.approx(np.median(by_hand), abs=0.1)
    assert values["largest"] == pytest.approx(by_hand.max(), abs=0.1)


def test_words_pass_through_the_norm_like_the_sums_that_they_are_compared_with():
    """A norm that only makes all rows longer changes no answer."""
    table = table_of()
    plain = probes.word_accuracy(table, probes.NO_NORM, 300)
    longer = probes.word_accuracy(table, lambda rows: 50 * rows, 300)
    assert 0.1 < plain < 1
    assert longer == plain


def test_random_positions_differ_at_every_draw_and_are_as_long_as_the_tables_own():
    table = table_of()
    draws = [probes.with_random_positions(table, draw).positions for draw in range(3)]
    assert not torch.allclose(draws[0], draws[1])
    assert not torch.allclose(draws[1], draws[2])
    length = float(table.positions.norm(dim=1).mean())
    for rows in draws:
        mean_length = (rows - rows.mean(0)).norm(dim=1).mean()
        assert float(mean_length) == pytest.approx(length, rel=0.1)


@pytest.mark.parametrize("words", [40, 90])
def test_collisions_are_of_different_words(words, monkeypatch):
    """The distances between all words and between all sums are computed."""
    monkeypatch.setattr(probes, "SEARCHED_SUMS", 500)
    table = table_of(words)
    values = {row.measure: row.value for row in probes.collisions(table)}
    word_distances = torch.cdist(table.words, table.words)
    nearest = word_distances.fill_diagonal_(torch.inf).min(1).values
    sums = (table.words[:, None] + table.positions).flatten(0, 1)
    owners = torch.arange(words).repeat_interleave(len(table.positions))
    distances = torch.cdist(sums, sums)
    distances[owners[:, None] == owners] = torch.inf
    median = values["decoding.collisions.nearest_word_median"]
    smallest = values["decoding.collisions.smallest"]
    assert median == pytest.approx(nearest.median().item(), rel=1e-3)
    assert smallest >= distances.min().item() - 1e-4


@torch.no_grad()
def test_each_of_several_equal_sequences_is_shuffled_in_its_own_order():
    """Rows of the first shuffle agree in few places.

    A masked token or two may differ in any case.
    """
    tokenizer = train_tokenizer(SENTENCES, 150)
    row = [tokenizer.cls_token_id, *range(40, 58), tokenizer.sep_token_id]
    length = len(row)
    ids = np.array(row * 6, dtype=np.int32)
    packed = PackedText(ids, np.arange(7) * length)
    text = HeldOut(packed, tokenizer, mask_probability=0.05)
    config = encoder_config("add", vocab_size=len(tokenizer), max_position_embeddings=length)
    model = random_model(EncoderForMaskedLM, config)
    batches = []
    model.base.variant.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0]))
    order_sums(model, text, length, [])
    shuffled = batches[1]
    assert shuffled.shape == (6, length)
    first, *later_rows = shuffled
    for number, row_of_ids in enumerate(later_rows, 2):
        agreed = int((first == row_of_ids).sum())
        assert agreed < length - 6, f"row {number} agrees in {agreed} places"
