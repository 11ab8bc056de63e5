"""Measures with other options than the defaults, compared with another computation."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.tiny_models import SENTENCES, encoder_config, random_model

from glue_bench.analysis import positions, probes, subspaces, word_order
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
        row[[0, cut - 1, -1]] = (
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.sep_token_id,
        )
        rows.append(row.astype(np.int32))
        cuts.append(cut)
    offsets = np.cumsum([0, *map(len, rows)])
    return HeldOut(PackedText(np.concatenate(rows), offsets, cuts=np.array(cuts)), tokenizer)


@pytest.fixture(scope="module")
def model(text) -> EncoderForMaskedLM:
    return random_model(EncoderForMaskedLM, encoder_config("add", vocab_size=len(text.tokenizer)))


@torch.no_grad()
def likelihood(model, text, ids: list[int], places: list[int], segments: torch.Tensor) -> float:
    """The log-probability of the tokens at these places, each masked by itself."""
    total = 0.0
    for place in places:
        masked = torch.tensor([ids])
        masked[0, place] = text.tokenizer.mask_token_id
        logits = model(masked, None, segments).logits[0, place]
        total += logits.log_softmax(-1)[ids[place]].item()
    return total


@pytest.mark.parametrize("distance", [1, 2])
def test_swaps_are_counted_sequence_by_sequence_with_its_segments(text, model, distance):
    """The model itself is asked whether it prefers each original."""
    sums = swap_sums(model, text, distance)
    for index, probe in enumerate(text.probes):
        ids = probe.ids.tolist()
        segments = torch.from_numpy(probe.masked.segments)[None]
        assert segments.any(), "there are two segments"
        preferred = 0
        chosen = pairs(probe, distance, index, text)
        for (a, b), (c, d) in chosen:
            swapped = ids[:a] + ids[c:d] + ids[b:c] + ids[a:b] + ids[d:]
            as_written = likelihood(model, text, ids, [*range(a, b), *range(c, d)], segments)
            places = [*range(a, a + d - c), *range(d - b + a, d)]
            preferred += as_written > likelihood(model, text, swapped, places, segments)
        assert sums.sums[index] == preferred, index
        assert sums.counts[index] == len(chosen), index


def test_equal_sequences_have_swaps_of_their_own(text):
    """If not, a text that repeats itself would give the same swap again and again."""
    chosen = {tuple(pairs(text.probes[0], 1, index, text)) for index in range(8)}
    assert len(chosen) > 1


@pytest.mark.parametrize(
    ("large", "distances", "sequences"), [(2e7, (1, 2, 4, 8), 128), (0, (1,), 16)]
)
def test_of_a_large_encoder_neighbours_alone_are_swapped_in_fewer_sequences(
    text, model, monkeypatch, large, distances, sequences
):
    monkeypatch.setattr(word_order, "LARGE_WEIGHTS", large)
    asked = []

    def head_and_text(count: int) -> tuple[EncoderForMaskedLM, HeldOut]:
        asked.append(count)
        return model, text

    subject = SimpleNamespace(model=model.base, positions=16, head_and_text=head_and_text)
    measured = word_order.measure_order(subject)
    swaps = {row.measure for row in measured.rows if "swap" in row.measure}
    left_out_swaps = {name for name in measured.left_out if "swap" in name}
    assert asked == [sequences]
    assert swaps | left_out_swaps == {f"order.swap.{distance}" for distance in distances}


def test_intervals_of_shares_stay_between_0_and_1_and_those_of_rises_are_students(text, model):
    subject = SimpleNamespace(model=model.base, positions=16, head_and_text=lambda _: (model, text))
    rows = {row.measure: row for row in word_order.measure_order(subject).rows}
    sums = order_sums(model, text, 16)
    swap = rows["order.swap.1"]
    rise = rows["order.shuffle.1"]
    assert (swap.low, swap.high) == pytest.approx(sums["swap_1"].share_interval)
    assert swap.chance_low == 0.5
    assert swap.chance_high == 0.5
    assert (rise.low, rise.high) == pytest.approx(sums["shuffle_1"].interval)
    assert rise.chance_low == 0.0
    assert rise.chance_high == 0.0


def short_text(tokenizer, rows: list[list[int]]) -> HeldOut:
    framed = []
    for row in rows:
        framed.append([tokenizer.cls_token_id, *row, tokenizer.sep_token_id])
    offsets = np.cumsum([0, *map(len, framed)])
    return HeldOut(PackedText(np.concatenate(framed).astype(np.int32), offsets), tokenizer)


def test_of_originals_that_are_all_preferred_the_interval_is_that_of_a_share(text, model):
    """Their spread is 0, but a few texts do not prove that every original is preferred."""
    generator = np.random.default_rng(0)
    rows = generator.integers(5, len(text.tokenizer), size=(60, 4)).tolist()
    sums = swap_sums(model, short_text(text.tokenizer, rows), 1)
    is_won = (sums.sums == sums.counts) & (sums.counts > 0)
    won = short_text(text.tokenizer, [rows[index] for index in np.flatnonzero(is_won)])
    subject = SimpleNamespace(model=model.base, positions=16, head_and_text=lambda _: (model, won))
    measured = {row.measure: row for row in word_order.measure_order(subject).rows}
    swap = measured["order.swap.1"]
    assert swap.n == is_won.sum()
    assert swap.value == swap.high == 1.0
    expected = 0.025 ** (1 / swap.n)
    assert swap.low == pytest.approx(expected)


# Bands


def test_the_band_of_the_error_of_positions_comes_of_tables_that_differ(monkeypatch):
    monkeypatch.setattr(probes, "WORD_PAIRS", 200)
    monkeypatch.setattr(probes, "FEWER_WORD_PAIRS", 100)
    monkeypatch.setattr(probes, "TEST_PAIRS", 200)
    monkeypatch.setattr(probes, "SUMS", 100)
    monkeypatch.setattr(probes, "DRAWS", 3)
    subject = SimpleNamespace(sum=table_of(), model=SimpleNamespace(norm=torch.nn.Identity()))
    measured = {row.measure: row for row in probes.measure_decoding(subject).rows}
    for name in ("position_mae", "position_accuracy", "word_accuracy"):
        row = measured[f"decoding.sum.{name}"]
        assert row.chance_low < row.chance_high, name


def test_attention_in_random_order_is_that_of_tokens_that_all_change_places():
    """A token that attends to itself does so in every order."""
    attention = np.pad(np.eye(12)[None], ((0, 0), (1, 1), (1, 1)), constant_values=0.0)
    attention[:, 0, 0] = attention[:, -1, -1] = 1.0
    measured = positions.measure_attention(SimpleNamespace(deep=([], [attention])))
    for row in measured.rows:
        expected = 0.0 if row.measure.endswith("right") else 1.0
        assert row.value == row.chance_low == row.chance_high == expected, row.measure


@torch.no_grad()
def test_scores_of_more_positions_than_are_measured_are_those_of_the_first(monkeypatch):
    monkeypatch.setattr(positions, "SCORE_ORDERS", 3)
    monkeypatch.setattr(positions, "MAX_POSITIONS", 20)
    model = random_model(EncoderModel, encoder_config("untied-tie-cls", max_position_embeddings=30))
    subject = SimpleNamespace(model=model, sum=input_sum(model, 30))
    zeros = torch.zeros(1, 20, dtype=torch.long)
    scores = model.variant(zeros, zeros).bias[0].double().numpy()
    rows = {row.measure: row.value for row in positions.measure_position_scores(subject).rows}
    for measure in (positions.toeplitz, positions.locality, positions.symmetric):
        name = measure.__name__
        expected = np.mean([measure(of_head) for of_head in scores])
        assert rows[f"positions.scores.{name}"] == pytest.approx(expected, rel=1e-4), name


def table_of(words: int = 90, places: int = 20, width: int = 12) -> InputSum:
    generator = torch.Generator().manual_seed(0)
    word_rows = torch.randn(words, width, generator=generator)
    place_rows = torch.randn(places, width, generator=generator)
    return InputSum(
        words=word_rows - word_rows.mean(0),
        positions=place_rows - place_rows.mean(0),
        mean=torch.randn(width, generator=generator),
    )


def planted_table(rows: int, directions: int, generator: np.random.Generator) -> np.ndarray:
    """Draw centred rows in a subspace with this number of directions."""
    coordinates = generator.standard_normal((rows, directions))
    table = coordinates @ generator.standard_normal((directions, 12))
    return table - table.mean(0)


def leading_basis(table: np.ndarray) -> np.ndarray:
    """Return the directions that hold 95% of the variance, as rows."""
    _, sizes, directions = np.linalg.svd(table, full_matrices=False)
    shares = np.cumsum(sizes**2) / np.sum(sizes**2)
    return directions[: 1 + int(np.sum(shares < 0.95))]


@pytest.mark.parametrize(("word_directions", "place_directions"), [(3, 7), (7, 3), (5, 5)])
def test_angles_are_those_of_the_leading_directions_of_each_table(
    word_directions, place_directions
):
    """The angles are computed from the singular values of the product of both bases."""
    generator = np.random.default_rng(0)
    words = planted_table(90, word_directions, generator)
    places = planted_table(40, place_directions, generator)
    word_basis = leading_basis(words)
    place_basis = leading_basis(places)
    cosines = np.linalg.svd(word_basis @ place_basis.T, compute_uv=False).clip(max=1)
    by_hand = np.degrees(np.arccos(cosines))
    table = InputSum(
        torch.from_numpy(words).float(), torch.from_numpy(places).float(), torch.zeros(12)
    )
    values = {}
    for row in subspaces.measure_subspaces(SimpleNamespace(sum=table)).rows:
        values[row.measure.rpartition(".")[2]] = row.value
    assert values["words_dimensions"] == len(word_basis)
    assert values["positions_dimensions"] == len(place_basis)
    assert values["median"] == pytest.approx(np.median(by_hand), abs=0.1)
    assert values["largest"] == pytest.approx(by_hand.max(), abs=0.1)


def test_words_are_looked_for_among_what_the_norm_makes_of_them():
    """A norm that only makes all rows longer changes no answer."""
    table = table_of()
    plain = probes.word_accuracy(table, probes.PLAIN, 300)
    longer = probes.word_accuracy(table, lambda rows: 50 * rows, 300)
    assert 0.1 < plain < 1
    assert longer == plain


def test_random_positions_are_others_at_every_draw_and_as_long_as_those_of_the_table():
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
    monkeypatch.setattr(probes, "SUMS", 500)
    table = table_of(words)
    rows = {row.measure: row.value for row in probes.collisions(table)}
    distances = torch.cdist(table.words, table.words)
    nearest = distances.fill_diagonal_(torch.inf).min(1).values
    assert rows["decoding.collisions.nearest_word_median"] == pytest.approx(
        float(nearest.median()), rel=1e-3
    )
    sums = (table.words[:, None] + table.positions).flatten(0, 1)
    owners = torch.arange(words).repeat_interleave(len(table.positions))
    between = torch.cdist(sums, sums).masked_fill(owners[:, None] == owners, torch.inf)
    assert rows["decoding.collisions.smallest"] >= float(between.min()) - 1e-4


@torch.no_grad()
def test_equal_sequences_are_shuffled_each_in_an_order_of_its_own():
    """Rows of the first shuffle agree in few places.

    A masked token or two may differ in any case.
    """
    tokenizer = train_tokenizer(SENTENCES, 150)
    row = [tokenizer.cls_token_id, *range(40, 58), tokenizer.sep_token_id]
    packed = PackedText(np.array(row * 6, dtype=np.int32), np.arange(7) * len(row))
    config = encoder_config("add", vocab_size=len(tokenizer), max_position_embeddings=len(row))
    model = random_model(EncoderForMaskedLM, config)
    batches = []
    model.base.variant.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0]))
    order_sums(model, HeldOut(packed, tokenizer, mask_probability=0.05), len(row), [])
    shuffled = batches[1]
    expected = (6, len(row))
    assert shuffled.shape == expected
    for number in range(1, 6):
        agreed = int((shuffled[0] == shuffled[number]).sum())
        assert agreed < len(row) - 6, f"row {number} agrees in {agreed} places"
