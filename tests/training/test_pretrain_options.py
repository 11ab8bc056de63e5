"""A pretraining with a seed, a share of masks and rows of validation away from the defaults, beside
plain torch.
"""

import time
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers.tiny_pretraining import CPU, LENGTH, STILL, Tiny, config, plainly_trained
from torch.nn.functional import cross_entropy

from glue_bench.config import load_experiment
from glue_bench.model.fresh import seed_of
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import Start
from glue_bench.model.variants import VARIANTS
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training import device, masking, packing
from glue_bench.training.inputs import Inputs
from glue_bench.training.masked_lm import build_masked_lm
from glue_bench.training.masking import (
    MaskedBatch,
    Vocabulary,
    masked_evaluation_batches,
    training_batch,
)
from glue_bench.training.pretrain import pretrain

SEED, SHARE, STEPS = 2, 0.4, 7


def target_losses(model: EncoderForMaskedLM, batch: MaskedBatch) -> torch.Tensor:
    """Return -log p of each target, from the head at every place."""
    logits = model(batch.ids, batch.mask, batch.segments).logits.flatten(0, 1)
    return cross_entropy(logits[batch.places], batch.targets, reduction="none")


def plain_losses(tiny: Tiny, model: EncoderForMaskedLM):
    """Yield the loss of each step as a function, with the dropout of that step."""
    text = tiny.packed_text["train"]
    vocabulary = Vocabulary.of(tiny.arm.tokenizer)
    rows = tiny.run.settings.rows
    for step in range(STEPS):
        batch = training_batch(
            text, vocabulary, rows=rows, mask_probability=SHARE, seed=SEED, step=step
        )
        torch.manual_seed(seed_of(SEED, step, 0))
        yield [lambda batch=batch: target_losses(model, batch).mean()]


def test_a_pretraining_of_another_seed_and_share_of_masks_equals_plain_torch(tmp_path):
    """There is dropout, and more than one epoch."""
    tiny = Tiny.of(
        tmp_path,
        seeds=[SEED],
        mask_probability=SHARE,
        steps=STEPS,
        batch_tokens=40 * LENGTH,
        learning_rates=[0.05],
        adam_epsilon=1e-2,
        clip_norm=0.05,
        weight_decay=0.3,
        warmup_ratio=0.3,
        dropout=0.3,
    )

    facts = tiny.finish().record
    model = build_masked_lm(tiny.arm.start, SEED, 0.3)
    losses = plainly_trained(model, tiny.run.settings, STEPS, plain_losses(tiny, model))

    assert facts.tokens > 2 * facts.corpus_tokens
    assert [point.train_loss for point in facts.losses] == pytest.approx(losses, abs=1e-5)
    expected = model.state_dict()
    for name, weight in tiny.weights(STEPS).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-5, msg=name)


class Pieces(NamedTuple):
    """The sum of losses and the number of targets of each piece, added target by target."""

    loss_sum: np.ndarray
    count: np.ndarray


def by_piece(tiny: Tiny) -> Pieces:
    text = tiny.packed_text["validation"]
    vocabulary = Vocabulary.of(tiny.arm.tokenizer)
    model = EncoderForMaskedLM.from_pretrained(tiny.checkpoint(STEPS)).eval()
    starts = text.pieces[0].tolist()
    pieces = Pieces(np.zeros(len(starts)), np.zeros(len(starts), dtype=int))
    sequence = 0
    for batch in masked_evaluation_batches(text, vocabulary, SHARE, seed=1):
        with torch.no_grad():
            losses = target_losses(model, batch).tolist()
        length = batch.ids.shape[1]
        for place, loss in zip(batch.places.tolist(), losses, strict=True):
            token = text.offsets[sequence + place // length] + place % length
            piece = max(number for number, start in enumerate(starts) if start <= token)
            pieces.loss_sum[piece] += loss
            pieces.count[piece] += 1
        sequence += len(batch.ids)
    return pieces


@pytest.fixture
def validated(tmp_path, monkeypatch):
    """A pretraining that is validated three times, in batches of five sequences, of which the last
    is not full.
    """
    monkeypatch.setattr(masking, "EVALUATION_ROWS", 5)
    monkeypatch.setattr(packing, "PIECE_TOKENS", 40)
    settings = {
        "mask_probability": SHARE,
        "validation_share": 0.2,
        "validations": 3,
        "steps": STEPS,
    }
    return Tiny.of(tmp_path, scratch=STILL, seeds=[SEED], **settings)


def test_the_loss_of_each_piece_is_the_sum_over_its_targets(validated):
    """The losses are from the last validation, whose masks depend on no seed."""
    outcome = validated.finish()
    expected = by_piece(validated)
    sequences = len(validated.packed_text["validation"])
    assert sequences > 10, "there are three batches"
    assert sequences % 5 > 0, "the last batch is not full"
    assert outcome.validation["count"].tolist() == expected.count.tolist()
    assert outcome.validation["loss_sum"] == pytest.approx(expected.loss_sum, rel=1e-5)
    mean = expected.loss_sum.sum() / expected.count.sum()
    assert outcome.record.validation_loss == pytest.approx(mean, rel=1e-6)


def test_every_validation_has_the_same_masks(tmp_path):
    """If nothing is learnt, every loss is the same."""
    tiny = Tiny.of(
        tmp_path, learning_rates=[1e-30], validations=4, steps=STEPS, mask_probability=SHARE
    )
    losses = [point.validation_loss for point in tiny.finish().record.losses]
    validated = [loss for loss in losses if loss is not None]
    assert len(validated) == 4
    assert len(set(validated)) == 1, validated


@pytest.mark.parametrize(
    ("origin", "after"),
    [
        ("scratch", "pretrained"),
        ("pretrained", "pretrained"),
        ("grafted", "adapted"),
        ("adapted", "adapted"),
    ],
)
def test_the_origin_after_a_pretraining_follows_from_the_origin_before(origin, after):
    start = Start(config(), {}, origin)
    assert build_masked_lm(start, SEED).config.origin == after


def test_a_rate_that_a_search_has_chosen_is_the_rate_of_the_run(tmp_path):
    """The search has three rates and two seeds."""
    chosen = 2e-3
    alone = Tiny.of(tmp_path / "alone", seeds=[SEED], learning_rates=[chosen], steps=STEPS)
    search = {"steps": 3, "seeds": [0, 7]}
    experiment = alone.inputs.experiment.model_dump(by_alias=True, exclude_none=True)
    experiment["pretraining"] |= {"learning_rates": [5e-3, chosen, 1e-4], "rate_search": search}
    inputs = Inputs(load_experiment(experiment), tmp_path / "searched")
    jobs, _ = settle_jobs(inputs)
    searches = [job for job in jobs if job.is_search]
    rates_and_seeds = {(job.learning_rate, job.seed) for job in searches}
    assert rates_and_seeds == set(product((5e-3, chosen, 1e-4), (0, 7)))
    job = next(job for job in jobs if not job.is_search).model_copy(update={"rate": chosen})
    facts = pretrain(job, inputs, CPU).record
    assert facts.losses[-1].train_loss == alone.finish().record.losses[-1].train_loss


class Slow(VARIANTS["add"]):
    """A variant that takes 0.1 s for each batch in evaluation."""

    def forward(self, token_ids, segment_ids):
        if not self.training and token_ids.device.type != "meta":
            time.sleep(0.1)
        return super().forward(token_ids, segment_ids)


def test_seconds_of_a_pretraining_do_not_count_validations(tmp_path, monkeypatch):
    monkeypatch.setitem(VARIANTS, "slow", Slow)
    tiny = Tiny.of(tmp_path, "slow", steps=STEPS, validations=4)
    began = time.perf_counter()
    facts = tiny.finish().record
    assert facts.seconds + 4 * 0.1 <= time.perf_counter() - began
    assert facts.losses[-1].seconds <= facts.seconds


@pytest.mark.parametrize(("shared_work", "threads"), [(2**18, 1), (1, 2)])
def test_steps_that_are_large_enough_to_share_use_all_threads(
    tmp_path, monkeypatch, shared_work, threads
):
    monkeypatch.setattr(device, "MIN_SHARED_WORK", shared_work)
    facts = Tiny.of(tmp_path, steps=2).finish(compute=replace(CPU, threads=2)).record
    assert facts.environment.threads == threads
