"""One cell: its record, its retries, and that the cell alone decides its bits."""

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
from glue_bench.training import fixed_steps
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.fixed_steps import SHARED
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

    def run(self, *key, compute=CPU, **options) -> Outcome:
        return finetune(self.cell(*key), self.inputs, compute, **options)

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


class Steps:
    """Notes the steps that a run reports."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, int]] = []

    def __call__(self, step, steps, _loss) -> None:
        self.reported.append((step, steps))

    @property
    def distinct(self) -> list[tuple[int, int]]:
        return [*dict.fromkeys(self.reported)]


@dataclass(frozen=True)
class Finished:
    """A finished cell of `untied`, on one of three tasks."""

    task: str
    bench: Bench
    outcome: Outcome
    steps: Steps

    @property
    def splits(self) -> list[str]:
        """The splits that the cell predicts."""
        names = [*TASKS[self.task].validation_splits, *TASKS[self.task].test_splits]
        return [*names, AX_SPLIT] if self.task == "mnli" else names

    @property
    def tokens(self):
        return self.bench.inputs.tokens(self.bench.cell("untied", self.task)).splits


@pytest.fixture(params=["cola", "stsb", "mnli"])
def finished(request, bench) -> Finished:
    steps = Steps()
    outcome = bench.run("untied", request.param, progress=steps)
    return Finished(request.param, bench, outcome, steps)


def test_a_cell_leaves_logits_of_each_example_of_each_split(finished):
    task = finished.task
    assert set(finished.outcome.predictions) == set(finished.splits)
    for split, logits in finished.outcome.predictions.items():
        gold = labels("ax", "test") if split == AX_SPLIT else labels(task, split)
        assert logits.shape == (len(gold), TASKS[task].num_labels), split
        assert logits.dtype == np.float32


def test_the_score_of_a_cell_follows_from_its_logits_after_the_last_epoch(finished):
    record = finished.outcome.record
    scores = {}
    for split in TASKS[finished.task].validation_splits:
        logits = finished.outcome.predictions[split]
        scores[split] = score_logits(finished.task, logits, labels(finished.task, split))
    assert record.scores == scores
    assert [epoch.epoch for epoch in record.history] == [1, 2]
    assert record.history[-1].scores == scores


def test_the_record_of_a_cell_has_its_costs(finished):
    record = finished.outcome.record
    model = finished.bench.classifier("untied", finished.task)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tokens = 2 * int(finished.tokens["train"].lengths.sum())
    assert record.parameters == parameters
    assert record.training_tokens == tokens
    assert 0 < record.training_seconds <= record.seconds


def test_the_record_of_a_cell_has_its_environment(finished):
    record = finished.outcome.record
    assert record.environment.device == "cpu"
    assert record.environment.precision == "float32"
    assert record.environment.threads == 1
    assert record.environment.graphs is False


def test_the_record_of_a_cell_from_fresh_weights_says_nothing_that_is_as_usual(finished):
    record = finished.outcome.record
    assert record.started_from is None
    assert record.micro_batch_size is None
    assert record.precision is None


def test_a_cell_reports_each_step_and_the_last_one_while_it_predicts(finished):
    assert finished.steps.distinct == [(step, 6) for step in range(1, 7)]
    assert finished.steps.reported.count((6, 6)) > len(finished.splits)


def test_the_model_of_a_cell_gives_its_logits(finished):
    split = TASKS[finished.task].test_splits[0]
    first = finished.tokens[split].take(np.array([0]))
    ids = torch.from_numpy(first.ids[None]).long()
    segments = torch.from_numpy(first.segments[None]).long()
    logits = finished.outcome.model.eval()(ids, None, segments).logits.detach()
    np.testing.assert_allclose(logits[0], finished.outcome.predictions[split][0], atol=1e-6)


def are_equal(tensors) -> bool:
    first, *rest = tensors
    return all(torch.equal(first, tensor) for tensor in rest)


@pytest.fixture(params=[True, False, None], ids=["pooler", "no pooler", "fresh weights"])
def has_pooler(request) -> bool | None:
    return request.param


@pytest.fixture
def started(bench_of, make_bert, has_pooler) -> Bench:
    """Arms from a checkpoint with a pooler or without one, or from fresh weights."""
    texts = tuple(generate("cola")["train"]["text_a"])
    folder = "scratch" if has_pooler is None else str(make_bert(texts=texts, pooler=has_pooler))
    return bench_of(checkpoint=folder, arms=ARMS)


def test_fresh_modules_are_decided_by_the_seed_alone(started, has_pooler):
    of_first_seed = [started.classifier(arm, seed=1) for arm in ARMS]
    of_second_seed = [started.classifier(arm, seed=2) for arm in ARMS]
    for classifiers in (of_first_seed, of_second_seed):
        assert are_equal(model.classifier.weight for model in classifiers)
        assert are_equal(model.base.pooler.dense.weight for model in classifiers)
    pair = (of_first_seed[0], of_second_seed[0])
    assert not are_equal(model.classifier.weight for model in pair)
    assert are_equal(model.base.pooler.dense.weight for model in pair) == bool(has_pooler)


@pytest.mark.parametrize("arm", ["add", "untied"])
def test_a_cell_leaves_the_weights_that_it_started_from_untouched(started, arm):
    weights = started.inputs.arms[arm].start.weights
    before = {name: tensor.clone() for name, tensor in weights.items()}
    record = started.run(arm).record
    assert record.started_from == (weights_digest(before) if before else None)
    for name, tensor in before.items():
        assert torch.equal(weights[name], tensor), name


def test_only_a_record_of_a_grafted_arm_says_whether_the_graft_is_exact(started, has_pooler):
    assert started.run("add").record.graft_is_exact is None
    assert (started.run("untied").record.graft_is_exact is None) == (has_pooler is None)


@pytest.mark.parametrize(("max_steps", "epochs", "updates"), [(3, 1, 3), (5, 2, 5), (50, 3, 9)])
def test_a_run_ends_after_max_steps_and_counts_its_tokens(bench_of, max_steps, epochs, updates):
    finetuning = {"epochs": 3, "batch_size": 16, "max_steps": max_steps}
    bench = bench_of(arms=["add"], tasks=["rte"], finetuning=finetuning)
    steps = Steps()
    record = bench.run("add", "rte", progress=steps).record
    assert steps.distinct == [(step, updates) for step in range(1, updates + 1)]
    assert len(record.history) == epochs
    train = bench.inputs.tokens(bench.cell("add", "rte")).splits["train"]
    tokens: list[int] = []
    for epoch in range(1, epochs + 1):
        for batch in training_batches(train, 16, 0, 1, epoch):
            lengths = train.lengths[batch.rows]
            tokens.append(int(lengths.sum()))
    assert record.training_tokens == sum(tokens[:updates])


class Overflowing(VARIANTS["add"]):
    """A variant that is finite in float32, and rounds to infinity in bf16."""

    def forward(self, token_ids, segment_ids):
        encoder_input = super().forward(token_ids, segment_ids)
        unit = torch.ones(1, 1)
        overflow = 1e-38 * F.linear(unit, 3.4e38 * unit).float()
        return replace(encoder_input, hidden=encoder_input.hidden + overflow)


@pytest.fixture
def plugin_bench(bench_of, monkeypatch):
    """A cell whose arm has this class for a variant."""

    def of(variant: type[Variant], **changes) -> Bench:
        monkeypatch.setitem(VARIANTS, "own", variant)
        return bench_of(arms=["own"], tasks=["cola"], **changes)

    return of


def losses(outcome) -> list[float]:
    return [epoch.train_loss for epoch in outcome.record.history]


def test_where_memory_is_short_batches_go_through_in_parts(plugin_bench):
    values = {"scratch": STILL, "finetuning": {"epochs": 2}}
    unlimited = plugin_bench(VARIANTS["add"], **values).run("own")
    limited = plugin_bench(Greedy, **values).run("own")
    assert unlimited.record.micro_batch_size is None
    assert limited.record.micro_batch_size == 4
    assert losses(limited) == pytest.approx(losses(unlimited), rel=1e-4)
    expected = pytest.approx(unlimited.predictions["validation"], abs=1e-4)
    assert limited.predictions["validation"] == expected
    assert limited.record.training_tokens == unlimited.record.training_tokens


def test_the_error_of_a_single_row_that_does_not_fit_is_raised(plugin_bench, monkeypatch):
    monkeypatch.setattr(Greedy, "room", 0)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        plugin_bench(Greedy).run("own")


def test_an_error_that_is_not_of_memory_is_raised(plugin_bench, monkeypatch):
    monkeypatch.setattr(Greedy, "room", 0)
    monkeypatch.setattr(Greedy, "error", ValueError("out of memory"))
    with pytest.raises(ValueError, match="out of memory"):
        plugin_bench(Greedy).run("own")


def test_what_overflows_in_bf16_alone_is_trained_in_float32(plugin_bench):
    from_bf16 = plugin_bench(Overflowing).run("own", compute=BF16)
    in_float32 = plugin_bench(Overflowing).run("own", compute=CPU)
    assert from_bf16.record.precision == "float32"
    assert from_bf16.record.environment.precision == "bf16"
    assert in_float32.record.precision is None
    assert in_float32.record.environment.precision == "float32"
    assert losses(from_bf16) == losses(in_float32)


@pytest.mark.parametrize(("in_training", "compute"), [(True, CPU), (False, CPU), (True, BF16)])
def test_what_diverges_in_float32_is_an_error(plugin_bench, monkeypatch, in_training, compute):
    """This holds even if only the last update diverges, whose own loss is still finite."""
    monkeypatch.setattr(Diverging, "in_training", in_training)
    message = "predictions are not finite after epoch 1"
    if in_training:
        message = "loss is nan in epoch 1"
    with pytest.raises(NonFiniteLossError, match=message):
        plugin_bench(Diverging).run("own", compute=compute)


FIXED = replace(CPU, graph=True)
SMALL = {"finetuning": {"epochs": 2, "batch_size": 8}, "tasks": ["cola", "stsb", "mnli"]}


@pytest.fixture
def short_cells_too(monkeypatch):
    """Cells of any length take fixed steps. No cell has run before."""
    monkeypatch.setattr(fixed_steps, "MIN_STEPS", 1)
    SHARED.clear()
    yield
    SHARED.clear()


@pytest.mark.usefixtures("short_cells_too")
@pytest.mark.parametrize("task", ["cola", "stsb", "mnli"])
@pytest.mark.parametrize("arm", ARMS)
def test_fixed_steps_give_the_scores_of_a_cell_but_for_rounding(bench_of, arm, task):
    bench = bench_of(arms=ARMS, scratch=STILL, **SMALL)
    plain = bench.run(arm, task)
    fixed = bench.run(arm, task, compute=FIXED)
    assert len(SHARED) == 1
    assert losses(fixed) == pytest.approx(losses(plain), rel=1e-4)
    expected = pytest.approx(plain.predictions[VALIDATION[task]], abs=1e-3)
    assert fixed.predictions[VALIDATION[task]] == expected
    assert fixed.record.training_tokens == plain.record.training_tokens
    assert fixed.record.environment.graphs is False  # a CPU captures nothing


VALIDATION = {"cola": "validation", "stsb": "validation", "mnli": "validation_matched"}


@pytest.mark.usefixtures("short_cells_too")
def test_cells_of_an_arm_share_fixed_steps_and_earlier_cells_change_no_bit(bench_of):
    """With dropout."""
    bench = bench_of(arms=["add", "none"], seeds=[1, 2], tasks=["cola", "rte", "stsb"])
    alone = weights_digest(bench.run("add", "rte", 2, compute=FIXED).model.state_dict())
    SHARED.clear()
    for key in (("add", "cola", 1), ("add", "rte", 1), ("add", "rte", 2)):
        last = bench.run(*key, compute=FIXED)
    assert len(SHARED) == 1
    assert weights_digest(last.model.state_dict()) == alone
    assert last.model.config.id2label == dict(enumerate(TASKS["rte"].labels))
    bench.run("none", "rte", 2, compute=FIXED)
    bench.run("add", "stsb", 2, compute=FIXED)
    assert len(SHARED) == 3


def test_a_short_cell_takes_steps_as_they_are(bench):
    """With dropout, whose numbers depend on the way."""
    SHARED.clear()
    assert losses(bench.run(compute=FIXED)) == pytest.approx(losses(bench.run()), rel=1e-4)
    assert not SHARED
