"""As transformers models: every argument does what it does there, or raises."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import encoder_config, pad, random_model, saved, segments, tokens
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.transformers_api import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from glue_bench.training.runtime import settle_anew

KINDS = [EncoderModel, EncoderForSequenceClassification, EncoderForMaskedLM]
ROWS = 8
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def model(request: pytest.FixtureRequest) -> Any:
    return random_model(request.param, encoder_config(num_labels=2))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("position_ids", torch.arange(11)[None]),
        ("inputs_embeds", torch.zeros(3, 11, 24)),
        ("output_attentions", True),
    ],
)
def test_what_is_not_supported_raises(model: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"does not support {name}"):
        model(tokens(), **{name: value})
    model(tokens(), **{name: None})


def test_attentions_asked_for_by_the_configuration_raise(model: Any) -> None:
    model.config._attn_implementation = "eager"
    model.config.output_attentions = True
    with pytest.raises(ValueError, match="does not support output_attentions"):
        model(tokens())


@pytest.mark.parametrize("typo", ["atention_mask", "token_type_id", "label", "head_mask"])
def test_an_unknown_argument_raises(model: Any, typo: str) -> None:
    with pytest.raises(TypeError, match=f"forward\\(\\) got an unexpected keyword argument '{typo}'"):
        model(tokens(), **{typo: None})


@pytest.mark.parametrize("place", ["argument", "configuration"])
def test_a_tuple_is_returned_where_one_is_asked_for(model: Any, place: str) -> None:
    expected = model(tokens()).to_tuple()
    if place == "configuration":
        model.config.return_dict = False
    found = model(tokens(), **({"return_dict": False} if place == "argument" else {}))
    assert type(found) is tuple
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("place", ["argument", "configuration"])
def test_hidden_states_are_returned_where_they_are_asked_for(model: Any, place: str) -> None:
    ids, mask = pad(tokens(), [11, 7, 2], 0)
    inputs = ids, mask, segments(ids)
    plain = model(*inputs)
    assert plain.hidden_states is None
    if place == "configuration":
        model.config.output_hidden_states = True
    found = model(*inputs, **({"output_hidden_states": True} if place == "argument" else {}))
    for ours, expected in zip(found.hidden_states, model.base_model.hidden_states(*inputs), strict=True):
        assert torch.equal(ours, expected)
    torch.testing.assert_close(found[0], plain[0])


# Under transformers' Trainer


class _Gradients(TrainerCallback):
    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}

    def on_pre_optimizer_step(self, *_: Any, model: nn.Module, **__: Any) -> None:
        self.found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients(
    model: PreTrainedModel, rows: list[dict[str, Tensor]], accumulate: int, folder: Path
) -> dict[str, Tensor]:
    """The gradients of one update of a real Trainer over all rows, `accumulate` batches of them."""
    settings = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=len(rows) // accumulate,
        gradient_accumulation_steps=accumulate,
        max_steps=1,
        max_grad_norm=0.0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    seen = _Gradients()
    try:
        Trainer(model=model, args=settings, train_dataset=rows, callbacks=[seen]).train()
    finally:
        settle_anew()  # Trainer has settled accelerate's state for this process
    return seen.found


def labelled(kind: type, regression: bool = False) -> list[dict[str, Tensor]]:
    """Rows; under a masked-LM head the number of labels differs from row to row."""
    ids = tokens(ROWS)
    if kind is EncoderForMaskedLM:
        chosen = torch.arange(ids.shape[1]) <= torch.arange(ROWS)[:, None]
        labels = ids.masked_fill(~chosen, -100)
    else:
        labels = torch.linspace(0, 5, ROWS) if regression else torch.arange(ROWS) % 2
    return [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]


@pytest.mark.usefixtures("frozen_imports")
@pytest.mark.parametrize(
    ("kind", "classes"),
    [(EncoderForSequenceClassification, 1), (EncoderForMaskedLM, 2)],
    ids=["scores", "masked LM"],
)
def test_accumulated_gradients_are_those_of_one_batch(kind: Any, classes: int, tmp_path: Path) -> None:
    rows = labelled(kind, regression=classes == 1)
    whole, parts = (
        gradients(random_model(kind, encoder_config(num_labels=classes, **WITHOUT_DROPOUT)), rows, steps, tmp_path)
        for steps in (1, 4)
    )
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.usefixtures("frozen_imports")
def test_accumulated_gradients_are_berts_of_one_batch(tmp_path: Path) -> None:
    """Of one batch, because BERT's own loss does not take the number of labels, and is too large for several."""
    theirs, folder = saved(tmp_path / "bert", transformers.BertForSequenceClassification, "bert")
    checkpoint = read_checkpoint(folder)
    checkpoint.config.update(WITHOUT_DROPOUT)
    theirs.config.update(WITHOUT_DROPOUT)
    control = transformers.BertForSequenceClassification(theirs.config)
    control.load_state_dict(theirs.state_dict())
    ours = EncoderForSequenceClassification(checkpoint.config)
    ours.base.load_state_dict(checkpoint.weights)
    ours.classifier.load_state_dict(theirs.classifier.state_dict())
    rows = labelled(EncoderForSequenceClassification)
    found, expected = gradients(ours, rows, 4, tmp_path), gradients(control, rows, 1, tmp_path)
    for mine, name in {
        "classifier.weight": "classifier.weight",
        "base.pooler.dense.weight": "bert.pooler.dense.weight",
        "base.variant.words.weight": "bert.embeddings.word_embeddings.weight",
    }.items():
        torch.testing.assert_close(found[mine], expected[name], atol=1e-5, rtol=1e-4, msg=name)
