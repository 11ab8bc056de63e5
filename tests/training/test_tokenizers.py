"""Tokenizers: deterministic training, BERT's segments, round trips, and clear errors."""

import os
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from glue_bench.errors import UserError
from glue_bench.training.tokenizers import SPECIAL, load_tokenizer, tokenizer_digest, train_tokenizer

TEXTS = [
    "The old cat chased the tall dog again .",
    "was the quiet goose watched by Anna ?",
    "anna watched the lazy horse; nobody helped",
    "café naïve 中文 don't",
] * 2


def test_training_gives_the_same_vocabulary_in_every_process():
    code = (
        "from glue_bench.training.tokenizers import train_tokenizer, tokenizer_digest\n"
        f"print(tokenizer_digest(train_tokenizer({TEXTS!r}, 90)))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    # Many trainings, since two random orders may agree by chance.
    digests = {tokenizer_digest(train_tokenizer(iter(TEXTS), 90)) for _ in range(8)}
    assert digests == {other.stdout.strip()}


def test_a_vocabulary_has_the_size_asked_for_and_covers_its_texts():
    tokenizer = train_tokenizer(TEXTS, 90)
    assert len(tokenizer) == 90
    assert sorted(tokenizer.get_vocab().values()) == list(range(90))
    for text in TEXTS:
        assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]


def test_inner_characters_are_no_special_tokens():
    tokenizer = train_tokenizer(TEXTS, 200)
    assert set(tokenizer.all_special_tokens) == set(SPECIAL.values())
    assert "##" not in tokenizer.decode(tokenizer("cats dogs")["input_ids"], skip_special_tokens=True)


def test_texts_become_what_bert_makes_of_them():
    tokenizer = train_tokenizer(TEXTS, 200)
    one = tokenizer("Anna watched", return_token_type_ids=True)
    assert tokenizer.convert_ids_to_tokens(one["input_ids"]) == ["[CLS]", "anna", "watched", "[SEP]"]
    assert one["token_type_ids"] == [0, 0, 0, 0]
    two = tokenizer("the cat", "the dog .", return_token_type_ids=True)
    assert tokenizer.decode(two["input_ids"]) == "[CLS] the cat [SEP] the dog. [SEP]"
    assert two["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_it_survives_saving(tmp_path):
    tokenizer = train_tokenizer(TEXTS, 90)
    tokenizer.save_pretrained(tmp_path)
    for back in (AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(str(tmp_path))):
        assert tokenizer_digest(back) == tokenizer_digest(tokenizer)
        ours = tokenizer("the café", "dog", return_token_type_ids=True)
        theirs = back("the café", "dog", return_token_type_ids=True)
        assert dict(theirs) == dict(ours)


def test_the_digest_tells_vocabularies_apart():
    digests = {tokenizer_digest(train_tokenizer(texts, size)) for texts in (TEXTS, TEXTS[:2]) for size in (80, 90)}
    assert len(digests) >= 3  # the short texts may be used up before either size


def test_the_digest_does_not_depend_on_earlier_calls():
    tokenizer = train_tokenizer(TEXTS, 90)
    before = tokenizer_digest(tokenizer)
    tokenizer(TEXTS, truncation=True, max_length=5, padding=True)
    assert tokenizer_digest(tokenizer) == before


def test_a_checkpoint_without_a_tokenizer_is_refused(make_bert):
    with pytest.raises(UserError, match=r"no tokenizer in '.*bert'.*name one with `tokenizer`"):
        load_tokenizer(str(make_bert()))


def test_a_file_has_no_tokenizer(make_tupe):
    with pytest.raises(UserError, match=r"no tokenizer in '.*tupe\.pt', which is one file; name one with `tokenizer`"):
        load_tokenizer(str(make_tupe()))


def test_a_tokenizer_without_padding_is_refused(tmp_path):
    tokenizer = train_tokenizer(TEXTS, 90)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has no padding token"):
        load_tokenizer(str(tmp_path))
