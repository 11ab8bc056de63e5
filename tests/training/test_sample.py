"""The sample on which conversions are measured: the same every time, masked as it says."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from glue_bench.model.configuration import EncoderConfig
from glue_bench.training.sample import NOT_MASKED, SENTENCES, Sample, draw_sample
from glue_bench.training.tokenizers import load_tokenizer, train_tokenizer

CONFIG = EncoderConfig(vocab_size=300, hidden_size=16, num_attention_heads=2, max_position_embeddings=64)


def text_sample(**changes: object) -> Sample:
    return draw_sample(EncoderConfig(**CONFIG.to_dict() | changes), train_tokenizer(SENTENCES, 300))


def same(one: Sample, other: Sample) -> bool:
    names = ("ids", "segments", "mask", "masked_ids", "labels")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def test_text_is_pairs_of_sentences() -> None:
    sample, tokenizer = text_sample(), train_tokenizer(SENTENCES, 300)
    assert sample.kind == "text"
    first = tokenizer.decode(sample.ids[0][sample.mask[0]])
    assert first.startswith("[CLS] the baker opens")
    assert first.count("[SEP]") == 2
    assert set(sample.segments[sample.mask].tolist()) == {0, 1}
    assert (sample.ids[~sample.mask] == tokenizer.pad_token_id).all()
    assert not sample.mask.all()


def test_fifteen_percent_of_the_words_are_masked() -> None:
    sample, tokenizer = text_sample(), train_tokenizer(SENTENCES, 300)
    masked = sample.labels != NOT_MASKED
    special = torch.isin(sample.ids, torch.tensor([tokenizer.cls_token_id, tokenizer.sep_token_id])) | ~sample.mask
    assert int(masked.sum()) == sample.size["masked"] == round(0.15 * int((~special).sum()))
    assert not (masked & special).any()
    assert torch.equal(sample.labels[masked], sample.ids[masked])
    assert (sample.masked_ids[masked] == tokenizer.mask_token_id).all()
    assert torch.equal(sample.masked_ids[~masked], sample.ids[~masked])


def test_the_sample_is_the_same_every_time() -> None:
    torch.manual_seed(3)
    first = text_sample(), draw_sample(CONFIG, None)
    torch.manual_seed(4)
    assert same(text_sample(), first[0])
    assert same(draw_sample(CONFIG, None), first[1])


def test_it_fits_the_encoder() -> None:
    assert text_sample(max_position_embeddings=16).ids.shape == (6, 16)
    assert text_sample(type_vocab_size=1).segments.max() == 0
    assert text_sample(type_vocab_size=0).segments.max() == 0
    short = draw_sample(EncoderConfig(**CONFIG.to_dict() | {"max_position_embeddings": 8}), None)
    assert short.ids.shape == (8, 8)


@pytest.mark.parametrize("padding", [0, 1, 9, None])
def test_random_ids_are_every_token_but_padding(padding: int | None) -> None:
    config = EncoderConfig(**CONFIG.to_dict() | {"vocab_size": 10, "pad_token_id": padding})
    sample = draw_sample(config, None)
    assert sample.kind == "random ids"
    drawn = set(sample.ids.flatten().tolist()) | set(sample.masked_ids.flatten().tolist())
    assert drawn == set(range(10)) - ({9} if padding is None else {padding})
    assert (sample.masked_ids != sample.ids).any()
    assert sample.mask.all()
    assert set(sample.segments.flatten().tolist()) == {0, 1}


def test_a_tokenizer_without_a_mask_token_masks_with_random_ids(make_bert: Callable[..., Path]) -> None:
    tokenizer = load_tokenizer(str(make_bert(texts=SENTENCES)))
    tokenizer.mask_token = None
    sample = draw_sample(CONFIG, tokenizer)
    masked = sample.labels != NOT_MASKED
    assert len(set(sample.masked_ids[masked].tolist())) > 5
