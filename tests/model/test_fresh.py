"""Fresh weights: seeds decide them, and whoever draws them leaves no trace in the generators of the
process.
"""

import random
from contextlib import suppress

import numpy as np
import pytest
import torch
from helpers.tiny_models import encoder_config

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fixed_seed, fresh, on_meta, on_threads, seed_of
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import Add

DRAWS = {
    "torch": lambda: float(torch.rand(1, device="cpu")),
    "numpy": lambda: float(np.random.rand()),  # noqa: NPY002
    "python": random.random,
}


class Drawing(Add):
    """A variant that draws from every generator, as a plugin may."""

    def __init__(self, dims):
        super().__init__(dims)
        for draw in DRAWS.values():
            draw()


def draw_nothing() -> None:
    """Do nothing, for comparison."""


def raise_within() -> None:
    with suppress(ValueError), fixed_seed(5):
        draw_all()
        raise ValueError("within")


def draw_all() -> list[float]:
    return [draw() for draw in DRAWS.values()]


WORK = {
    "fresh": lambda: fresh(EncoderModel, encoder_config("drawing"), 5),
    "on_meta": lambda: on_meta(EncoderModel, encoder_config("drawing")),
    "an error": raise_within,
}


@pytest.mark.parametrize("generator", DRAWS)
@pytest.mark.parametrize("work", WORK)
def test_a_generator_goes_on_as_if_nothing_had_been_drawn(work, generator, monkeypatch):
    monkeypatch.setitem(VARIANTS, "drawing", Drawing)
    draw = DRAWS[generator]
    numbers = []
    for task in (draw_nothing, WORK[work]):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        task()
        numbers.append(draw())
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("generator", DRAWS)
def test_what_is_drawn_follows_from_the_seed_alone(generator):
    draw = DRAWS[generator]
    numbers = []
    for seed in (1, 1, 2):
        draw()
        with fixed_seed(seed):
            numbers.append(draw())
    assert numbers[0] == numbers[1] != numbers[2]


@pytest.mark.parametrize("kind", [EncoderModel, EncoderForMaskedLM])
def test_every_matrix_is_another_of_another_seed(kind):
    """With the same seed every matrix is the same a second time."""
    first, repeated, reseeded = (
        fresh(kind, encoder_config("untied"), seed).state_dict() for seed in (1, 1, 2)
    )
    matrices = [name for name, weight in first.items() if weight.ndim > 1]
    assert len(matrices) > 10
    for name in matrices:
        assert torch.equal(first[name], repeated[name]), name
        assert not torch.equal(first[name], reseeded[name]), name


def test_no_two_blocks_start_with_the_same_weights():
    config = encoder_config("add", num_hidden_layers=3)
    weights = fresh(EncoderModel, config, 1).state_dict()
    tables = [weights[f"blocks.{block}.attention.qkv.weight"] for block in range(3)]
    assert not torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[1], tables[2])


def test_each_part_changes_a_seed():
    seeds = {seed_of(1, 2), seed_of(2, 1), seed_of(12), seed_of(1, 2, 0), seed_of("1 3")}
    assert len(seeds) == 5
    assert min(seeds) >= 0
    assert max(seeds) < 2**63


def test_threads_are_as_before_after_an_error_too():
    before = torch.get_num_threads()
    with suppress(ValueError), on_threads(before + 1):
        raise ValueError(torch.get_num_threads())
    assert torch.get_num_threads() == before
