"""The conversion of a checkpoint: the folder that is written, and the record."""

import json
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
    result = model.eval()(torch.arange(5, 15)[None])
    return result.logits if "logits" in result else result.last_hidden_state


@pytest.mark.parametrize("variant", VARIANTS)
def test_auto_model_reads_a_converted_checkpoint(variant, bert, tmp_path):
    before = torch.random.get_rng_state()
    record = convert(str(bert), tmp_path / "out", variant)
    assert torch.equal(torch.random.get_rng_state(), before)
    start = graft(read_checkpoint(str(bert)), variant, {})
    model = AutoModel.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == "EncoderModel"
    assert torch.equal(output(model), output(encoder(start)))
    assert record["variant"] == variant
    assert record["exact"] == start.exact
    assert record["origin"] == start.origin
    assert len(record["relative_error"]) == 2
    assert (max(record["relative_error"]) < 1e-5) == start.exact


def test_the_record_names_the_source_and_the_variant_of_a_conversion(bert, tmp_path):
    options = {"terms": ["word-word", "word-position"]}
    record = convert(str(bert), tmp_path / "out", "four-term", options)
    assert json.loads((tmp_path / "out" / "conversion.json").read_text()) == record
    assert record["source"] == str(bert)
    assert record["source_variant"] == "add"
    assert record["revision"] is None
    assert record["fingerprint"] == fingerprint(bert)
    assert record["tokenizer"] == str(bert)
    assert record["variant"] == "four-term"
    assert record["options"] == options
    assert record["masked_lm_head"] == "none in the source"
    assert AutoModel.from_pretrained(tmp_path / "out").config.variant_options == options
    assert "pooler.dense.weight" in read_checkpoint(str(tmp_path / "out")).weights


def test_a_masked_lm_head_goes_along_unless_the_words_are_narrower_and_no_pooler_is_made_up(
    tmp_path,
):
    _, source = saved(tmp_path / "source", transformers.BertForMaskedLM, "bert")
    record = convert(source, tmp_path / "out", "concat")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    expected = under_head(start := read_checkpoint(source), start.config)
    assert record["masked_lm_head"] == "kept"
    assert record["tokenizer"] is None
    assert model.decoder.weight is model.base.variant.words.weight
    assert "pooler.dense.weight" not in read_checkpoint(str(tmp_path / "out")).weights
    torch.testing.assert_close(output(model), output(expected), atol=1e-4, rtol=1e-4)
    inside = output(AutoModel.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(inside, output(model.base), atol=1e-6, rtol=1e-6)
    narrow = convert(source, tmp_path / "narrow", "concat-split")
    assert narrow["masked_lm_head"] == "dropped: its words are narrower"
    assert 0 < narrow["variance_kept"]["tokens"] < 1


def test_what_cannot_be_converted_is_refused_and_leaves_nothing(
    bert, make_bert, tmp_path, monkeypatch
):
    small = make_bert("small", vocab_size=20)
    out = tmp_path / "out"
    with pytest.raises(
        UserError, match=r"has \d+ tokens but the checkpoint embeds 20; give the tokenizer"
    ):
        convert(str(small), out, "concat", tokenizer=str(bert))
    with pytest.raises(
        UserError, match=r"no tokenizer in '.*small': none of its files is a tokenizer"
    ):
        convert(str(bert), out, "concat", tokenizer=str(small))
    with monkeypatch.context() as disk:
        disk.setattr(
            PreTrainedTokenizerBase, "save_pretrained", Mock(side_effect=OSError(28, "full"))
        )
        with pytest.raises(UserError, match="No space left on device; choose another OUT"):
            convert(str(bert), out, "concat")
    (small / "tokenizer.json").write_bytes((bert / "tokenizer.json").read_bytes()[:200])
    with pytest.raises(UserError, match=r"no tokenizer in .*small"):
        convert(str(small), out, "concat")
    edit_weights(bert, lambda weights: weights["embeddings.LayerNorm.weight"].fill_(float("nan")))
    with pytest.raises(UserError, match="hidden states are not finite"):
        convert(str(bert), out, "concat")
    assert not out.exists()
