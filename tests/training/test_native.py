"""Native arms: models of many families as transformers has them, through our batches, loop and records."""

import copy
import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from families import FAMILIES, save_family, save_tokenizer
from tiny_pretraining import CPU
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.model.native import NativeClassifier
from glue_bench.sweep.plan import make_plan, settle_jobs
from glue_bench.training import finetune as finetuning
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import UsedRows, predict, used_rows_only
from glue_bench.training.tokens import collate, encoded_split, evaluation_batches

pytestmark = pytest.mark.usefixtures("small_demo")

LABELS = ("entailment", "not_entailment")

SHARED = {"bart"}
"""Families whose table of tokens has more than one place in the model."""

EAGER = {"deberta", "deberta-v2", "mpnet", "roformer", "xlnet"}
"""Families that compute attention in a way of their own."""

OUR_ATTENTION = {"bert", "roberta", "xlm-roberta", "electra", "distilbert", "albert"}

NO_DROPOUT = {"qwen2", "llama"}
"""Families that have no module of dropout."""


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
        return Inputs(load_experiment(tiny(arms=list(arms), checkpoint=None, tasks=["rte"], **changes)))

    return of


def native(folder, **more):
    return {"variant": "native", "checkpoint": str(folder), **more}


def uneven(inputs):
    """Eight pairs of texts of different lengths."""
    frame = inputs.data("rte").splits["validation"][:8].copy()
    frame["text_b"] = [" ".join(text.split()[: 1 + row]) for row, text in enumerate(frame["text_b"])]
    return frame


def padded_batch(inputs, folder):
    batch = collate(encoded_split(uneven(inputs), AutoTokenizer.from_pretrained(folder), 32), np.arange(8), 0)
    assert batch.mask is not None
    return batch


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_before_training_are_those_of_transformers_own_model_and_tokenizer(family, folder_of, inputs_of):
    folder = folder_of(family)
    inputs = inputs_of(native(folder))
    [cell] = make_plan(inputs.experiment, inputs).cells
    ours = inputs.initial(inputs.arm(cell.arm)).classifier(LABELS, 1).eval()
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2).eval()
    theirs.config.pad_token_id = 0
    body = theirs.base_model.state_dict(prefix=f"{theirs.base_model_prefix}.")
    theirs.load_state_dict(ours.model.state_dict() | body)

    frame, tokenizer = uneven(inputs), AutoTokenizer.from_pretrained(folder)
    pairs = frame["text_a"].tolist(), frame["text_b"].tolist()
    given = tokenizer(*pairs, padding=True, truncation=True, max_length=32, return_tensors="pt")
    batch = padded_batch(inputs, folder)
    with torch.no_grad():
        expected, found = theirs(**given).logits, ours(batch.ids, batch.mask, batch.segments).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cell_is_trained_as_with_its_whole_table_of_tokens(family, folder_of, inputs_of, monkeypatch):
    inputs = inputs_of(native(folder_of(family)))
    _, [cell] = settle_jobs(inputs.experiment, inputs)
    model, tokens = inputs.initial(inputs.arm(cell.arm)).classifier(LABELS, 1), inputs.tokens(cell)
    with used_rows_only(model, tokens.splits["train"].ids):
        assert any(isinstance(part, UsedRows) for part in model.modules()) == (family not in SHARED)
    outcome = finetune(cell, inputs, CPU)
    monkeypatch.setattr(finetuning, "used_rows_only", lambda *_: nullcontext())
    whole = finetune(cell, inputs, CPU)
    np.testing.assert_allclose(
        outcome.predictions["validation"], whole.predictions["validation"], atol=2e-4 if family != "bart" else 0
    )
    assert cell.origin == "as published"


def without_dropout(model):
    """In training, without the dropout of modules; that of functions draws the same numbers from the same seed."""
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return model.train()


@pytest.mark.parametrize("family", FAMILIES)
def test_but_for_dropout_a_step_is_that_of_transformers(family, tmp_path, words, inputs_of):
    blocks = {"xlnet": "n_layer", "distilbert": "n_layers", "bart": "encoder_layers"}.get(family, "num_hidden_layers")
    inputs = inputs_of(native(save_family(tmp_path, family, words, **{blocks: 2})))
    start, batch = inputs.initial(inputs.experiment.arms[0]), padded_batch(inputs, tmp_path)
    ours = without_dropout(start.classifier(("one", "other"), seed=1))
    theirs = copy.copy(ours)
    config = copy.deepcopy(start.config)
    config.num_labels = 2
    theirs._modules = {"model": without_dropout(AutoModelForSequenceClassification.from_config(config))}
    assert theirs.model.config._attn_implementation == ("eager" if family in EAGER else "sdpa")
    theirs.load_state_dict(ours.state_dict())
    found = []
    for model in (ours, theirs):
        torch.manual_seed(2)
        logits = model(batch.ids, batch.mask, batch.segments).logits
        logits.square().sum().backward()
        found.append({"logits": logits} | {name: each.grad for name, each in model.named_parameters()})
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trained_model_is_kept_in_the_form_of_transformers(family, folder_of, inputs_of, tmp_path):
    inputs = inputs_of(native(folder_of(family)))
    _, [cell] = settle_jobs(inputs.experiment, inputs)
    tokens = inputs.tokens(cell)
    kept = finetune(cell, inputs, CPU, keep=lambda model: model.save_pretrained(tmp_path))
    assert "glue_bench" not in (tmp_path / "config.json").read_text()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    start = inputs.initial(inputs.arm(cell.arm))
    loaded = NativeClassifier(model, reads_segments=start.reads_segments, pads_left=start.pads_left)
    found = predict(loaded, evaluation_batches(tokens.splits["validation"], tokens.padding_id), CPU)
    np.testing.assert_allclose(found, kept.predictions["validation"], atol=1e-5)


def test_a_head_trained_for_another_task_is_left_out_and_a_missing_pooler_is_fresh(tmp_path, folder_of, inputs_of):
    config = BertConfig.from_pretrained(folder_of("bert"), num_labels=2)
    tuned = BertForSequenceClassification(config)
    tuned.classifier.weight.data.fill_(7.0)
    state = {name: tensor for name, tensor in tuned.state_dict().items() if "pooler" not in name}
    tuned.save_pretrained(tmp_path, state_dict=state)
    save_tokenizer(tmp_path, ("one two",), segments=True, side="right")
    inputs = inputs_of(native(tmp_path))
    start = inputs.initial(inputs.experiment.arms[0])
    models = [start.classifier(LABELS, seed).model for seed in (1, 1, 2)]
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
        ids.add(settle_jobs(inputs.experiment, inputs)[1][0].id)
    assert len(ids) == 3


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
        make_plan(inputs.experiment, inputs)
    assert "\n" not in str(caught.value)


def test_code_that_comes_with_a_checkpoint_is_never_run(tmp_path, words, inputs_of):
    names = {"AutoConfig": "mine.Config", "AutoModelForSequenceClassification": "mine.Model"}
    folder = edited(save_family(tmp_path / "bert", "bert", words), model_type="mine", auto_map=names)
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    inputs = inputs_of(native(folder))
    with pytest.raises(UserError):
        make_plan(inputs.experiment, inputs)
    assert not (tmp_path / "ran").exists()
