"""What inputs keep, and what ids stand for, are of one state of the files; what tokens and segments a cell gets."""

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
from glue_bench.training.tokenizers import SPECIAL, train_tokenizer

pytestmark = pytest.mark.usefixtures("small_demo")
DISTILBERT = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}
TEXTS = ("a cat sat on the mat", "the dog ran")


@pytest.fixture
def inputs_of(tiny):
    return lambda **changes: Inputs(load_experiment(tiny(**changes)), Path("none"))


def plan_of(inputs: Inputs) -> Plan:
    return make_plan(inputs)


def test_a_checkpoint_changed_in_place_is_another_start_and_what_was_read_stays(
    inputs_of, make_bert
):
    folder = make_bert()
    first, other, meanwhile = (inputs_of(checkpoint=str(folder)) for _ in range(3))
    digest = first.first_arm.start_digest
    weights = first.first_arm.start.weights["norm.weight"]
    assert meanwhile.first_arm.start_digest == digest
    edit_weights(folder, lambda weights: [tensor.add_(0.01) for tensor in weights.values()])
    assert other.first_arm.start_digest != digest
    assert first.first_arm.start_digest == digest
    assert not other.first_arm.start.weights["norm.weight"].equal(weights)
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
    """The hub out of reach, with MNLI in its cache."""


@pytest.fixture
def beside(inputs_of):
    """Inputs of MNLI and RTE from a source, and the names of MNLI's splits and RTE's."""

    def of(source, *predicted):
        inputs = inputs_of(
            tasks=["mnli", "rte"], arms=["add"], finetuning={"predict": ["validation", *predicted]}
        )
        inputs.tasks.source = source
        _, cells = settle_jobs(inputs)
        return (
            inputs,
            lambda task: inputs.tokens(next(cell for cell in cells if cell.task == task)).splits,
        )

    return of


def test_mnli_brings_the_diagnostic_set_where_tests_are_predicted_and_it_is_there(beside):
    inputs, splits = beside(DemoSource(), "test")
    assert len(splits("mnli")[AX_SPLIT]) == len(generate("ax")["test"])
    assert AX_SPLIT not in splits("rte")
    ids = [cell.id for cell in plan_of(inputs).cells]
    for source in (WithoutAx(), OfflineHub()):
        inputs, splits = beside(source, "test")
        assert AX_SPLIT not in splits("mnli")
        assert [cell.id for cell in plan_of(inputs).cells] == ids
    inputs, splits = beside(BrokenAx())
    assert plan_of(inputs).cells
    assert not [name for name in splits("mnli") if name.startswith("test")]
    full = OfflineHub()
    full.error = DiskError("the cache of datasets is full")
    for source in (BrokenAx(), full):
        inputs, _ = beside(source, "test")
        with pytest.raises(type(source.error), match=str(source.error)):
            plan_of(inputs)


def test_which_diagnostic_set_was_predicted_is_told_and_changes_no_prediction(beside):
    with_ax, without = (beside(source, "test")[0] for source in (DemoSource(), WithoutAx()))
    first, second = (
        finetune(plan_of(inputs).cells[0], inputs, CPU) for inputs in (with_ax, without)
    )
    assert (first.record.diagnostic, second.record.diagnostic) == (
        DemoSource().load("ax").digest,
        None,
    )
    assert first.predictions.keys() - second.predictions.keys() == {AX_SPLIT}
    assert all(
        (first.predictions[split] == logits).all() for split, logits in second.predictions.items()
    )


def save(folder: Path, second: int = 1, types: int = 2) -> str:
    """A BERT with so many segments, or a DistilBERT for none, and a tokenizer that puts second texts into this one."""
    sizes = {"vocab_size": 250, "max_position_embeddings": 32}
    config = (
        BertConfig(**SIZES | sizes, type_vocab_size=types)
        if types
        else DistilBertConfig(**DISTILBERT | sizes)
    )
    AutoModel.from_config(config).save_pretrained(folder)
    state = json.loads(train_tokenizer(TEXTS, 200).backend_tokenizer.to_str())
    for part in state["post_processor"]["pair"]:
        next(iter(part.values()))["type_id"] *= second
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)), **SPECIAL
    ).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("second", "types"), [(2, 2), (9, 3)])
def test_a_segment_without_a_row_is_refused_before_any_compute(inputs_of, tmp_path, second, types):
    inputs = inputs_of(
        checkpoint=save(tmp_path / "bert", second, types), arms=["add"], tasks=["rte"]
    )
    said = (
        f"the tokenizer tells {second + 1} segments apart but the checkpoint '.*bert' "
        f"embeds {types}; put the tokenizer"
    )
    with pytest.raises(UserError, match=said):
        plan_of(inputs)


def test_an_encoder_with_one_segment_or_none_gets_no_other_beside_arms_that_have_two(
    inputs_of, tmp_path
):
    folders = [save(tmp_path / f"of-{types}", types=types) for types in (2, 1, 0)]
    arms = [
        {"name": Path(folder).name, "variant": "add", "checkpoint": folder} for folder in folders
    ]
    inputs = inputs_of(arms=arms, tasks=["rte"])
    assert [arm.segments for arm in inputs.arms.values()] == [(2, 2), (2, 1), (2, 0)]
    two, one, _ = (inputs.tokens(cell).splits["train"] for cell in plan_of(inputs).cells)
    assert (one.ids == two.ids).all()
    assert (one.segments.max(), two.segments.max(), len(one.segments)) == (0, 1, len(one.ids))


def test_a_limit_cuts_train_and_validation_and_a_tasks_own_one_train_alone(inputs_of):
    whole, both, own = (
        inputs_of(arms=["add"], tasks=["rte"], **changes)
        for changes in ({}, {"limit": 8}, {"finetuning": {"tasks": {"rte": {"limit": 8}}}})
    )
    rows = [
        {name: len(split) for name, split in each.tasks.data("rte").splits.items()}
        for each in (whole, both, own)
    ]
    assert rows[1] == rows[0] | {"train": 8, "validation": 8}
    assert rows[2] == rows[0] | {"train": 8}
    assert own.tasks.train_split("rte").equals(both.tasks.train_split("rte"))
    assert len({each.tasks.data("rte").digest for each in (whole, both, own)}) == 3
