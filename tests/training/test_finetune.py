"""One cell: what it records, and that nothing but the cell decides its bits."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from glue_bench.config import Cell, parse_experiment
from glue_bench.data.demo import generate
from glue_bench.data.metrics import score_logits
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.files import check_checksums
from glue_bench.training.finetune import Outcome, build_classifier, finetune, threads_for
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import HostTraining, NonFiniteLossError
from glue_bench.training.runtime import all_threads

pytestmark = pytest.mark.usefixtures("small_demo")
ARMS = ["add", "concat", "untied", "none"]


@dataclass
class Bench:
    """The cells of a tiny experiment by arm, task and seed."""

    inputs: Inputs

    def cell(self, arm="add", task="cola", seed=1) -> Cell:
        return next(c for c in self.inputs.experiment.cells() if (c.arm.name, c.task, c.seed) == (arm, task, seed))

    def run(self, *which) -> Outcome:
        cell = self.cell(*which)
        tokens = self.inputs.tokens(cell)
        return finetune(cell, self.inputs.initial(cell.arm), tokens)

    def classifier(self, arm="add", task="cola", seed=1):
        return build_classifier(self.inputs.initial(self.cell(arm, task).arm), task, seed)


@pytest.fixture
def bench(tiny) -> Bench:
    finetuning = {"epochs": 2, "predict": ["validation", "test"]}
    experiment = tiny(arms=ARMS, tasks=["cola", "stsb", "mnli"], seeds=[1, 2], finetuning=finetuning)
    return Bench(Inputs(parse_experiment(experiment)))


def bits(outcome: Outcome) -> dict:
    """What must not differ between two runs of a cell: all but the seconds."""
    arrays = {name: logits.tobytes() for name, logits in outcome.predictions.items()}
    return arrays | outcome.record.model_dump(exclude={"seconds"})


def labels(task: str, split: str) -> np.ndarray:
    return generate(task)[split]["label"].to_numpy()


@pytest.mark.parametrize("task", ["cola", "stsb", "mnli"])
def test_a_cell_leaves_scores_history_and_predictions(bench, task):
    outcome = bench.run("add", task)
    record = outcome.record
    assert [epoch.epoch for epoch in record.history] == [1, 2]
    splits = [*TASKS[task].validation_splits, *TASKS[task].test_splits]
    sizes = {name: len(labels(task, name)) for name in splits}
    if task == "mnli":
        sizes[AX_SPLIT] = len(labels("ax", "test"))
    assert set(outcome.predictions) == set(sizes)
    for name, logits in outcome.predictions.items():
        assert logits.dtype == np.float32
        assert logits.shape == (sizes[name], TASKS[task].num_labels)


@pytest.mark.parametrize("task", ["cola", "stsb", "mnli"])
def test_the_score_is_the_last_epochs_and_that_of_the_stored_predictions(bench, task):
    outcome = bench.run("untied", task)
    record = outcome.record
    assert record.scores == record.history[-1].scores
    assert set(record.scores) == set(TASKS[task].validation_splits)
    for split, scores in record.scores.items():
        assert scores == score_logits(task, outcome.predictions[split], labels(task, split))


def test_sizes_and_seconds_are_recorded(bench):
    cell = bench.cell()
    record = bench.run().record
    tokens = bench.inputs.tokens(cell).splits["train"]
    assert record.tokens.training == 2 * int(tokens.lengths.sum())
    assert record.parameters == sum(parameter.numel() for parameter in bench.classifier().parameters())
    assert 0 < record.seconds.training <= record.seconds.total
    assert record.origin == "scratch"


def test_a_model_that_says_one_thing_is_marked(bench, monkeypatch):
    monkeypatch.setattr(
        "glue_bench.training.loop.predict", lambda _model, _batches, rows: np.tile([[1.0, 0.0]], (rows, 1))
    )
    assert bench.run().record.collapsed == ("validation",)


@pytest.mark.parametrize("arm", ARMS)
def test_the_same_cell_gives_the_same_bits_whatever_ran_before(bench, arm):
    first = bench.run(arm)
    bench.run("concat", "stsb", 2)
    torch.manual_seed(99)
    assert bits(bench.run(arm)) == bits(first)


def test_another_process_state_changes_no_bit(bench, tiny):
    first = bench.run("untied", "stsb")
    torch.rand(7)
    np.random.seed(3)  # noqa: NPY002 (the global generator must not matter)
    finetuning = {"epochs": 2, "predict": ["validation", "test"]}
    alone = tiny(arms=["untied"], tasks=["cola", "stsb", "mnli"], finetuning=finetuning)
    fresh = Bench(Inputs(parse_experiment(alone)))
    assert bits(fresh.run("untied", "stsb")) == bits(first)


def test_another_seed_gives_other_bits(bench):
    assert bits(bench.run("add", "cola", 2)) != bits(bench.run("add", "cola", 1))


def test_heads_are_equal_across_variants_for_equal_seeds(bench):
    heads = [bench.classifier(arm) for arm in ARMS]
    for other in heads[1:]:
        assert torch.equal(other.classifier.weight, heads[0].classifier.weight)
        assert torch.equal(other.base.pooler.dense.weight, heads[0].base.pooler.dense.weight)
    assert not torch.equal(bench.classifier(seed=2).classifier.weight, heads[0].classifier.weight)


def test_all_variants_draw_the_same_numbers_in_training(bench):
    drawn = set()
    for arm in ARMS:
        bench.classifier(arm)
        drawn.add(torch.rand(1).item())
    assert len(drawn) == 1


def test_the_head_fits_the_task(bench):
    assert bench.classifier(task="mnli").config.id2label == dict(enumerate(TASKS["mnli"].labels))
    assert bench.classifier(task="stsb").classifier.out_features == 1


# From a checkpoint


def from_checkpoint(tiny, folder, arms=("add",)) -> Bench:
    return Bench(Inputs(parse_experiment(tiny(checkpoint=str(folder), arms=list(arms)))))


def test_the_encoder_that_is_left_is_this_runs_whatever_an_earlier_one_has_left(bench, tmp_path):
    cell = bench.cell("add", "mnli")
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "model.safetensors").write_bytes(b"of a run that was killed before its record")
    finetune(cell, bench.inputs.initial(cell.arm), bench.inputs.tokens(cell), tmp_path / "encoder")
    check_checksums(tmp_path / "encoder")
    assert (tmp_path / "encoder" / "model.safetensors").stat().st_size > 1000


def test_a_last_update_that_diverges_is_a_divergence(bench, monkeypatch):
    """Its own loss is still finite, as are those of all updates before it."""
    predict = HostTraining.predict
    monkeypatch.setattr(HostTraining, "predict", lambda *given: predict(*given) * np.float32("nan"))
    with pytest.raises(NonFiniteLossError, match="predictions are not finite after epoch 1"):
        bench.run()


def test_a_checkpoints_pooler_is_kept(tiny, make_bert):
    bench = from_checkpoint(tiny, make_bert(texts=tuple(generate("cola")["train"]["text_a"])), ARMS)
    stored = bench.inputs.initial(bench.cell().arm).weights["pooler.dense.weight"]
    heads = [bench.classifier(arm, seed=seed) for arm in ARMS for seed in (1, 2)]
    assert all(torch.equal(head.base.pooler.dense.weight, stored) for head in heads)
    assert torch.equal(heads[0].classifier.weight, heads[2].classifier.weight)
    assert not torch.equal(heads[0].classifier.weight, heads[1].classifier.weight)


def test_a_checkpoint_without_a_pooler_gets_a_fresh_one(tiny, make_bert):
    folder = make_bert(texts=tuple(generate("cola")["train"]["text_a"]), pooler=False)
    bench = from_checkpoint(tiny, folder, ARMS)
    poolers = [bench.classifier(arm).base.pooler.dense.weight for arm in ARMS]
    assert all(torch.equal(pooler, poolers[0]) for pooler in poolers)
    assert not torch.equal(bench.classifier(seed=2).base.pooler.dense.weight, poolers[0])


def test_cells_of_a_checkpoint_leave_it_untouched(tiny, make_bert):
    bench = from_checkpoint(tiny, make_bert(texts=tuple(generate("cola")["train"]["text_a"])), ["add", "untied"])
    starts = [bench.inputs.initial(bench.cell(arm).arm) for arm in ("add", "untied")]
    before = [{name: tensor.clone() for name, tensor in start.weights.items()} for start in starts]
    outcomes = [bench.run("add"), bench.run("untied")]
    assert [outcome.record.origin for outcome in outcomes] == ["pretrained", "grafted"]
    for start, weights in zip(starts, before, strict=True):
        assert all(torch.equal(start.weights[name], tensor) for name, tensor in weights.items())


def test_a_narrow_encoder_uses_one_thread_and_a_wide_one_all_of_them():
    before = all_threads()
    torch.set_num_threads(threads_for(64))
    assert torch.get_num_threads() == 1
    torch.set_num_threads(threads_for(768))
    assert torch.get_num_threads() == before
