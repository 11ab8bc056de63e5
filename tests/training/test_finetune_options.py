"""A cell with options away from their defaults: half precision, a slice held out, one answer to
all, short memory.
"""

import math
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_pretraining import BF16, CPU

from glue_bench.config import load_experiment
from glue_bench.data.metrics import score_logits
from glue_bench.data.tasks import TASKS
from glue_bench.model.variants import VARIANTS
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training import evaluate as evaluation
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError

pytestmark = pytest.mark.usefixtures("small_demo")
NO_MEMORY = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")


class Constant(VARIANTS["add"]):
    """A variant that gives the same output for every text."""

    def forward(self, token_ids, segment_ids):
        entering = super().forward(token_ids, segment_ids)
        return replace(entering, hidden=entering.hidden * 0)


class Slow(VARIANTS["add"]):
    """A variant that takes 0.1 s for each batch in evaluation."""

    def forward(self, token_ids, segment_ids):
        if not self.training and token_ids.device.type != "meta":
            time.sleep(0.1)
        return super().forward(token_ids, segment_ids)


class Narrow(VARIANTS["add"]):
    """A variant that has no memory for more than 150 tokens at once."""

    def forward(self, token_ids, segment_ids):
        if token_ids.numel() > 150:
            raise NO_MEMORY
        return super().forward(token_ids, segment_ids)


@pytest.fixture
def run(tiny, monkeypatch):
    """Run the one cell of a tiny experiment with these changes; `kind` is the class of its variant,
    if that is new.
    """

    def run_cell(
        task="cola", kind=None, compute=CPU, arm="add", **changes
    ) -> tuple[Outcome, Inputs]:
        if kind is not None:
            monkeypatch.setitem(VARIANTS, "new", kind)
            arm = "new"
        inputs = Inputs(load_experiment(tiny(arms=[arm], tasks=[task], **changes)), Path("none"))
        _, [cell] = settle_jobs(inputs)
        return finetune(cell, inputs, compute), inputs

    return run_cell


def test_predictions_in_half_precision_are_the_rounded_ones(run):
    exact, _ = run("mnli")
    half, _ = run("mnli", finetuning={"predictions": "float16"})
    for name in TASKS["mnli"].validation_splits:
        rounded = exact.predictions[name].astype(np.float16)
        assert np.array_equal(half.predictions[name], rounded), name
        assert half.predictions[name].dtype == np.float32, name


def test_scores_follow_from_the_rounded_predictions(run):
    """A correlation shows the difference between the two."""
    exact, inputs = run("stsb")
    half, _ = run("stsb", finetuning={"predictions": "float16"})
    labels = inputs.tasks.data("stsb").splits["validation"]["label"].to_numpy()
    rounded = exact.predictions["validation"].astype(np.float16).astype(np.float32)
    assert half.record.scores["validation"] == score_logits("stsb", rounded, labels)
    assert half.record.scores != exact.record.scores


@pytest.mark.parametrize("task", ["cola", "mnli"])
def test_a_slice_that_is_held_out_is_scored_after_each_epoch_and_is_no_result(run, task):
    outcome, _ = run(task, finetuning={"held_out_share": 0.25, "epochs": 2})
    splits = set(TASKS[task].validation_splits)
    expected = [splits | {"held_out"}] * 2
    assert [set(epoch.scores) for epoch in outcome.record.history] == expected
    assert set(outcome.record.scores) == splits


def test_the_scores_of_a_held_out_slice_follow_from_its_rows(run):
    """The slice is a quarter of 48 rows, which no update has seen."""
    outcome, inputs = run("mnli", finetuning={"held_out_share": 0.25, "epochs": 2})
    _, [cell] = settle_jobs(inputs)
    held_out = inputs.tokens(cell).splits["held_out"]
    answers = outcome.predictions["held_out"].argmax(1)
    assert len(answers) == 12
    accuracy = float((answers == held_out.labels).mean())
    assert outcome.record.history[-1].scores["held_out"]["accuracy"] == pytest.approx(accuracy)
    of_one_epoch = int(np.asarray(inputs.tokens(cell).splits["train"].lengths).sum())
    assert outcome.record.training_tokens == 2 * of_one_epoch


def test_every_validation_set_with_one_answer_to_everything_is_noted_and_no_slice_of_train(run):
    outcome, _ = run("mnli", kind=Constant, finetuning={"held_out_share": 0.25})
    assert outcome.record.collapsed == tuple(TASKS["mnli"].validation_splits)


def test_a_graft_says_how_much_of_each_table_it_has_kept(run, make_bert):
    folder = make_bert(texts=("the old cat chased a dog",))
    outcome, inputs = run(arm="concat-split", checkpoint=str(folder))
    start = inputs.first_arm.start
    assert outcome.record.variance_kept == pytest.approx(dict(start.variance_kept))
    assert set(outcome.record.variance_kept) == {"tokens", "positions", "segments"}


def test_seconds_of_training_do_not_count_evaluations(run):
    """There are three epochs, with one batch of validation each."""
    facts = run(kind=Slow, finetuning={"epochs": 3})[0].record
    assert facts.training_seconds + 0.3 <= facts.seconds


def test_if_memory_is_short_predictions_are_computed_in_as_small_parts_as_training(
    run, monkeypatch
):
    monkeypatch.setattr(evaluation, "EVALUATION_TOKENS", 400)
    plain, _ = run("mnli", finetuning={"epochs": 2, "predict": ["validation", "test"]})
    short, _ = run("mnli", kind=Narrow, finetuning={"epochs": 2, "predict": ["validation", "test"]})
    assert plain.record.micro_batch_size is None
    assert short.record.micro_batch_size in (2, 4)
    assert short.predictions.keys() == plain.predictions.keys()
    for name, logits in plain.predictions.items():
        assert short.predictions[name].shape == logits.shape, name


def test_few_sizes_of_batches_never_exceed_the_positions(run):
    """In bf16 a batch of 10 tokens would be padded to 12."""
    sizes = {"max_position_embeddings": 10}
    outcome, _ = run("rte", compute=BF16, scratch=sizes, finetuning={"max_length": 10})
    assert outcome.record.precision is None
    assert torch.from_numpy(outcome.predictions["validation"]).isfinite().all()


@pytest.mark.parametrize(("call", "epoch"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_predictions_that_are_not_finite_are_an_error_in_every_set_and_epoch(run, call, epoch):
    """`call` counts the evaluations: two validation sets after each of two epochs."""
    calls = count(1)

    class NotFinite(VARIANTS["add"]):
        def forward(self, token_ids, segment_ids):
            entering = super().forward(token_ids, segment_ids)
            if self.training or token_ids.device.type == "meta" or next(calls) != call:
                return entering
            return replace(entering, hidden=entering.hidden * math.nan)

    with pytest.raises(
        NonFiniteLossError, match=f"predictions are not finite after epoch {epoch}$"
    ):
        run("mnli", kind=NotFinite, finetuning={"epochs": 2})


def test_a_loss_that_is_not_finite_names_its_epoch(run):
    """The third of three batches in the second epoch is not finite."""
    calls = count(1)

    class NotFinite(VARIANTS["add"]):
        def forward(self, token_ids, segment_ids):
            entering = super().forward(token_ids, segment_ids)
            if not self.training or next(calls) != 6:
                return entering
            return replace(entering, hidden=entering.hidden * math.nan)

    with pytest.raises(NonFiniteLossError, match=r"loss is nan in epoch 2$"):
        run("cola", kind=NotFinite, finetuning={"epochs": 3})
