"""The optimisation loop against plain torch and transformers' schedule."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import get_linear_schedule_with_warmup

from glue_bench.config import Hyperparameters
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.heads import EncoderForSequenceClassification
from glue_bench.training.batches import evaluation_batches, training_batches
from glue_bench.training.loop import NonFiniteLossError, linear_factor, make_optimizer, predict, set_rate, train
from glue_bench.training.tokens import TokenisedSplit

VARIANTS = ["add", "concat", "untied", "none"]


def settings(**changes) -> Hyperparameters:
    values = {
        "learning_rate": 1e-2,
        "epochs": 2,
        "batch_size": 4,
        "max_length": 16,
        "warmup_ratio": 0.25,
        "weight_decay": 0.1,
        "adam_epsilon": 1e-6,
        "clip_norm": 1.0,
    }
    return Hyperparameters(**values | changes)


def model_of(variant="add", dropout=0.0) -> EncoderForSequenceClassification:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=2,
        variant=variant,
    )
    return EncoderForSequenceClassification(config)


@pytest.fixture(scope="module")
def split() -> TokenisedSplit:
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 12, size=18)
    return TokenisedSplit(
        ids=generator.integers(1, 30, size=lengths.sum()).astype(np.int32),
        segments=np.zeros(lengths.sum(), dtype=np.uint8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=generator.integers(0, 2, size=18),
    )


def trained(model, split, chosen):
    """The model and the losses of its epochs."""
    steps = -(-len(split) // chosen.batch_size)
    losses = train(model, lambda epoch: training_batches(split, chosen.batch_size, 0, 1, epoch), steps, chosen)
    return model, list(losses)


def plainly_trained(model, split, chosen):
    """The same in plain torch, parameters grouped by name."""

    def decays(name):
        return not name.endswith("bias") and "norm" not in name.lower()

    groups = [
        {"params": [p for n, p in model.named_parameters() if decays(n)], "weight_decay": chosen.weight_decay},
        {"params": [p for n, p in model.named_parameters() if not decays(n)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=chosen.learning_rate, betas=(0.9, 0.999), eps=chosen.adam_epsilon)
    steps = -(-len(split) // chosen.batch_size) * chosen.epochs
    warmup = int(np.ceil(chosen.warmup_ratio * steps))
    schedule = get_linear_schedule_with_warmup(optimizer, warmup, steps)
    model.train()
    for epoch in range(1, chosen.epochs + 1):
        for batch in training_batches(split, chosen.batch_size, 0, 1, epoch):
            loss = cross_entropy(model(batch.ids, batch.mask, batch.segments).logits, batch.labels)
            model.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), chosen.clip_norm)
            optimizer.step()
            schedule.step()
    return model


def assert_equal_weights(ours, theirs):
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_equals_plain_torch(variant, split):
    model = model_of(variant)
    plain = plainly_trained(copy.deepcopy(model), split, settings())
    ours, losses = trained(model, split, settings())
    assert len(losses) == 2
    assert_equal_weights(ours, plain)


# With a large epsilon Adam's steps are proportional to the gradient, so that clipping shows.
@pytest.mark.parametrize("clip_norm", [1e-3, 0.1, 1e6])
def test_gradients_are_clipped_to_a_total_norm(clip_norm, split):
    chosen = settings(adam_epsilon=10.0, learning_rate=1.0, weight_decay=0.0, clip_norm=clip_norm)
    model = model_of()
    start = copy.deepcopy(model)
    ours, _ = trained(model, split, chosen)
    assert_equal_weights(ours, plainly_trained(copy.deepcopy(start), split, chosen))
    moved = sum(((a - b) ** 2).sum() for a, b in zip(ours.parameters(), start.parameters(), strict=True)) ** 0.5
    # Each of the 10 steps goes at most rate * |first moment| / epsilon far, and the moment is within the clip.
    assert moved <= 10 * clip_norm / 10.0


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_biases_and_layer_norms_are_free_of_decay(variant):
    model = model_of(variant)
    decayed, free = make_optimizer(model, settings(weight_decay=0.3)).param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.3, 0.0)
    assert decayed["betas"] == (0.9, 0.999)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(p)] for p in decayed["params"] + free["params"]} == set(names.values())
    norms = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)}
    assert {names[id(p)] for p in free["params"]} == {n for n in names.values() if n.endswith("bias")} | norms


@pytest.mark.parametrize(("steps", "ratio"), [(10, 0.06), (50, 0.06), (7, 0.5), (5, 0.0), (4, 1.0), (1, 0.06)])
def test_the_schedule_is_transformers(steps, ratio):
    optimizer, other = (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-2) for _ in range(2))
    schedule = get_linear_schedule_with_warmup(other, int(np.ceil(ratio * steps)), steps)
    for step in range(steps + 1):
        set_rate(optimizer, 1e-2 * linear_factor(step, steps, ratio))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(schedule.get_last_lr()[0])
        other.step()
        schedule.step()


def test_a_loss_that_is_not_finite_ends_training(split):
    model = model_of()
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    with pytest.raises(NonFiniteLossError, match="loss is nan in epoch 1"):
        trained(model, split, settings())


def test_the_loss_of_an_epoch_is_the_mean_over_its_batches(split):
    model = model_of()
    frozen = settings(learning_rate=1e-12, weight_decay=0.0, epochs=1)
    with torch.no_grad():
        expected = [
            cross_entropy(model(batch.ids, batch.mask, batch.segments).logits, batch.labels).item()
            for batch in training_batches(split, 4, 0, 1, 1)
        ]
    assert trained(model, split, frozen)[1] == [pytest.approx(np.mean(expected), rel=1e-5)]


def test_dropout_is_on_in_training_and_off_in_prediction(split):
    model = model_of(dropout=0.5)
    seen = []
    model.register_forward_hook(lambda module, *_: seen.append(module.training))
    steps = train(model, lambda epoch: training_batches(split, 18, 0, 1, epoch), 1, settings())
    for _ in steps:
        predict(model, evaluation_batches(split, 0), len(split))
    assert seen == [True, False, True, False]


def test_predictions_come_in_the_order_of_the_split(split):
    class FirstToken(nn.Module):
        def forward(self, ids, _mask, _segments):
            return SimpleNamespace(logits=torch.stack([ids[:, 0], -ids[:, 0]], dim=1))

    logits = predict(FirstToken(), evaluation_batches(split, 0, tokens=24), len(split))
    first = split.ids[split.offsets[:-1]].astype(np.float32)
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(logits, np.stack([first, -first], axis=1))


def test_predictions_do_not_depend_on_the_batches(split):
    model = model_of("untied")
    one_by_one = predict(model, evaluation_batches(split, 0, tokens=1), len(split))
    together = predict(model, evaluation_batches(split, 0), len(split))
    np.testing.assert_allclose(one_by_one, together, atol=1e-6)
