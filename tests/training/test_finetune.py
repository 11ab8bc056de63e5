"""One cell: what it records, what is done where it fails, and that nothing but the cell decides its bits."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_pretraining import BF16, CPU, STILL, Diverging, Greedy

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.data.metrics import score_logits
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.model.start import weights_digest
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Variant
from glue_bench.records.values import Cell
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.tokens import training_batches

pytestmark = pytest.mark.usefixtures("small_demo")

ARMS = ["add", "concat", "untied", "none"]


@dataclass
class Bench:
    """The cells of a tiny experiment by arm, task and seed."""

    inputs: Inputs

    def cell(self, arm="add", task="cola", seed=1) -> Cell:
        _, cells = settle_jobs(self.inputs)
        return next(cell for cell in cells if (cell.arm, cell.task, cell.seed) == (arm, task, seed))

    def run(self, *which, compute=CPU, **options) -> Outcome:
        return finetune(self.cell(*which), self.inputs, compute, **options)

    def classifier(self, arm="add", task="cola", seed=1):
        return self.inputs.arms[arm].start.classifier(TASKS[task].labels or ("score",), seed)


@pytest.fixture
def bench_of(tiny):
    return lambda **changes: Bench(Inputs(load_experiment(tiny(**changes)), Path("none")))


@pytest.fixture
def bench(bench_of) -> Bench:
    finetuning = {"epochs": 2, "predict": ["validation", "test"]}
    return bench_of(arms=ARMS, tasks=["cola", "stsb", "mnli"], seeds=[1, 2], finetuning=finetuning)


def labels(task: str, split: str) -> np.ndarray:
    return generate(task)[split]["label"].to_numpy()


@pytest.mark.parametrize("task", ["cola", "stsb", "mnli"])
def test_a_cell_leaves_scores_history_predictions_all_facts_and_its_model(bench, task):
    told = []
    outcome = bench.run("untied", task, progress=lambda step, steps, _: told.append((step, steps)))
    facts, splits = outcome.record, TASKS[task].validation_splits
    assert [epoch.epoch for epoch in facts.history] == [1, 2]
    sizes = {name: len(labels(task, name)) for name in (*splits, *TASKS[task].test_splits)}
    if task == "mnli":
        sizes[AX_SPLIT] = len(labels("ax", "test"))
    assert {name: logits.shape for name, logits in outcome.predictions.items()} == {
        name: (rows, TASKS[task].num_labels) for name, rows in sizes.items()
    }
    assert {logits.dtype for logits in outcome.predictions.values()} == {np.dtype(np.float32)}
    assert facts.scores == facts.history[-1].scores
    assert facts.scores == {
        name: score_logits(task, outcome.predictions[name], labels(task, name)) for name in splits
    }
    assert (facts.started_from, facts.micro_batch_size, facts.precision) == (None, None, None)
    made = facts.environment
    assert (made.device, made.precision, made.threads) == ("cpu", "float32", 1)
    assert 0 < facts.training_seconds <= facts.seconds
    assert facts.parameters == sum(
        parameter.numel() for parameter in bench.classifier("untied", task).parameters()
    )
    tokens, split = (
        bench.inputs.tokens(bench.cell("untied", task)).splits,
        TASKS[task].test_splits[0],
    )
    assert facts.training_tokens == 2 * int(tokens["train"].lengths.sum())
    assert [*dict.fromkeys(told)] == [(step, 6) for step in range(1, 7)]
    assert told.count((6, 6)) > len(sizes)  # so long as it predicts, too
    first = tokens[split].take(np.array([0]))
    ids, segments = (torch.from_numpy(part[None]).long() for part in (first.ids, first.segments))
    found = outcome.model.eval()(ids, None, segments).logits.detach()
    np.testing.assert_allclose(found[0], outcome.predictions[split][0], atol=1e-6)


def same(tensors) -> bool:
    first, *others = tensors
    return all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("pooler", [True, False, None])
def test_heads_are_of_the_seed_alone_and_a_checkpoints_weights_stay_untouched(
    bench_of, make_bert, pooler
):
    """Of checkpoints with a pooler and without one, and of fresh weights."""
    texts = tuple(generate("cola")["train"]["text_a"])
    folder = "scratch" if pooler is None else str(make_bert(texts=texts, pooler=pooler))
    bench = bench_of(checkpoint=folder, arms=ARMS)
    starts = [bench.inputs.arms[arm].start.weights for arm in ("add", "untied")]
    before = [{name: tensor.clone() for name, tensor in start.items()} for start in starts]
    heads = {seed: [bench.classifier(arm, seed=seed) for arm in ARMS] for seed in (1, 2)}
    assert all(same(head.classifier.weight for head in some) for some in heads.values())
    assert all(same(head.base.pooler.dense.weight for head in some) for some in heads.values())
    assert not same(some[0].classifier.weight for some in heads.values())
    assert same(some[0].base.pooler.dense.weight for some in heads.values()) == bool(pooler)
    facts = [bench.run(arm).record for arm in ("add", "untied")]
    assert [each.graft_is_exact is None for each in facts] == [True, pooler is None]
    assert [each.started_from for each in facts] == [
        weights_digest(each) if each else None for each in before
    ]
    for start, kept in zip(starts, before, strict=True):
        assert all(torch.equal(start[name], tensor) for name, tensor in kept.items())


@pytest.mark.parametrize(("most", "epochs", "updates"), [(3, 1, 3), (5, 2, 5), (50, 3, 9)])
def test_a_run_ends_after_max_steps_and_counts_what_it_has_seen(bench_of, most, epochs, updates):
    bench = bench_of(
        arms=["add"], tasks=["rte"], finetuning={"epochs": 3, "batch_size": 16, "max_steps": most}
    )
    told = []
    facts = bench.run(
        "add", "rte", progress=lambda step, steps, _: told.append((step, steps))
    ).record
    assert [*dict.fromkeys(told)] == [(step, updates) for step in range(1, updates + 1)]
    assert len(facts.history) == epochs
    train, seen = bench.inputs.tokens(bench.cell("add", "rte")).splits["train"], []
    for epoch in range(1, epochs + 1):
        seen += [
            int(train.lengths[batch.rows].sum())
            for batch in training_batches(train, 16, 0, 1, epoch)
        ]
    assert facts.training_tokens == sum(seen[:updates])


class Overflowing(VARIANTS["add"]):
    """Finite in float32; in bf16 it rounds to infinity."""

    def forward(self, token_ids, segment_ids):
        made = super().forward(token_ids, segment_ids)
        one = torch.ones(1, 1)
        return replace(made, hidden=made.hidden + 1e-38 * F.linear(one, 3.4e38 * one).float())


@pytest.fixture
def own(bench_of, monkeypatch):
    """A cell whose arm has this class for a variant."""

    def of(variant: type[Variant], **changes) -> Bench:
        monkeypatch.setitem(VARIANTS, "own", variant)
        return bench_of(arms=["own"], tasks=["cola"], **changes)

    return of


def losses(outcome) -> list[float]:
    return [epoch.train_loss for epoch in outcome.record.history]


def test_where_memory_is_short_batches_go_through_in_parts(own):
    values = {"scratch": STILL, "finetuning": {"epochs": 2}}
    whole = own(VARIANTS["add"], **values).run("own")
    assert whole.record.micro_batch_size is None
    parted = own(Greedy, **values).run("own")
    assert parted.record.micro_batch_size == 4
    assert losses(parted) == pytest.approx(losses(whole), rel=1e-4)
    assert parted.predictions["validation"] == pytest.approx(
        whole.predictions["validation"], abs=1e-4
    )
    assert parted.record.training_tokens == whole.record.training_tokens


def test_a_row_that_does_not_fit_and_what_is_no_lack_of_memory_are_errors(own, monkeypatch):
    monkeypatch.setattr(Greedy, "room", 0)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        own(Greedy).run("own")
    monkeypatch.setattr(Greedy, "error", ValueError("out of memory"))
    with pytest.raises(ValueError, match="out of memory"):
        own(Greedy).run("own")


def test_what_overflows_in_bf16_alone_is_trained_in_float32(own):
    outcome, plain = (own(Overflowing).run("own", compute=compute) for compute in (BF16, CPU))
    assert (outcome.record.precision, outcome.record.environment.precision) == ("float32", "bf16")
    assert (plain.record.precision, plain.record.environment.precision) == (None, "float32")
    assert losses(outcome) == losses(plain)


@pytest.mark.parametrize(("in_training", "compute"), [(True, CPU), (False, CPU), (True, BF16)])
def test_what_diverges_in_float32_is_an_error(own, monkeypatch, in_training, compute):
    """Also where the last update alone has done it: its own loss is still finite."""
    monkeypatch.setattr(Diverging, "in_training", in_training)
    said = "loss is nan in epoch 1" if in_training else "predictions are not finite after epoch 1"
    with pytest.raises(NonFiniteLossError, match=said):
        own(Diverging).run("own", compute=compute)
