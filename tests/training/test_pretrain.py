"""Pretraining an arm: the same stream and start for all of them, honest losses, and what it cost."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_pretraining import LENGTH, config, folder, fresh, pretrain, settings, task, weights

from glue_bench.model.checkpoints import Start, graft, read_checkpoint
from glue_bench.model.variants import VARIANTS
from glue_bench.training import packing
from glue_bench.training import pretrain as module
from glue_bench.training.loop import NonFiniteLossError, linear_factor
from glue_bench.training.masking import Vocabulary, evaluation_batches, target_pieces, training_batch
from glue_bench.training.pretrain import build_masked_lm, rate_factor
from glue_bench.training.pretrained import PretrainingFolder

STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SEGMENT_PLACES = [("add", {"segments": "none"}), ("untied", {"segments": "scores"}), ("concat", {"segments": "scores"})]
OTHER_OPTIONS = [("four-term", {"terms": ["word-word", "position-position"]}), ("diet-abs", {"rank": 4})]
ARMS = [*((name, {}) for name in VARIANTS), *SEGMENT_PLACES, *OTHER_OPTIONS]


@torch.no_grad()
def full_loss(model, batch) -> tuple[float, int]:
    """Summed cross-entropy over a batch's targets by the head that runs everywhere, and their number."""
    labels = torch.full(batch.ids.shape, -100)
    labels.view(-1)[batch.places] = batch.targets
    return float(model(batch.ids, batch.mask, labels=labels).loss) * len(batch.targets), len(batch.targets)


def first_batch(todo):
    chosen = todo.settings
    return training_batch(
        todo.text["train"],
        Vocabulary.of(todo.tokenizer),
        rows=chosen.rows,
        share=chosen.mask_probability,
        seed=chosen.seed,
        step=0,
    )


# What arms share


def test_all_arms_see_the_same_stream(tmp_path):
    todo = task(steps=3)
    outcomes = [pretrain(fresh(*arm), todo, folder(tmp_path / str(n))) for n, arm in enumerate(ARMS)]
    assert len({outcome["stream"] for outcome in outcomes}) == 1
    assert len({outcome["tokens"] for outcome in outcomes}) == 1
    assert len({outcome["train_loss"] for outcome in outcomes}) > 10


@pytest.mark.parametrize(
    "changes",
    [{"seed": 2}, {"steps": 5}, {"mask_probability": 0.3}, {"batch_tokens": 4 * LENGTH}, {"length": LENGTH - 4}],
    ids=str,
)
def test_another_setting_gives_another_stream(tmp_path, changes):
    first, other = (
        pretrain(fresh(), task(**{"steps": 4} | change), folder(tmp_path / str(change)))["stream"]
        for change in ({}, changes)
    )
    assert first != other


def test_the_stream_is_of_what_the_model_was_given(tmp_path, monkeypatch):
    def altered(*arguments, **options):
        batch = training_batch(*arguments, **options)
        return replace(batch, targets=batch.targets.flip(0)) if options["step"] == 2 else batch

    first = pretrain(fresh(), task(steps=4), folder(tmp_path / "first"))["stream"]
    monkeypatch.setattr(module, "training_batch", altered)
    assert pretrain(fresh(), task(steps=4), folder(tmp_path / "other"))["stream"] != first


def test_shared_modules_start_equal_in_all_arms():
    models = [build_masked_lm(fresh(*arm, num_hidden_layers=2), 1).state_dict() for arm in ARMS]
    reference = models[list(VARIANTS).index("add")]
    for (variant, options), state in zip(ARMS, models, strict=True):
        shared = [name for name in state if name in reference and state[name].shape == reference[name].shape]
        assert len(shared) > 20
        for name in shared:
            assert torch.equal(state[name], reference[name]), (variant, options, name)
    other = build_masked_lm(fresh(num_hidden_layers=2), 2).state_dict()
    differ = {name for name in reference if not torch.equal(other[name], reference[name])}
    assert differ == {name for name in reference if name.endswith("weight") and "norm" not in name}


def test_no_two_modules_start_with_the_same_numbers():
    state = build_masked_lm(fresh("untied", num_hidden_layers=2), 1).state_dict()
    starts = [tuple(state[name].flatten()[16:24].tolist()) for name in state if state[name].ndim == 2]
    assert len(set(starts)) == len(starts) - 1  # the decoder is the words


def test_weights_that_a_start_has_are_kept(tmp_path):
    pretrain(fresh(), task(steps=4), folder(tmp_path))
    start = graft(read_checkpoint(str(tmp_path / "step-4")), "add", {})
    model = build_masked_lm(start, 7)
    assert all(torch.equal(model.base.state_dict()[name], tensor) for name, tensor in start.weights.items())
    assert {"dense.weight", "head_norm.weight", "decoder.bias"} <= set(start.head)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in start.head.items())
    assert model.decoder.weight is model.base.variant.words.weight


@pytest.mark.parametrize("arm", ARMS, ids=str)
def test_every_weight_that_learns_gets_a_gradient(arm):
    """Else data parallelism waits for it for ever."""
    model = build_masked_lm(fresh(*arm), 1)
    batch = first_batch(task())
    model(batch.ids, batch.mask, places=batch.places).logits.sum().backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert {name.split(".")[1] for name, p in model.named_parameters() if not p.requires_grad} == {"pooler"}


# Losses


def test_the_loss_falls(tmp_path):
    losses = pretrain(fresh(hidden_size=32), task(steps=60, learning_rate=1e-2), folder(tmp_path))["losses"]
    validations = [point["validation_loss"] for point in losses if point["validation_loss"] is not None]
    assert len(validations) == 2
    assert losses[0]["train_loss"] == pytest.approx(np.log(65), abs=0.3)  # nothing known yet
    assert max(losses[-1]["train_loss"], *validations) < np.log(12) + 0.3  # which twelve words there are


def test_the_losses_are_those_of_the_full_head(tmp_path):
    todo = task(steps=1, learning_rate=1e-12, weight_decay=0.0)
    outcome = pretrain(fresh("untied", **STILL), todo, folder(tmp_path))
    model = build_masked_lm(fresh("untied", **STILL), todo.settings.seed).eval()
    total, count = full_loss(model, first_batch(todo))
    assert outcome["train_loss"] == pytest.approx(total / count, rel=1e-5)
    held_out = evaluation_batches(todo.text["validation"], Vocabulary.of(todo.tokenizer), 0.15)
    parts = [full_loss(model, batch) for batch in held_out]
    expected = sum(total for total, _ in parts) / sum(count for _, count in parts)
    assert outcome["validation_loss"] == pytest.approx(expected, rel=1e-5)


def test_places_that_only_fill_a_shape_change_nothing(tmp_path, monkeypatch):
    plain, filled = folder(tmp_path / "plain"), folder(tmp_path / "filled")
    expected = pretrain(fresh(**STILL), task(steps=3, validations=3), plain)["losses"]
    monkeypatch.setattr(module, "few_sizes", lambda size: size + 7)
    found = pretrain(fresh(**STILL), task(steps=3, validations=3), filled)["losses"]
    for one, other in zip(found, expected, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-6)
        assert one["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-6)


def test_a_point_is_the_mean_since_the_last_one(tmp_path, monkeypatch):
    every = pretrain(fresh(), task(), folder(tmp_path / "every"))["losses"]
    monkeypatch.setattr(module, "LOSSES", 4)
    fourth = pretrain(fresh(), task(), folder(tmp_path / "fourth"))["losses"]
    assert [point["step"] for point in every] == list(range(1, 21))
    assert [point["step"] for point in fourth] == [5, 10, 15, 20]
    for number, point in enumerate(fourth):
        mean = np.mean([one["train_loss"] for one in every[5 * number : 5 * number + 5]])
        assert point["train_loss"] == pytest.approx(mean, rel=1e-5)
    assert [point["validation_loss"] is None for point in fourth] == [True, False, True, False]


@given(steps=st.integers(1, 300), times=st.integers(1, 320))
def test_what_is_due_so_many_times_is_due_no_more_often_and_evenly(steps, times):
    due = [step for step in range(1, steps + 1) if module.is_due(step, steps, times)]
    assert len(due) == min(steps, times)
    assert due[-1] == steps
    assert max(np.diff([0, *due])) - min(np.diff([0, *due])) <= 1
    if steps % times == 0:
        assert due == list(range(steps // times, steps + 1, steps // times))


def test_no_more_losses_are_measured_than_were_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOSSES", 7)
    losses = pretrain(fresh(), task(steps=19, validations=10), folder(tmp_path))["losses"]
    validated = [point["step"] for point in losses if point["validation_loss"] is not None]
    assert validated == [2, 4, 6, 8, 10, 12, 14, 16, 18, 19]
    assert sorted({point["step"] for point in losses} - set(validated)) == [3, 9, 11, 17]


def test_validation_and_points_do_not_change_training(tmp_path, monkeypatch):
    often = folder(tmp_path / "often")
    pretrain(fresh(), task(validations=20), often)
    monkeypatch.setattr(module, "LOSSES", 1)
    seldom = folder(tmp_path / "seldom")
    pretrain(fresh(), task(validations=1), seldom)
    assert all(torch.equal(weights(often)[name], tensor) for name, tensor in weights(seldom).items())


# With a large epsilon Adam's steps are proportional to the gradient, so that a wrong one shows.
@pytest.mark.parametrize("micro", [1, 3, 8])
@pytest.mark.parametrize("variant", ["add", "untied"])
def test_micro_batches_give_the_gradient_of_the_whole(tmp_path, micro, variant):
    plain = {"steps": 3, "adam_epsilon": 1.0, "learning_rate": 1.0, "warmup_ratio": 0.0, "clip_norm": 1e6}
    whole, parts = folder(tmp_path / "whole"), folder(tmp_path / "parts")
    expected = pretrain(fresh(variant, **STILL), task(**plain), whole)
    outcome = pretrain(fresh(variant, **STILL), task(**plain, micro_batch_tokens=micro * LENGTH), parts)
    assert outcome["stream"] == expected["stream"]
    for one, other in zip(outcome["losses"], expected["losses"], strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    moved = False
    start = build_masked_lm(fresh(variant, **STILL), 1).state_dict()
    for name, tensor in weights(whole, 3).items():
        torch.testing.assert_close(weights(parts, 3)[name], tensor, rtol=1e-4, atol=1e-6)
        moved = moved or not torch.allclose(tensor, start[name], atol=1e-3)
    assert moved


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    start = Start(config(), {"norm.weight": torch.full((16,), float("nan"))}, "pretrained")
    place = folder(tmp_path)
    with pytest.raises(NonFiniteLossError, match="masked-LM loss is nan at step 1"):
        pretrain(start, task(), place)
    assert not place.checkpoint(20).exists()


def test_the_validation_losses_of_pieces_are_the_same_text_for_every_arm_and_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "PIECE_TOKENS", 24)
    runs = [("add", 1), ("untied", 1), ("add", 2)]
    made = [
        module.pretrain(fresh(arm, **STILL), task(steps=2, validations=1, seed=seed), folder(tmp_path / f"{arm}{seed}"))
        for arm, seed in runs
    ]
    first = made[0].validation
    assert [values.dtype for values in first.values()] == [np.float64, np.int64, np.int64]
    assert len(first["count"]) > 4
    for one in made:
        assert list(one.validation) == ["loss_sum", "count", "document"]
        assert (one.validation["count"] == first["count"]).all()
        assert (one.validation["document"] == 0).all()
        assert one.facts["validation_loss"] == one.validation["loss_sum"].sum() / first["count"].sum()
    assert len({one.facts["validation_loss"] for one in made}) == 3
    # Of one piece alone, by the head that runs everywhere.
    # With another seed of pretraining, too: the masks do not follow it.
    todo, start = task(steps=2), graft(read_checkpoint(str(tmp_path / "add2" / "step-2")), "add", {})
    model, found = build_masked_lm(start, 2), made[2].validation
    (batch,) = evaluation_batches(todo.text["validation"], Vocabulary.of(todo.tokenizer), 0.15)
    keep = torch.from_numpy(target_pieces(todo.text["validation"], batch, 0) == 2)
    total, count = full_loss(model.eval(), replace(batch, places=batch.places[keep], targets=batch.targets[keep]))
    assert (count, total) == (found["count"][2], pytest.approx(found["loss_sum"][2], rel=1e-5))


# Schedule, dropout, segments


def test_the_linear_schedule_is_that_of_fine_tuning():
    chosen = settings(steps=10, warmup_ratio=0.25)
    assert [rate_factor(chosen, step) for step in range(10)] == [linear_factor(step, 10, 0.25) for step in range(10)]


@given(steps=st.integers(1, 60), warmup=st.sampled_from([0.0, 0.01, 0.1, 0.5]), decay=st.sampled_from([0.01, 0.2, 0.5]))
def test_a_trapezoid_rises_stays_and_falls_to_zero(steps, warmup, decay):
    chosen = settings(steps=steps, schedule="trapezoid", warmup_ratio=warmup, decay_share=decay)
    factors = [rate_factor(chosen, step) for step in range(steps + 1)]
    up, down = math.ceil(warmup * steps), math.ceil(decay * steps)
    assert factors[steps] == 0
    for step, factor in enumerate(factors[: steps - down + 1]):
        assert factor == pytest.approx(min(1, step / up) if up else 1)
    assert np.diff(factors[max(up, steps - down) :]) == pytest.approx(-1 / down)


def test_before_its_decay_a_trapezoid_is_that_of_a_longer_run(tmp_path):
    flat = {"schedule": "trapezoid", "warmup_ratio": 0.0, "decay_share": 0.25, "checkpoints": [6]}
    short, long = folder(tmp_path / "short"), folder(tmp_path / "long")
    pretrain(fresh(), task(steps=8, **flat), short)
    pretrain(fresh(), task(steps=12, **flat), long)
    assert all(torch.equal(weights(long, 6)[name], tensor) for name, tensor in weights(short, 6).items())
    pretrain(fresh(), task(steps=8, **flat | {"decay_share": 0.75}), folder(tmp_path / "other"))
    assert not torch.equal(weights(folder(tmp_path / "other"), 6)["dense.weight"], weights(short, 6)["dense.weight"])


def test_dropout_of_its_own_is_not_that_of_fine_tuning(tmp_path):
    still, own = folder(tmp_path / "still"), folder(tmp_path / "own")
    expected = pretrain(fresh(**STILL), task(steps=3), still)
    assert pretrain(fresh(), task(steps=3, dropout=0.0), own)["losses"][-1]["train_loss"] == expected["train_loss"]
    assert all(torch.equal(weights(own, 3)[name], tensor) for name, tensor in weights(still, 3).items())
    stored = json.loads((own.checkpoint(3) / "config.json").read_text())
    assert (stored["hidden_dropout_prob"], stored["attention_probs_dropout_prob"]) == (0.1, 0.1)
    assert pretrain(fresh(), task(steps=3), folder(tmp_path / "usual"))["train_loss"] != expected["train_loss"]


def test_pairs_train_the_second_segment(tmp_path):
    start = build_masked_lm(fresh(), 1).state_dict()["base.variant.segments.weight"]
    still = {"steps": 3, "weight_decay": 0.0}
    alone, pairs = folder(tmp_path / "one"), folder(tmp_path / "pairs")
    assert "segment_pairs" not in pretrain(fresh(), task(**still), alone)
    assert torch.equal(weights(alone, 3)["base.variant.segments.weight"][1], start[1])
    outcome = pretrain(fresh(), task(**still, segments="pairs"), pairs)
    assert 0.2 < outcome["segment_pairs"] <= 0.51
    assert not torch.equal(weights(pairs, 3)["base.variant.segments.weight"][1], start[1])


# What it cost


def test_seconds_are_those_of_training_alone(tmp_path, monkeypatch):
    clock = [0.0]

    def taking(seconds, what):
        def slow(*arguments, **options):
            clock[0] += seconds
            return what(*arguments, **options)

        return slow

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(module, "training_batch", taking(0.5, training_batch))
    monkeypatch.setattr(module, "evaluation_batches", taking(100, evaluation_batches))
    for name in ("save_checkpoint", "save_state"):
        monkeypatch.setattr(PretrainingFolder, name, taking(1000, getattr(PretrainingFolder, name)))
    outcome = pretrain(fresh(), task(checkpoints=[5]), folder(tmp_path), save_seconds=3)
    assert clock[0] > 5000
    assert outcome["seconds"] == 10
    assert outcome["tokens_per_second"] == round(outcome["tokens"] / 10, 1)
    assert [point["seconds"] for point in outcome["losses"]] == [0.5 * step for step in range(1, 21)]


def test_an_outcome_says_what_was_spent(tmp_path):
    todo = task()
    outcome = pretrain(fresh(), todo, folder(tmp_path))
    assert outcome["steps"] == 20
    assert 0 < outcome["tokens"] <= 20 * 8 * LENGTH
    assert outcome["corpus_tokens"] == int(todo.text["train"].lengths.sum())
    assert outcome["validation_tokens"] == int(todo.text["validation"].lengths.sum())
    assert outcome["tokens"] == outcome["losses"][-1]["tokens"]
    assert outcome["peak_memory_bytes"] is None or outcome["peak_memory_bytes"] > 1e7
    assert len(outcome["stream"]) == 64
