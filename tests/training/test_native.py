"""Native arms are models of transformers that our batches, loop and records train unchanged."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from helpers.small_data import few_rows
from helpers.tiny_families import save_tokenizer
from helpers.tiny_models import edit_settings, edit_weights
from helpers.tiny_pretraining import CPU
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.model.native import NativeClassifier, NativeStart
from glue_bench.records.values import Cell
from glue_bench.sweep.plan import make_plan, settle_jobs
from glue_bench.training import finetune as finetuning
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.kept import save_kept
from glue_bench.training.loop import UsedRows, predict, used_rows_only
from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.tokens import collate, encode_split, evaluation_batches

pytestmark = pytest.mark.usefixtures("small_demo")

LABELS = ("entailment", "not_entailment")
SHARED = {"bart"}  # families that use their token embeddings in more than one module
# transformers computes the attention of these families without SDPA.
EAGER = {"deberta", "deberta-v2", "mpnet", "roformer", "xlnet"}
SIZES: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    # One position more than the texts have, for families that count from the padding token.
    "max_position_embeddings": 33,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
DECODER = SIZES | {"num_key_value_heads": 1, "head_dim": 8}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
XLNET = {
    "vocab_size": 260,
    "pad_token_id": 0,
    "d_model": 16,
    "n_layer": 1,
    "n_head": 2,
    "d_inner": 32,
}
BART_LIKE = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "decoder_start_token_id": 3,
}


class Family(NamedTuple):
    """The settings of a family's tiny model, and of its tokenizer.

    `segments`: whether the tokenizer gives segments. `side`: on which side it pads.
    """

    settings: dict[str, Any]
    segments: bool = False
    side: str = "right"


FAMILIES: dict[str, Family] = {
    "bert": Family(SIZES, segments=True),
    "roberta": Family(SIZES | {"type_vocab_size": 1}),
    "xlm-roberta": Family(SIZES | {"type_vocab_size": 1}),
    "electra": Family(SIZES | {"embedding_size": 8}, segments=True),
    "distilbert": Family({"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, **SIZES}),
    "albert": Family(SIZES | {"embedding_size": 8}, segments=True),
    "deberta": Family(SIZES | RELATIVE, segments=True),
    "deberta-v2": Family(SIZES | RELATIVE | {"type_vocab_size": 0}, segments=True),
    "mpnet": Family(SIZES | {"max_position_embeddings": 35}),
    # transformers 5.4 cannot make a model whose blocks all have the same attention.
    "modernbert": Family(SIZES | {"num_hidden_layers": 2, "cls_token_id": 2, "sep_token_id": 3}),
    "roformer": Family(SIZES | {"embedding_size": 16}, segments=True),
    "gpt2": Family(SIZES),
    "qwen2": Family(DECODER, side="left"),
    "llama": Family(DECODER),
    "xlnet": Family(XLNET, segments=True, side="left"),
    "bart": Family(SIZES | BART_LIKE),
}


def save_family(folder: Path, family: str, texts: tuple[str, ...], **changes: Any) -> Path:
    """Save a random model of the family, without a head, and a tokenizer trained on `texts`."""
    settings, segments, side = FAMILIES[family]
    quiet_transformers()
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **settings | changes)
    AutoModel.from_config(config).save_pretrained(folder)
    return save_tokenizer(folder, texts, segments=segments, side=side)


@pytest.fixture(scope="module")
def words() -> tuple[str, ...]:
    return tuple(generate("rte")["train"]["text_a"])


@pytest.fixture(scope="module")
def inputs_of(tiny):
    """Return a function that makes the inputs of a tiny experiment with some arms on RTE."""

    def make(*arms, **changes):
        values = tiny(arms=list(arms), checkpoint=None, tasks=["rte"], **changes)
        return Inputs(load_experiment(values), Path("none"))

    return make


def native(folder, **options):
    return {"variant": "native", "checkpoint": str(folder), **options}


class Finetuned(NamedTuple):
    """A cell of a native arm, what it reads, and what came out of it."""

    family: str
    cell: Cell
    inputs: Inputs
    outcome: Outcome

    @property
    def start(self) -> NativeStart:
        return self.inputs.arms[self.cell.arm].start

    @property
    def logits(self) -> np.ndarray:
        return self.outcome.predictions["validation"]


@pytest.fixture(scope="module", params=FAMILIES)
def finetuned(request, words, inputs_of, tmp_path_factory) -> Finetuned:
    """Fine-tune a tiny model of a family on RTE."""
    with few_rows():
        folder = save_family(tmp_path_factory.mktemp("native") / "model", request.param, words)
        inputs = inputs_of(native(folder))
        _, [cell] = settle_jobs(inputs)
        return Finetuned(request.param, cell, inputs, finetune(cell, inputs, CPU))


def test_a_native_arm_is_trained_as_published(finetuned):
    assert finetuned.cell.origin == "as published"


def test_used_token_rows_alone_are_trained_unless_several_modules_have_the_table(finetuned):
    model = finetuned.start.classifier(LABELS, 1)
    with used_rows_only(model, finetuned.inputs.tokens(finetuned.cell)):
        has_used_rows = any(isinstance(part, UsedRows) for part in model.modules())
    assert has_used_rows == (finetuned.family not in SHARED)


def test_a_cell_learns_as_with_all_token_rows(finetuned, monkeypatch):
    monkeypatch.setattr(finetuning, "used_rows_only", lambda *_: nullcontext())
    outcome = finetune(finetuned.cell, finetuned.inputs, CPU)
    tolerance = 2e-4 if finetuned.family not in SHARED else 0
    np.testing.assert_allclose(finetuned.logits, outcome.predictions["validation"], atol=tolerance)


def test_transformers_can_load_the_model_of_a_cell(finetuned, tmp_path):
    save_kept(tmp_path, finetuned.outcome, finetuned.inputs)
    assert "glue_bench" not in (tmp_path / "config.json").read_text()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    start = finetuned.start
    classifier = NativeClassifier(
        model, reads_segments=start.reads_segments, pads_left=start.pads_left
    )
    tokens = finetuned.inputs.tokens(finetuned.cell)
    batches = evaluation_batches(tokens.splits["validation"], tokens.padding_id, 4096)
    np.testing.assert_allclose(predict(classifier, batches, CPU), finetuned.logits, atol=1e-5)


def without_dropout(model):
    """Put a model into training mode, with dropout modules at a rate that drops nothing.

    Dropout that a model calls as a function keeps its rate. One seed gives both models that are
    compared the same numbers.
    """
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 1e-9
    return model.train()


BLOCKS = {"xlnet": "n_layer", "distilbert": "n_layers", "bart": "encoder_layers"}
"""The setting for the number of blocks, in families that do not call it num_hidden_layers."""


def uneven_pairs(inputs: Inputs) -> pd.DataFrame:
    """Return eight examples of RTE whose second texts have one word, two words, and so on."""
    frame = inputs.tasks.data("rte").splits["validation"][:8].copy()
    # Texts are so short that no pair is cut.
    frame["text_a"] = frame["text_a"].str.split().str[:4].str.join(" ")
    texts = frame["text_b"].str.split()
    frame["text_b"] = [" ".join(text[: 1 + row]) for row, text in enumerate(texts)]
    return frame


def transformers_model(folder: Path) -> nn.Module:
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    return without_dropout(model)


def logits_and_gradients(model, forward) -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    logits = forward().logits
    logits.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": logits, **gradients}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_without_dropout_equal_transformers(
    family, tmp_path, words, inputs_of
):
    blocks = BLOCKS.get(family, "num_hidden_layers")
    inputs = inputs_of(native(save_family(tmp_path, family, words, **{blocks: 2})))

    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    frame = uneven_pairs(inputs)
    batch = collate(encode_split(frame, tokenizer, 32), np.arange(8), 0)
    assert batch.mask is not None

    classifier = without_dropout(inputs.first_arm.start.classifier(LABELS, seed=1))
    for weight in classifier.parameters():
        weight.data *= 6 if weight.ndim > 1 else 1  # attention is then not uniform

    reference = transformers_model(tmp_path)
    assert reference.config._attn_implementation == ("eager" if family in EAGER else "sdpa")
    reference.config.pad_token_id = 0
    reference.load_state_dict(classifier.model.state_dict())

    encoded = tokenizer(
        frame["text_a"].tolist(),
        frame["text_b"].tolist(),
        padding=True,
        truncation=True,
        max_length=32,
        return_tensors="pt",
    )

    forward = partial(classifier, batch.ids, batch.mask, batch.segments)
    values = logits_and_gradients(classifier.model, forward)
    expected = logits_and_gradients(reference, partial(reference, **encoded))
    assert values.keys() == expected.keys()
    for name, value in values.items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("change", ["is_decoder", "is_causal"])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "albert"])
def test_a_causal_model_stays_causal(family, change, tmp_path, words, inputs_of):
    inputs = inputs_of(native(save_family(tmp_path, family, words, **{change: True})))
    classifier = without_dropout(inputs.first_arm.start.classifier(LABELS, seed=1))
    reference = transformers_model(tmp_path)
    reference.load_state_dict(classifier.model.state_dict())
    ids = torch.arange(5, 17)[None]
    logits = classifier(ids, None, torch.zeros_like(ids)).logits
    torch.testing.assert_close(logits, reference(input_ids=ids).logits, atol=1e-6, rtol=1e-5)


def test_a_head_trained_for_another_task_is_left_out_and_a_missing_pooler_is_fresh(
    tmp_path, inputs_of
):
    tuned = transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, num_labels=2)
    )
    tuned.classifier.weight.data.fill_(7.0)
    state = {name: tensor for name, tensor in tuned.state_dict().items() if "pooler" not in name}
    tuned.save_pretrained(tmp_path, state_dict=state)
    save_tokenizer(tmp_path, ("one two",), segments=True, side="right")
    inputs = inputs_of(native(tmp_path))
    start = inputs.first_arm.start
    models = [start.classifier(LABELS, seed).model for seed in (1, 1, 2)]
    assert models[0].classifier.weight.abs().max() < 1
    poolers = [model.bert.pooler.dense.weight for model in models]
    assert poolers[0].equal(poolers[1])
    assert not poolers[0].equal(poolers[2])
    assert models[0].bert.embeddings.word_embeddings.weight.equal(
        tuned.bert.embeddings.word_embeddings.weight
    )


def test_a_weight_of_the_encoder_that_transformers_would_leave_out_is_refused(
    tmp_path, words, inputs_of
):
    folder = save_family(tmp_path / "bert", "bert", words)
    name = "encoder.layer.0.attention.self.distance_embedding.weight"
    edit_weights(folder, lambda weights: weights.update({name: torch.ones(65, 8)}))
    edit_settings(folder, position_embedding_type="relative_key")
    inputs = inputs_of(native(folder))
    with pytest.raises(UserError, match=f"transformers would leave {name} out"):
        _ = inputs.first_arm.start


def id_of(folder, inputs_of, words, *, segments=True, side="right"):
    """Return the id of a cell whose arm is a BERT.

    `segments` says whether its tokenizer gives segments by default, `side` where it pads.
    """
    save_family(folder, "bert", words)
    save_tokenizer(folder, words, segments=segments, side=side)
    _, [cell] = settle_jobs(inputs_of(native(folder, name="one")))
    return cell.id


def test_the_tokenizers_padding_side_does_not_change_the_id(tmp_path, words, inputs_of):
    right = id_of(tmp_path / "right", inputs_of, words)
    assert id_of(tmp_path / "left", inputs_of, words, side="left") == right


def test_whether_the_tokenizer_gives_segments_does_not_change_the_id(tmp_path, words, inputs_of):
    with_segments = id_of(tmp_path / "with", inputs_of, words)
    assert id_of(tmp_path / "without", inputs_of, words, segments=False) == with_segments


CODE = {"AutoConfig": "mine.Config", "AutoModelForSequenceClassification": "mine.Model"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad_token_id": 5}, "pad_token_id 5, but its tokenizer pads with 0"),
        ({"vocab_size": 40}, "its settings say"),
        ({"num_hidden_layers": 2}, "transformers finds no weights for encoder.layer.1."),
        ({"model_type": "dpr"}, "'dpr', and transformers .* has no classifier of texts"),
        ({"max_position_embeddings": 16}, "its settings say"),
        ({"model_type": "mine", "auto_map": CODE}, "bert'"),
    ],
)
def test_an_unreadable_model_is_one_line_and_none_of_its_code_runs(
    tmp_path, words, inputs_of, changes, message
):
    folder = save_family(tmp_path / "bert", "bert", words)
    edit_settings(folder, **changes)
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    inputs = inputs_of(native(folder))
    with pytest.raises(UserError, match=message) as caught:
        make_plan(inputs)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()
