"""Inputs and ids come from one state of the files; the tokens and segments of a cell."""

import json
from pathlib import Path

import pytest
from helpers.tiny_models import edit_weights
from helpers.tiny_pretraining import CPU, SIZES
from tokenizers import Tokenizer
from transformers import AutoModel, BertConfig, DistilBertConfig, PreTrainedTokenizerFast

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.data.hub import HubSource
from glue_bench.data.sources import DemoSource
from glue_bench.data.tasks import AX_SPLIT, TRAINABLE
from glue_bench.errors import DiskError, UserError
from glue_bench.records.values import Plan
from glue_bench.sweep.plan import make_plan, settle_jobs
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import BERT_TOKENS, train_tokenizer

pytestmark = pytest.mark.usefixtures("small_demo")
DISTILBERT = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}
TEXTS = ("a cat sat on the mat", "the dog ran")


@pytest.fixture
def inputs_of(tiny):
    return lambda **changes: Inputs(load_experiment(tiny(**changes)), Path("none"))


def plan_of(inputs: Inputs) -> Plan:
    return make_plan(inputs)


def test_a_checkpoint_changed_in_place_is_another_start_and_read_weights_stay(inputs_of, make_bert):
    folder = make_bert()
    first = inputs_of(checkpoint=str(folder))
    second = inputs_of(checkpoint=str(folder))
    meanwhile = inputs_of(checkpoint=str(folder))
    digest = first.first_arm.start_digest
    weights = first.first_arm.start.weights["norm.weight"]
    assert meanwhile.first_arm.start_digest == digest
    edit_weights(folder, lambda weights: [tensor.add_(0.01) for tensor in weights.values()])
    assert second.first_arm.start_digest != digest
    assert first.first_arm.start_digest == digest
    assert not second.first_arm.start.weights["norm.weight"].equal(weights)
    second_arm = first.arms[first.experiment.arms[1].name]
    assert second_arm.start.weights["norm.weight"].equal(weights)
    with pytest.raises(
        UserError, match=r"^checkpoint '.*bert' has changed while it was in use; start again$"
    ):
        _ = meanwhile.first_arm.start


class WithoutAx(DemoSource):
    """The demo as a folder that lacks AX."""

    def tasks(self) -> list[str]:
        return list(TRAINABLE)


class BrokenAx(DemoSource):
    """A source whose AX cannot be read."""

    error = UserError("AX/diagnostic.tsv is damaged")

    def load(self, task):
        if task == "ax":
            raise self.error
        return super().load(task)


class OfflineHub(BrokenAx, HubSource):
    """A hub that is out of reach, with MNLI in its cache."""


@pytest.fixture
def inputs_from(inputs_of):
    """Return a function that makes inputs of MNLI and RTE from a source of data."""

    def make(source, *predicted) -> Inputs:
        finetuning = {"predict": ["validation", *predicted]}
        inputs = inputs_of(tasks=["mnli", "rte"], arms=["add"], finetuning=finetuning)
        inputs.tasks.source = source
        return inputs

    return make


def splits_of(inputs: Inputs, task: str):
    """Return the tokens of the splits of a task's cell."""
    _, cells = settle_jobs(inputs)
    cell = next(cell for cell in cells if cell.task == task)
    return inputs.tokens(cell).splits


def test_mnli_has_the_diagnostic_set_if_tests_are_predicted(inputs_from):
    inputs = inputs_from(DemoSource(), "test")
    assert len(splits_of(inputs, "mnli")[AX_SPLIT]) == len(generate("ax")["test"])
    assert AX_SPLIT not in splits_of(inputs, "rte")


@pytest.mark.parametrize("source", [WithoutAx(), OfflineHub()], ids=["folder", "hub"])
def test_a_source_without_ax_gives_the_same_cells_without_the_diagnostic_set(inputs_from, source):
    inputs = inputs_from(source, "test")
    assert AX_SPLIT not in splits_of(inputs, "mnli")
    ids = [cell.id for cell in plan_of(inputs).cells]
    assert ids == [cell.id for cell in plan_of(inputs_from(DemoSource(), "test")).cells]


def test_ax_is_not_read_if_no_test_split_is_predicted(inputs_from):
    inputs = inputs_from(BrokenAx())
    assert plan_of(inputs).cells
    assert not [name for name in splits_of(inputs, "mnli") if name.startswith("test")]


class FullDisk(OfflineHub):
    """A hub whose cache is on a full disk."""

    error = DiskError("the cache of datasets is full")


@pytest.mark.parametrize("source", [BrokenAx(), FullDisk()], ids=["damaged", "full"])
def test_a_diagnostic_set_that_cannot_be_read_is_an_error(inputs_from, source):
    with pytest.raises(type(source.error), match=str(source.error)):
        plan_of(inputs_from(source, "test"))


def test_the_record_names_the_diagnostic_set_and_no_other_prediction_changes(inputs_from):
    outcomes = []
    for source in (DemoSource(), WithoutAx()):
        inputs = inputs_from(source, "test")
        cell = plan_of(inputs).cells[0]
        outcomes.append(finetune(cell, inputs, CPU))
    with_ax, without_ax = outcomes
    assert with_ax.record.diagnostic == DemoSource().load("ax").digest
    assert without_ax.record.diagnostic is None
    assert with_ax.predictions.keys() - without_ax.predictions.keys() == {AX_SPLIT}
    for split, logits in without_ax.predictions.items():
        assert (with_ax.predictions[split] == logits).all(), split


def save(folder: Path, second: int = 1, types: int = 2) -> str:
    """Save an encoder and a tokenizer, and return the folder.

    The encoder is a BERT with `types` segments, or a DistilBERT if there are none. The tokenizer
    puts second texts into segment `second`.
    """
    sizes = {"vocab_size": 250, "max_position_embeddings": 32}
    config = DistilBertConfig(**DISTILBERT | sizes)
    if types:
        config = BertConfig(**SIZES | sizes, type_vocab_size=types)
    AutoModel.from_config(config).save_pretrained(folder)
    state = json.loads(train_tokenizer(TEXTS, 200).backend_tokenizer.to_str())
    for part in state["post_processor"]["pair"]:
        next(iter(part.values()))["type_id"] *= second
    library = Tokenizer.from_str(json.dumps(state))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, **BERT_TOKENS)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("second", "types"), [(2, 2), (9, 3)])
def test_a_segment_without_a_row_is_refused_before_any_compute(inputs_of, tmp_path, second, types):
    folder = save(tmp_path / "bert", second, types)
    inputs = inputs_of(checkpoint=folder, arms=["add"], tasks=["rte"])
    message = (
        f"the tokenizer tells {second + 1} segments apart but the checkpoint '.*bert' "
        f"embeds {types}; put the tokenizer"
    )
    with pytest.raises(UserError, match=message):
        plan_of(inputs)


def test_an_encoder_with_one_segment_or_none_gets_no_other_beside_arms_that_have_two(
    inputs_of, tmp_path
):
    arms = []
    for types in (2, 1, 0):
        folder = save(tmp_path / f"of-{types}", types=types)
        arms.append({"name": f"of-{types}", "variant": "add", "checkpoint": folder})
    inputs = inputs_of(arms=arms, tasks=["rte"], checkpoint=None)
    assert [arm.segments for arm in inputs.arms.values()] == [(2, 2), (2, 1), (2, 0)]
    of_two, of_one, _ = (inputs.tokens(cell).splits["train"] for cell in plan_of(inputs).cells)
    assert (of_one.ids == of_two.ids).all()
    assert of_two.segments.max() == 1
    expected = [0] * len(of_one.ids)
    assert of_one.segments.tolist() == expected


def row_counts(inputs: Inputs) -> dict[str, int]:
    return {name: len(split) for name, split in inputs.tasks.data("rte").splits.items()}


def test_a_limit_cuts_train_and_validation_and_a_tasks_own_one_train_alone(inputs_of):
    of_task = {"tasks": {"rte": {"limit": 8}}}
    full = inputs_of(arms=["add"], tasks=["rte"])
    limited = inputs_of(arms=["add"], tasks=["rte"], limit=8)
    train_limited = inputs_of(arms=["add"], tasks=["rte"], finetuning=of_task)
    assert row_counts(limited) == row_counts(full) | {"train": 8, "validation": 8}
    expected = row_counts(full) | {"train": 8}
    assert row_counts(train_limited) == expected
    train = train_limited.tasks.train_split("rte")
    assert train.equals(limited.tasks.train_split("rte"))
    digests = {inputs.tasks.data("rte").digest for inputs in (full, limited, train_limited)}
    assert len(digests) == 3
