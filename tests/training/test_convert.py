"""The conversion of a checkpoint: the folder that is written, and the record."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import transformers
from helpers.tiny_models import edit_weights, saved
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedTokenizerBase

from glue_bench import convert
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.grafts import graft
from glue_bench.model.locate import fingerprint
from glue_bench.model.start import encoder, under_head
from glue_bench.model.variants import VARIANTS

TEXTS = (
    "The baker opens her shop at six.",
    "By noon most of the bread is gone, and she cleans the oven.",
) * 9


@pytest.fixture
def bert(make_bert):
    """A random encoder with a tokenizer, and positions that count."""
    folder = make_bert(texts=TEXTS)
    edit_weights(folder, lambda weights: weights["embeddings.position_embeddings.weight"].mul_(20))
    return folder


@torch.no_grad()
def output(model):
    """Return the logits, or the hidden states, of a model for a few tokens."""
    ids = torch.arange(5, 15)[None]
    result = model.eval()(ids)
    return result.logits if "logits" in result else result.last_hidden_state


@pytest.mark.parametrize("variant", VARIANTS)
def test_auto_model_reads_a_converted_checkpoint(variant, bert, tmp_path):
    before = torch.random.get_rng_state()
    record = convert(str(bert), tmp_path / "out", variant)
    after = torch.random.get_rng_state()
    start = graft(read_checkpoint(str(bert)), variant, {})
    model = AutoModel.from_pretrained(tmp_path / "out")
    largest_error = max(record["relative_error"])
    assert torch.equal(after, before)
    assert type(model).__name__ == "EncoderModel"
    assert torch.equal(output(model), output(encoder(start)))
    assert record["exact"] == start.exact
    assert record["origin"] == start.origin
    assert (largest_error < 1e-5) == start.exact


OPTIONS = {"terms": ["word-word", "word-position"]}


@pytest.fixture
def converted(bert, tmp_path) -> dict[str, Any]:
    """The record of a conversion to `four-term` with options, in the folder `out`."""
    return convert(str(bert), tmp_path / "out", "four-term", OPTIONS)


def test_the_record_of_a_conversion_names_the_source_and_the_variant(converted, bert):
    facts = {
        "source": str(bert),
        "source_variant": "add",
        "revision": None,
        "fingerprint": fingerprint(bert),
        "tokenizer": str(bert),
        "variant": "four-term",
        "options": OPTIONS,
        "masked_lm_head": "none in the source",
    }
    assert {name: converted[name] for name in facts} == facts


def test_the_record_of_a_conversion_has_an_error_for_the_input_and_each_block(converted):
    assert len(converted["relative_error"]) == 2


def test_the_record_of_a_conversion_is_stored_beside_the_weights(converted, tmp_path):
    content = (tmp_path / "out" / "conversion.json").read_text()
    assert json.loads(content) == converted


@pytest.mark.usefixtures("converted")
def test_a_conversion_keeps_the_options_and_the_pooler(tmp_path):
    start = read_checkpoint(str(tmp_path / "out"))
    model = AutoModel.from_pretrained(tmp_path / "out")
    assert model.config.variant_options == OPTIONS
    assert "pooler.dense.weight" in start.weights


@pytest.fixture
def masked_lm(tmp_path) -> str:
    """A checkpoint of BERT with a masked-LM head, and without a pooler or a tokenizer."""
    _, source = saved(tmp_path / "source", transformers.BertForMaskedLM, "bert")
    return source


def test_a_masked_lm_head_is_kept_in_a_conversion(masked_lm, tmp_path):
    record = convert(masked_lm, tmp_path / "out", "concat")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    start = read_checkpoint(masked_lm)
    expected = under_head(start, start.config)
    assert record["masked_lm_head"] == "kept"
    assert model.decoder.weight is model.base.variant.words.weight
    torch.testing.assert_close(output(model), output(expected), atol=1e-4, rtol=1e-4)


def test_auto_model_reads_the_encoder_below_a_masked_lm_head(masked_lm, tmp_path):
    convert(masked_lm, tmp_path / "out", "concat")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    states = output(AutoModel.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(states, output(model.base), atol=1e-6, rtol=1e-6)


def test_no_pooler_and_no_tokenizer_is_added_in_a_conversion(masked_lm, tmp_path):
    record = convert(masked_lm, tmp_path / "out", "concat")
    start = read_checkpoint(str(tmp_path / "out"))
    assert record["tokenizer"] is None
    assert "pooler.dense.weight" not in start.weights


def test_a_masked_lm_head_is_dropped_where_words_become_narrower(masked_lm, tmp_path):
    record = convert(masked_lm, tmp_path / "narrow", "concat-split")
    assert record["masked_lm_head"] == "dropped: its words are narrower"
    assert 0 < record["variance_kept"]["tokens"] < 1


@pytest.fixture
def small(make_bert) -> Path:
    """A checkpoint of BERT with 20 tokens, and without a tokenizer."""
    return make_bert("small", vocab_size=20)


def check_refused(message: str, source: Path, out: Path, tokenizer: Path | None = None) -> None:
    """Check that the conversion of a checkpoint is refused, and leaves nothing in its place."""
    name = None if tokenizer is None else str(tokenizer)
    with pytest.raises(UserError, match=message):
        convert(str(source), out, "concat", tokenizer=name)
    assert not out.exists()


def test_a_tokenizer_with_more_tokens_than_the_checkpoint_is_refused(bert, small, tmp_path):
    message = r"has \d+ tokens but the checkpoint embeds 20; give the tokenizer"
    check_refused(message, small, tmp_path / "out", tokenizer=bert)


def test_a_folder_without_a_tokenizer_is_refused_as_one(bert, small, tmp_path):
    message = r"no tokenizer in '.*small': none of its files is a tokenizer"
    check_refused(message, bert, tmp_path / "out", tokenizer=small)


def test_a_checkpoint_with_a_damaged_tokenizer_is_refused(bert, small, tmp_path):
    whole = (bert / "tokenizer.json").read_bytes()
    (small / "tokenizer.json").write_bytes(whole[:200])
    check_refused(r"no tokenizer in .*small", small, tmp_path / "out")


def test_a_checkpoint_that_gives_nan_is_refused(bert, tmp_path):
    edit_weights(bert, lambda weights: weights["embeddings.LayerNorm.weight"].fill_(float("nan")))
    check_refused("hidden states are not finite", bert, tmp_path / "out")


def test_a_full_disk_leaves_no_part_of_a_conversion(bert, tmp_path, monkeypatch):
    full = Mock(side_effect=OSError(28, "full"))
    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", full)
    message = "No space left on device; choose another OUT"
    check_refused(message, bert, tmp_path / "out")
