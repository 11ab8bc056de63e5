"""The training loop against plain torch, in parts and in whole, with the used token rows alone; no
step waits.
"""

import copy
import math
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from helpers.tiny_models import ARM_CASES
from helpers.tiny_pretraining import CPU, LENGTH, config, plainly_trained
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import get_linear_schedule_with_warmup

from glue_bench.config import Hyperparameters
from glue_bench.model.fresh import on_meta
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification
from glue_bench.training.device import Compute
from glue_bench.training.loop import (
    linear_factor,
    part_losses,
    predict,
    train,
    update,
    used_rows_only,
)
from glue_bench.training.masked_lm import masked_losses
from glue_bench.training.masking import MaskedBatch
from glue_bench.training.tokens import (
    Batch,
    TokenisedSplit,
    TokenisedTask,
    collate,
    evaluation_batches,
    training_batches,
)

VARIANTS = ["add", "concat", "untied", "none"]
DROPPING = {
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.1,
    "classifier_dropout": 0.5,
}


def settings(**changes) -> Hyperparameters:
    """Return settings that differ from the defaults, so that no default hides a mistake.

    Each batch is clipped, and with this epsilon a step is as long as its gradient.
    """
    values = {
        "learning_rate": 0.05,
        "epochs": 2,
        "batch_size": 4,
        "max_length": LENGTH,
        "warmup_ratio": 0.25,
        "weight_decay": 0.1,
        "adam_epsilon": 1e-2,
        "clip_norm": 0.05,
    }
    return Hyperparameters(**values | changes)


def model_of(variant="add", **changes) -> EncoderForSequenceClassification:
    torch.manual_seed(0)
    return EncoderForSequenceClassification(config(variant, num_labels=2, **changes))


@pytest.fixture(scope="module")
def split() -> TokenisedSplit:
    """Return 18 rows, so that the last batch of four has two."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 12, size=18)
    return TokenisedSplit(
        ids=generator.integers(1, 30, size=lengths.sum()).astype(np.int32),
        segments=np.zeros(lengths.sum(), dtype=np.uint8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=generator.integers(0, 2, size=18),
    )


def batches_of(split, chosen):
    return lambda epoch: training_batches(split, chosen.batch_size, 0, 1, epoch)


def plain_batches(model, split, chosen, rows):
    """Yield the losses of the parts of each batch of all epochs, as functions."""

    def loss(batch, first, last):
        part = slice(first, last)
        mask = None if batch.mask is None else batch.mask[part]
        logits = model(batch.ids[part], mask, batch.segments[part]).logits
        total = cross_entropy(logits, batch.labels[part], reduction="sum")
        return total / len(batch.labels)

    for epoch in range(1, chosen.epochs + 1):
        for batch in batches_of(split, chosen)(epoch):
            size = rows or len(batch.labels)
            starts = range(0, len(batch.labels), size)
            yield [partial(loss, batch, start, start + size) for start in starts]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("changes", "rows"),
    [({}, None), ({"max_steps": 7}, None), ({"max_steps": 3, "epochs": 1}, None), ({}, 3)],
    ids=["whole", "ended in the second epoch", "ended in the first", "in parts"],
)
def test_training_equals_plain_torch(variant, split, changes, rows):
    """There is dropout, with other numbers in each step."""
    chosen = settings(**changes)
    model = model_of(variant, **DROPPING)
    before = copy.deepcopy(model)
    plain = copy.deepcopy(model)

    in_epoch = math.ceil(len(split) / chosen.batch_size)
    steps = min(in_epoch * chosen.epochs, chosen.max_steps or 10**9)
    torch.manual_seed(3)
    losses = plainly_trained(plain, chosen, steps, plain_batches(plain, split, chosen, rows))

    expected = []
    for first in range(0, steps, in_epoch):
        of_epoch = losses[first : first + in_epoch]
        expected.append(np.mean(of_epoch))

    torch.manual_seed(3)
    epochs = batches_of(split, chosen)
    losses = list(train(model, epochs, in_epoch, chosen, CPU, rows))
    assert losses == pytest.approx(expected, abs=1e-6)

    weights = model.state_dict()
    for name, expected_weight in plain.state_dict().items():
        torch.testing.assert_close(weights[name], expected_weight, rtol=0, atol=1e-6, msg=name)

    changes_of_weights = []
    for name, weight in before.state_dict().items():
        change = (weights[name] - weight).abs()
        changes_of_weights.append(change.max().item())
    assert max(changes_of_weights) > 1e-3


@pytest.mark.parametrize(
    ("steps", "ratio"), [(10, 0.06), (50, 0.06), (7, 0.5), (5, 0.0), (4, 1.0), (1, 0.06)]
)
def test_the_schedule_is_transformers(steps, ratio):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_linear_schedule_with_warmup(optimizer, int(np.ceil(ratio * steps)), steps)
    for step in range(steps + 1):
        assert linear_factor(step, steps, ratio) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_predictions_are_in_the_splits_order_and_draw_nothing(split):
    model = model_of(**DROPPING)
    logits = predict(model, evaluation_batches(split, 0, 40), CPU)
    model.eval()
    for row in range(len(split)):
        batch = collate(split, np.array([row]), 0)
        with torch.no_grad():
            expected = model(batch.ids, batch.mask, batch.segments).logits[0]
        np.testing.assert_allclose(logits[row], expected, atol=1e-6)


class OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of the host and of the device, except for a copy."""

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        result = operation(*arguments, **(options or {}))
        if operation is not torch.ops.aten._to_copy.default:
            leaves = tree_leaves((arguments, options, result))
            devices = {leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor)}
            assert len(devices) < 2, f"{operation} meets {devices}"
        return result


META = Compute(torch.device("meta"), bf16=False, threads=1)
"""A device on which reading a number raises an error. On a GPU the reading would wait."""
IDS = 5 + (torch.arange(4 * LENGTH) % 55).reshape(4, LENGTH)
MASK = torch.arange(LENGTH) < torch.tensor([16, 9, 3, 16])[:, None]


def losses_of_rows(model):
    labels = torch.tensor([0, 1, 1, 0])
    batch = Batch(IDS, torch.zeros_like(IDS), MASK, labels, np.arange(4))
    return part_losses(model, batch, META, 3)


def losses_of_masked_rows(model):
    places = torch.tensor([1, 5, 17, 60])
    targets = torch.tensor([7, 8, 9, 7])
    batch = MaskedBatch(IDS, MASK, places, targets, torch.zeros_like(IDS))
    fixed = MaskedBatch(**batch.fixed(LENGTH, 12))
    return [
        masked_losses(model, next(batch.parts(3)), META, "sum"),
        masked_losses(model, fixed, META, "mean"),
    ]


def update_on_meta(kind, losses_of, *arm):
    """Take a step on META, which may meet no tensor of the host."""
    model = on_meta(kind, config(*arm, num_labels=2, num_hidden_layers=2)).train()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    with OneDevice():
        loss = update(model, optimizer, 1e-3, 1.0, losses_of(model))
    assert loss.is_meta
    assert len(optimizer.state) > 10
    return loss


@pytest.mark.parametrize(("variant", "options"), ARM_CASES)
def test_a_step_of_pretraining_waits_for_nothing(variant, options):
    update_on_meta(EncoderForMaskedLM, losses_of_masked_rows, variant, options)


def test_a_step_of_finetuning_waits_for_nothing():
    """The head is the same for all arms, so that one arm shows what a classifier does."""
    update_on_meta(EncoderForSequenceClassification, losses_of_rows, "add", {})


def test_the_device_shows_a_wait():
    loss = update_on_meta(EncoderForSequenceClassification, losses_of_rows, "add", {})
    with pytest.raises(RuntimeError), OneDevice():
        loss.item()


@pytest.mark.parametrize("variant", ["add", "concat", "untied"])
def test_the_model_equals_adamw_on_the_whole_table(split, variant):
    """The comparison is in double precision, with a strong decay."""
    assert len(np.unique(split.ids)) < config().vocab_size / 2
    chosen = settings(weight_decay=0.5, clip_norm=1e6)
    states = []
    for table_of in (used_rows_only, lambda *_: nullcontext()):
        model = model_of(variant).double()
        torch.manual_seed(3)
        with table_of(model, TokenisedTask({"train": split}, 0)):
            list(train(model, batches_of(split, chosen), 5, chosen, CPU))
        frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
        assert frozen == []
        states.append(model.state_dict())
    of_used_rows, of_full_table = states
    assert of_used_rows.keys() == of_full_table.keys()
    for name, weight in of_used_rows.items():
        torch.testing.assert_close(weight, of_full_table[name], rtol=1e-9, atol=1e-12, msg=name)
