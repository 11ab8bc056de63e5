"""Cells are trained as by plain torch: of another seed, evaluated after each epoch, with any id of
padding.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_pretraining import CPU, LENGTH, STILL, config, plainly_trained
from torch.nn.functional import cross_entropy

from glue_bench.config import Hyperparameters, load_experiment
from glue_bench.data.tasks import TASKS
from glue_bench.model.heads import EncoderForSequenceClassification
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import predict, train, used_rows_only
from glue_bench.training.tokens import (
    TokenisedSplit,
    TokenisedTask,
    collate,
    evaluation_batches,
    training_batches,
)

SEED = 2


def plain_logits(model: torch.nn.Module, split: TokenisedSplit, padding_id: int) -> np.ndarray:
    """Return the logits of each row by itself, without padding."""
    model.eval()
    logits = []
    with torch.no_grad():
        for row in range(len(split)):
            batch = collate(split, np.array([row]), padding_id)
            output = model(batch.ids, batch.mask, batch.segments)
            logits.append(output.logits[0].numpy())
    return np.array(logits)


def plain_losses(model, split, settings, padding_id, after_epoch=lambda: None) -> Iterator[list]:
    """The loss of each whole batch of all epochs, as functions; `after_epoch` is called between two
    epochs.
    """
    for epoch in range(1, settings.epochs + 1):
        for batch in training_batches(split, settings.batch_size, padding_id, SEED, epoch):

            def loss(batch=batch):
                return cross_entropy(
                    model(batch.ids, batch.mask, batch.segments).logits, batch.labels
                )

            yield [loss]
        if epoch < settings.epochs:
            after_epoch()


class PlainScores:
    """Collects accuracies on MNLI's validation sets, and keeps torch's generator as it was."""

    names = TASKS["mnli"].validation_splits

    def __init__(self, model: torch.nn.Module, tokens: TokenisedTask) -> None:
        self.model = model
        self.tokens = tokens
        self.history: list[dict[str, float]] = []

    def logits(self, name: str) -> np.ndarray:
        return plain_logits(self.model, self.tokens.splits[name], self.tokens.padding_id)

    def score(self) -> None:
        """Add the accuracies to the history."""
        generator = torch.get_rng_state()
        accuracies = {}
        for name in self.names:
            is_right = self.logits(name).argmax(1) == self.tokens.splits[name].labels
            accuracies[name] = float(is_right.mean())
        self.history.append(accuracies)
        torch.set_rng_state(generator)


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize("arm", ["add", "untied"])
def test_a_cell_of_another_seed_with_two_validation_sets_equals_plain_torch(arm, tiny):
    """There are three epochs with dropout, and a last batch that is not full."""
    finetuning = {
        "epochs": 3,
        "batch_size": 20,
        "learning_rates": [1e-2],
        "clip_norm": 1e-3,
        "weight_decay": 0.3,
    }
    experiment = load_experiment(
        tiny(arms=[arm], tasks=["mnli"], seeds=[SEED], finetuning=finetuning)
    )
    inputs = Inputs(experiment, Path("none"))
    _, [cell] = settle_jobs(inputs)
    outcome = finetune(cell, inputs, CPU)

    tokens = inputs.tokens(cell)
    model = inputs.arms[arm].start.classifier(TASKS["mnli"].labels, SEED)
    plain = PlainScores(model, tokens)
    train_split = tokens.splits["train"]
    batches = plain_losses(model, train_split, cell.settings, tokens.padding_id, plain.score)
    losses = plainly_trained(model, cell.settings, 9, batches)
    plain.score()
    history = outcome.record.history
    means = [np.mean(losses[first : first + 3]) for first in (0, 3, 6)]
    assert [epoch.train_loss for epoch in history] == pytest.approx(means, abs=1e-5)
    for name in plain.names:
        predictions = outcome.predictions[name]
        np.testing.assert_allclose(predictions, plain.logits(name), atol=1e-4, err_msg=name)
    for epoch, accuracies in zip(history, plain.history, strict=True):
        scores = {name: epoch.scores[name]["accuracy"] for name in plain.names}
        assert scores == pytest.approx(accuracies), epoch
    assert outcome.record.scores.keys() == set(plain.names)


def settings(**changes) -> Hyperparameters:
    values = {
        "learning_rate": 0.05,
        "epochs": 3,
        "batch_size": 4,
        "max_length": LENGTH,
        "warmup_ratio": 0.25,
    }
    values |= {"weight_decay": 0.5, "adam_epsilon": 1e-2, "clip_norm": 1e6}
    return Hyperparameters(**values | changes)


def split_with(words: np.ndarray) -> TokenisedSplit:
    """Make 18 rows of these words, so that the last batch of four has two."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 12, size=18)
    return TokenisedSplit(
        ids=generator.choice(words, size=lengths.sum()).astype(np.int32),
        segments=np.zeros(lengths.sum(), dtype=np.uint8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=generator.integers(0, 2, size=18),
    )


def trained_model(
    split, chosen, padding_id, table_of, *, evaluated
) -> tuple[dict, list[np.ndarray]]:
    """The weights after training in double precision, and the predictions after each epoch if it is
    `evaluated`.
    """
    torch.manual_seed(0)
    model = EncoderForSequenceClassification(
        config(num_labels=2, pad_token_id=padding_id, **STILL)
    ).double()
    predictions = []
    with table_of(model, TokenisedTask({"train": split}, padding_id)):
        batches = partial(training_batches, split, chosen.batch_size, padding_id, SEED)
        for _ in train(model, batches, 5, chosen, CPU):
            if evaluated:
                rows = evaluation_batches(split, padding_id, 40)
                predictions.append(predict(model, rows, CPU))
    return model.state_dict(), predictions


WORDS = np.array([0, 3, 4, 17, 21, 22, 40])


@pytest.mark.parametrize("evaluated", [False, True], ids=["at the end", "after each epoch"])
@pytest.mark.parametrize("padding_id", [0, 9, 17])
def test_used_rows_alone_train_as_the_whole_table_whatever_is_evaluated_between(
    padding_id, evaluated
):
    """The id of padding is before, between or among words, and its row does not learn."""
    split = split_with(np.setdiff1d(WORDS, [padding_id]))
    chosen = settings()
    short, short_predictions = trained_model(
        split, chosen, padding_id, used_rows_only, evaluated=evaluated
    )
    plain, plain_predictions = trained_model(
        split, chosen, padding_id, lambda *_: nullcontext(), evaluated=evaluated
    )
    assert len(short_predictions) == (chosen.epochs if evaluated else 0)
    for name, weight in short.items():
        torch.testing.assert_close(weight, plain[name], rtol=1e-9, atol=1e-12, msg=name)
    for epoch, (one_table, all_rows) in enumerate(
        zip(short_predictions, plain_predictions, strict=True), start=1
    ):
        np.testing.assert_allclose(one_table, all_rows, atol=1e-6, err_msg=f"epoch {epoch}")


def test_rows_that_are_not_used_decay_by_every_step_once():
    """By hand they become p (1 - lr * weight_decay) in each step, with the rate of the step."""
    split = split_with(WORDS)
    chosen = settings()
    torch.manual_seed(0)
    model = EncoderForSequenceClassification(config(num_labels=2, pad_token_id=0, **STILL)).double()
    before = model.base.variant.words.weight.detach()[50].clone()
    after, _ = trained_model(split, chosen, 0, used_rows_only, evaluated=True)
    factor = 1.0
    for step in range(15):
        rate = 0.05 * (step / 4 if step < 4 else (15 - step) / 11)
        factor *= 1 - rate * 0.5
    torch.testing.assert_close(
        after["base.variant.words.weight"][50], before * factor, rtol=1e-9, atol=0
    )
