"""Converting a checkpoint: the folder that is written, and what is said of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import encoder, graft, masked_lm, read_checkpoint
from glue_bench.model.locate import fingerprint
from glue_bench.model.variants import VARIANTS
from glue_bench.training import convert as conversion
from glue_bench.training.convert import SENTENCES, convert, sample_of
from glue_bench.training.tokenizers import load_tokenizer

Made = Callable[..., Path]

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"


@pytest.fixture
def bert(make_bert: Made) -> Path:
    """A random encoder with a tokenizer for the sample's sentences, and positions that count."""
    folder = make_bert(texts=SENTENCES)
    change(folder, lambda weights: weights["embeddings.position_embeddings.weight"].mul_(20))
    return folder


@pytest.fixture
def bert_for_masked_lm(bert: Path) -> Path:
    """The same with a masked-LM head."""
    torch.manual_seed(1)
    model = transformers.BertForMaskedLM(transformers.BertConfig.from_pretrained(bert))
    model.bert.load_state_dict(load_file(bert / "model.safetensors"), strict=False)
    torch.nn.init.normal_(model.cls.predictions.bias)
    model.save_pretrained(bert)
    return bert


def change(folder: Path, how: Callable[[dict[str, Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    how(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@torch.no_grad()
def output(model: PreTrainedModel) -> Tensor:
    """What a model computes from a few tokens: logits, or hidden states."""
    ids = torch.arange(5, 15)[None]
    result = model.eval()(ids)
    return result.logits if "logits" in result else result.last_hidden_state


@pytest.mark.parametrize("variant", VARIANTS)
def test_auto_model_reads_what_a_graft_starts_from(variant: str, bert: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    record = convert(str(bert), tmp_path / "out", variant)
    assert torch.equal(torch.random.get_rng_state(), before)
    start = graft(read_checkpoint(str(bert)), variant, {})
    model = AutoModel.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == "EncoderModel"
    assert torch.equal(output(model), output(encoder(start)))
    assert (record["variant"], record["exact"], record["origin"]) == (variant, start.exact, start.origin)
    assert (max(record["distance"]["relative_error"]) < 1e-5) == start.exact
    assert (record["distance"]["cosine"] > 1 - 1e-5) == start.exact


def test_the_record_says_what_was_converted_into_what(bert: Path, tmp_path: Path) -> None:
    options = {"terms": ["word-word", "word-position"]}
    record = convert(str(bert), tmp_path / "out", "four-term", options)
    assert json.loads((tmp_path / "out" / "conversion.json").read_text()) == record
    assert (record["source"], record["source_variant"], record["revision"]) == (str(bert), "add", None)
    assert (record["fingerprint"], record["tokenizer"]) == (fingerprint(bert), str(bert))
    assert (record["variant"], record["options"]) == ("four-term", options)
    assert (record["masked_lm_head"], record["masked_lm_loss"]) == ("none in the source", None)
    assert len(record["distance"]["relative_error"]) == 2
    assert torch.__version__.startswith(record["versions"]["torch"])  # "2.13.0" of "2.13.0+cu130"
    assert AutoModel.from_pretrained(tmp_path / "out").config.variant_options == options


@pytest.mark.parametrize("variant", ["add", "concat", "none"])
def test_a_masked_lm_head_goes_along(variant: str, bert_for_masked_lm: Path, tmp_path: Path) -> None:
    record = convert(str(bert_for_masked_lm), tmp_path / "out", variant)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    source = masked_lm(read_checkpoint(str(bert_for_masked_lm)))
    assert type(model).__name__ == "EncoderForMaskedLM"
    assert model.decoder.weight is model.base.variant.words.weight
    assert torch.equal(model.decoder.bias, source.decoder.bias)
    assert record["masked_lm_head"] == "kept"
    loss = record["masked_lm_loss"]
    if variant == "none":
        assert abs(loss["before"] - loss["after"]) > 1e-3
    else:
        assert loss["before"] == pytest.approx(loss["after"], abs=1e-5)
        torch.testing.assert_close(output(model), output(source), atol=1e-4, rtol=1e-4)
    inside = output(AutoModel.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(inside, output(model.base), atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_the_loss_is_that_of_transformers(bert_for_masked_lm: Path, tmp_path: Path) -> None:
    record = convert(str(bert_for_masked_lm), tmp_path / "out", "add")
    config, tokenizer = read_checkpoint(str(bert_for_masked_lm)).config, load_tokenizer(str(bert_for_masked_lm))
    sample = sample_of(config, tokenizer)
    pairs = list(SENTENCES[::2]), list(SENTENCES[1::2])
    given = tokenizer(*pairs, padding=True, truncation=True, max_length=32, return_token_type_ids=True)
    labels = torch.full_like(sample.ids, -100)
    labels.view(-1)[sample.places] = sample.targets
    assert torch.equal(torch.where(labels < 0, sample.ids, labels), torch.tensor(given["input_ids"]))
    assert sample.segments.tolist() == given["token_type_ids"]
    assert 0.1 < len(labels[labels > 0]) / sample.tokens < 0.2
    theirs = transformers.BertForMaskedLM.from_pretrained(bert_for_masked_lm).eval()
    loss = theirs(sample.ids, None if sample.mask is None else sample.mask.long(), sample.segments, labels=labels).loss
    assert record["masked_lm_loss"]["before"] == pytest.approx(float(loss), abs=1e-5)
    assert record["sample"]["masked"] == len(sample.targets)


def test_a_head_over_narrower_words_is_dropped(bert_for_masked_lm: Path, tmp_path: Path) -> None:
    record = convert(str(bert_for_masked_lm), tmp_path / "out", "concat-split")
    assert record["masked_lm_head"] == "dropped: its words are narrower"
    assert record["masked_lm_loss"] is None
    assert 0 < record["variance_kept"]["tokens"] < 1


@pytest.mark.parametrize("pooler", [True, False])
def test_only_a_pooler_of_the_source_is_saved(pooler: bool, make_bert: Made, tmp_path: Path) -> None:
    source = make_bert(texts=SENTENCES, pooler=pooler)
    convert(str(source), tmp_path / "out", "untied")
    assert ("pooler.dense.weight" in read_checkpoint(str(tmp_path / "out")).weights) == pooler


def test_a_tokenizer_that_does_not_fit_is_refused(bert: Path, make_bert: Made, tmp_path: Path) -> None:
    small = make_bert("small", vocab_size=20)
    with pytest.raises(UserError, match=r"has 200 tokens but '.*small' embeds 20; give the tokenizer"):
        convert(str(small), tmp_path / "out", "concat", tokenizer=str(bert))
    with pytest.raises(UserError, match=r"the tokenizer in '.*small' has 5 special tokens and no words"):
        convert(str(bert), tmp_path / "out", "concat", tokenizer=str(small))
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    for out, said in [("full", "full' is not empty"), ("full/file", "file' is a file")]:
        with pytest.raises(UserError, match=f"{said}; .*nothing is overwritten"):
            convert("./no-such-source", tmp_path / out, "concat")
    assert (tmp_path / "full" / "file").read_text() == "kept"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")], ids=["Ctrl-C", "disk"])
def test_a_conversion_cut_short_leaves_nothing(
    error: Any, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion.PreTrainedTokenizerBase, "save_pretrained", Mock(side_effect=error))
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else UserError):
        convert(str(bert), tmp_path / "new" / "out", "concat")
    assert list((tmp_path / "new").iterdir()) == []


def test_damaged_weights_are_refused(bert: Path, tmp_path: Path) -> None:
    change(bert, lambda weights: weights["embeddings.LayerNorm.weight"].fill_(float("nan")))
    with pytest.raises(UserError, match="hidden states are not finite"):
        convert(str(bert), tmp_path / "out", "concat")
    assert not (tmp_path / "out").exists()
