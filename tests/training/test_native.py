"""Native arms: models of many families as transformers has them, through our batches, loop and records."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from families import FAMILIES, save_family, save_tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

from glue_bench.api import run
from glue_bench.benchmark.demo import generate
from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.sweep.plan import plan_cells
from glue_bench.sweep.records import make_plan
from glue_bench.training import loop
from glue_bench.training.batches import collate
from glue_bench.training.finetune import build_classifier, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokens import encoded_split
from glue_bench.training.used_rows import UsedRows, used_rows_only

pytestmark = pytest.mark.usefixtures("small_demo")
SHARED = {"bart"}
"""Families whose table of tokens has more than one place in the model."""


@pytest.fixture(scope="module")
def words() -> tuple[str, ...]:
    return tuple(generate("rte")["train"]["text_a"])


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory, words):
    """The folder of a family's model, made once."""
    root, made = tmp_path_factory.mktemp("families"), {}

    def of(family):
        if family not in made:
            made[family] = save_family(root / family, family, words)
        return str(made[family])

    return of


@pytest.fixture
def inputs_of(tiny):
    """What a tiny experiment with these arms on RTE starts from; changes are merged into it."""

    def of(*arms, **changes):
        return Inputs(parse_experiment(tiny(arms=list(arms), checkpoint=None, tasks=["rte"], **changes)))

    return of


def native(folder, **more):
    return {"variant": "native", "checkpoint": str(folder), **more}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_before_training_are_those_of_transformers_own_model_and_tokenizer(family, folder_of, inputs_of):
    folder = folder_of(family)
    inputs = inputs_of(native(folder))
    [planned] = plan_cells(inputs.experiment, inputs)
    ours = build_classifier(inputs.initial(planned.cell.arm), "rte", seed=1).eval()
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2).eval()
    theirs.config.pad_token_id = 0
    body = theirs.base_model.state_dict(prefix=f"{theirs.base_model_prefix}.")
    theirs.load_state_dict(ours.model.state_dict() | body)

    frame, tokenizer = inputs.data("rte").splits["validation"][:8].copy(), AutoTokenizer.from_pretrained(folder)
    frame["text_b"] = [" ".join(text.split()[: 1 + row]) for row, text in enumerate(frame["text_b"])]
    pairs = frame["text_a"].tolist(), frame["text_b"].tolist()
    given = tokenizer(*pairs, padding=True, truncation=True, max_length=32, return_tensors="pt")
    batch = collate(encoded_split(frame, tokenizer, 32), np.arange(8), 0)
    assert batch.mask is not None
    with torch.no_grad():
        expected, found = theirs(**given).logits, ours(batch.ids, batch.mask, batch.segments).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cell_is_trained_as_with_its_whole_table_of_tokens(family, folder_of, inputs_of, monkeypatch):
    inputs = inputs_of(native(folder_of(family)))
    [cell] = inputs.experiment.cells()
    start, tokens = inputs.initial(cell.arm), inputs.tokens(cell)
    model = build_classifier(start, "rte", 1)
    with used_rows_only(model, tokens.splits["train"].ids):
        assert any(isinstance(part, UsedRows) for part in model.modules()) == (family not in SHARED)
    outcome = finetune(cell, start, tokens)
    monkeypatch.setattr(loop, "used_rows_only", lambda *_: nullcontext())
    whole = finetune(cell, start, tokens)
    np.testing.assert_allclose(
        outcome.predictions["validation"], whole.predictions["validation"], atol=2e-4 if family != "bart" else 0
    )
    assert outcome.record.origin == "as published"


def test_native_bert_and_add_have_equal_logits_for_equal_heads(folder_of, inputs_of):
    folder = folder_of("bert")
    inputs = inputs_of(native(folder), {"variant": "add", "checkpoint": folder}, finetuning={"max_length": 32})
    published, ours = (build_classifier(inputs.initial(arm), "rte", 1).eval() for arm in inputs.experiment.arms)
    published.model.classifier.load_state_dict(ours.classifier.state_dict())
    tokens = inputs.tokens(next(inputs.experiment.cells()))
    batch = collate(tokens.splits["validation"], np.arange(8), tokens.padding_id)
    with torch.no_grad():
        logits = [model(batch.ids, batch.mask, batch.segments).logits for model in (published, ours)]
    torch.testing.assert_close(*logits, atol=1e-6, rtol=1e-5)


def test_equal_seeds_give_equal_bits_and_others_another_head(folder_of, inputs_of):
    inputs = inputs_of(native(folder_of("electra")), seeds=[1, 2])
    first, second = inputs.experiment.cells()
    start, tokens = inputs.initial(first.arm), inputs.tokens(first)
    runs = [finetune(cell, start, tokens).predictions["validation"] for cell in (first, first, second)]
    assert runs[0].tobytes() == runs[1].tobytes() != runs[2].tobytes()


def test_a_head_trained_for_another_task_is_left_out_and_a_missing_pooler_is_fresh(tmp_path, folder_of, inputs_of):
    config = BertConfig.from_pretrained(folder_of("bert"), num_labels=2)
    tuned = BertForSequenceClassification(config)
    tuned.classifier.weight.data.fill_(7.0)
    state = {name: tensor for name, tensor in tuned.state_dict().items() if "pooler" not in name}
    tuned.save_pretrained(tmp_path, state_dict=state)
    save_tokenizer(tmp_path, ("one two",), segments=True, side="right")
    inputs = inputs_of(native(tmp_path))
    start = inputs.initial(inputs.experiment.arms[0])
    models = [build_classifier(start, "rte", seed).model for seed in (1, 1, 2)]
    assert models[0].classifier.weight.abs().max() < 1
    poolers = [model.bert.pooler.dense.weight for model in models]
    assert poolers[0].equal(poolers[1])
    assert not poolers[0].equal(poolers[2])
    assert models[0].bert.embeddings.word_embeddings.weight.equal(tuned.bert.embeddings.word_embeddings.weight)


def test_how_texts_are_padded_is_part_of_the_id(tmp_path, words, inputs_of):
    ids = set()
    for side, segments in (("left", False), ("right", False), ("right", True)):
        folder = save_family(tmp_path / f"{side}{segments}", "bert", words)
        save_tokenizer(folder, words, segments=segments, side=side)
        inputs = inputs_of(native(folder, name="one"))
        ids.add(plan_cells(inputs.experiment, inputs)[0].id)
    assert len(ids) == 3


def test_what_a_native_arm_costs_is_in_the_plan(folder_of, inputs_of):
    arms = [native(folder_of("bert")), {"variant": "add", "checkpoint": folder_of("bert")}]
    inputs = inputs_of(*arms)
    facts = make_plan(inputs.experiment, inputs, plan_cells(inputs.experiment, inputs)).arms
    assert facts["native"].shape is None
    assert facts["native"].parameters == facts["add"].parameters
    assert facts["native"].non_embedding_parameters == facts["add"].non_embedding_parameters
    # The rest is the pooler's, of one token in a text.
    assert facts["native"].flops_per_token == pytest.approx(facts["add"].flops_per_token, rel=0.35)


def edited(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pad_token_id": 5}, "pad_token_id 5, but its tokenizer pads with 0"),
        ({"vocab_size": 40}, "transformers itself cannot compute it"),
        ({"num_hidden_layers": 2}, "transformers finds no weights for encoder.layer.1."),
        ({"model_type": "dpr"}, "transformers itself cannot compute it"),
        ({"max_position_embeddings": 16}, "cannot compute it"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_one_line(tmp_path, words, inputs_of, changes, said):
    inputs = inputs_of(native(edited(save_family(tmp_path / "bert", "bert", words), **changes)))
    with pytest.raises(UserError, match=said) as caught:
        plan_cells(inputs.experiment, inputs)
    assert "\n" not in str(caught.value)


def test_code_that_comes_with_a_checkpoint_is_never_run(tmp_path, words, inputs_of):
    names = {"AutoConfig": "mine.Config", "AutoModelForSequenceClassification": "mine.Model"}
    folder = edited(save_family(tmp_path / "bert", "bert", words), model_type="mine", auto_map=names)
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    inputs = inputs_of(native(folder))
    with pytest.raises(UserError):
        plan_cells(inputs.experiment, inputs)
    assert not (tmp_path / "ran").exists()


def test_texts_longer_than_the_model_takes_are_refused(folder_of, inputs_of):
    for family, said in (("bert", "max_length 64 exceeds the 33 positions"), ("roberta", "cannot run on 33 tokens")):
        length = 64 if family == "bert" else 33  # RoBERTa's own count begins behind the padding token
        inputs = inputs_of(native(folder_of(family)), finetuning={"max_length": length})
        with pytest.raises(UserError, match=said):
            plan_cells(inputs.experiment, inputs)


def test_cells_that_start_from_mnli_have_its_body_and_a_fresh_head(tiny, folder_of, tmp_path):
    finetuning = {"from_mnli": ["rte"], "learning_rates": [1e-2]}
    experiment = tiny(
        arms=[native(folder_of("distilbert"))], checkpoint=None, tasks=["mnli", "rte"], finetuning=finetuning
    )
    summary = run(experiment, results=tmp_path / "runs")
    assert summary.finished == 2
    assert not summary.failed
    table = (summary.folder / "leaderboard.md").read_text()
    assert "## As published" in table
    assert "| Arm            | Parameters | Avg. of 3 |" in table
