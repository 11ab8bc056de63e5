"""Tokenizers: deterministic training, BERT's segments, round trips, and clear errors."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, CTRLTokenizer, PreTrainedTokenizerFast

from glue_bench.errors import UserError
from glue_bench.training import tokenizers as module
from glue_bench.training.tokenizers import (
    SPECIAL,
    encoder,
    load_tokenizer,
    segment_types,
    tokenizer_digest,
    train_tokenizer,
)

TEXTS = [
    "The old cat chased the tall dog again .",
    "was the quiet goose watched by Anna ?",
    "anna watched the lazy horse; nobody helped",
    "café naïve 中文 don't",
] * 2


def test_training_gives_the_same_vocabulary_every_time():
    # Many trainings, since two random orders may agree by chance.
    assert len({tokenizer_digest(train_tokenizer(iter(TEXTS), 90)) for _ in range(8)}) == 1


@pytest.mark.slow
def test_training_gives_the_same_vocabulary_in_every_process():
    code = (
        "from glue_bench.training.tokenizers import train_tokenizer, tokenizer_digest\n"
        f"print(tokenizer_digest(train_tokenizer({TEXTS!r}, 90)))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    assert other.stdout.strip() == tokenizer_digest(train_tokenizer(TEXTS, 90))


@pytest.mark.parametrize("kept", [2, 500_000])
def test_a_vocabulary_is_that_of_training_on_the_texts_themselves(monkeypatch, kept):
    """With the normaliser and the pre-tokeniser of `tokenizers`, and the numbers of inner characters settled alike."""
    monkeypatch.setattr(module, "MOST_KEPT", kept)
    texts = [*TEXTS, "It\x1fis  e\u0301tage\u00a0two, [SEP]I\u0307 \u200b \u0301a \ufffd!", " ", ""]
    tokenizer = train_tokenizer(texts, 400)
    inner = sorted(token for token in tokenizer.get_vocab() if token.startswith("##") and len(token) == 3)
    plain = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    plain.normalizer = normalizers.BertNormalizer(lowercase=True)
    plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    first = [*SPECIAL.values(), *inner]
    plain.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=400, special_tokens=first, show_progress=False)
    )
    assert tokenizer.get_vocab() == plain.get_vocab()


ODD = st.text(
    st.sampled_from("aAbé\u0301\u00a0\x1f\u200b\ufffd中Σ.,'#[]  ") | st.characters(exclude_categories=["Cs"]),
    max_size=12,
)
WORDS = st.sampled_from(["[SEP]", "[MASK]", "the", "cats", "##s", "don't", "Anna"])


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 90)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.lists(ODD | WORDS, max_size=4).map(" ".join), max_size=6), kept=st.sampled_from([1, 500_000]))
def test_texts_that_are_encoded_by_parts_have_the_tokens_of_the_whole(monkeypatch, tokenizer, texts, kept):
    monkeypatch.setattr(module, "MOST_KEPT", kept)
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    encode = encoder(tokenizer)
    assert encode(texts) == encode(texts) == expected


def test_only_a_tokenizer_that_parts_at_spaces_is_asked_for_parts(tokenizer):
    assert encoder(tokenizer).__name__ == "encode_once"
    changed = train_tokenizer(TEXTS, 90)
    changed.add_tokens(["old cat"])
    assert encoder(changed).__name__ == "encode"
    assert encoder(changed)(TEXTS) == changed(TEXTS, add_special_tokens=False)["input_ids"]
    state = json.loads(tokenizer.backend_tokenizer.to_str()) | {"pre_tokenizer": {"type": "Whitespace"}}
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(state)), **SPECIAL)
    assert encoder(other).__name__ == "encode"


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


# What the digest holds


def test_a_tokenizer_whose_limit_is_no_number_is_refused(tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": [1, "a"]}))
    with pytest.raises(UserError, match="no tokenizer in"):
        load_tokenizer(str(tmp_path))


def _vocabulary_of(tokenizer, change):
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    change(state)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(state)), **SPECIAL)


def _third_segment(state):
    for part in state["post_processor"]["pair"]:
        next(iter(part.values()))["type_id"] *= 2


def _set(**changes):
    def change(tokenizer):
        for name, value in changes.items():
            setattr(tokenizer, name, value)
        return tokenizer

    return change


COUNTS = {
    "truncation side": _set(truncation_side="left"),
    "special tokens in texts": _set(split_special_tokens=True),
    "[MASK]": _set(mask_token="the"),
    "[CLS]": _set(cls_token="the"),
    "[PAD]": _set(pad_token="the"),
    "another special token": _set(bos_token="dog"),
    "a word": lambda tokenizer: (tokenizer.add_tokens(["watched the"]), tokenizer)[1],
    "case": lambda t: _vocabulary_of(t, lambda state: state["normalizer"].update(lowercase=False)),
    "segments": lambda t: _vocabulary_of(t, _third_segment),
    "code": lambda t: type("Backwards", (type(t),), {"__call__": _backwards})(
        tokenizer_object=t.backend_tokenizer, **SPECIAL
    ),
}
COUNTS_NOT = {
    "padding side": _set(padding_side="left"),
    "longest text": _set(model_max_length=3),
    "place": _set(name_or_path="elsewhere"),
    "spaces in decoded text": _set(clean_up_tokenization_spaces=True),
    "inputs that a model takes": _set(model_input_names=["input_ids"]),
}


def _backwards(self, *texts, **options):
    encoded = PreTrainedTokenizerFast.__call__(self, *texts, **options)
    encoded["input_ids"] = [ids[::-1] for ids in encoded["input_ids"]]
    return encoded


def all_that_it_decides(tokenizer):
    """Everything that fine-tuning and pretraining take from a tokenizer."""
    lengths = {"truncation": True, "return_token_type_ids": True}
    encoded = [tokenizer(TEXTS, TEXTS[::-1], max_length=length, **lengths) for length in (5, 32)]
    pairs = [(each["input_ids"], each["token_type_ids"]) for each in encoded]
    alone = tokenizer(["[MASK] Anna", *TEXTS], add_special_tokens=False, verbose=False)["input_ids"]
    return pairs, alone, sorted(tokenizer.all_special_ids), [getattr(tokenizer, f"{name}_id") for name in SPECIAL]


@pytest.mark.parametrize("case", COUNTS)
def test_what_changes_an_id_changes_the_digest(case):
    before, after = train_tokenizer(TEXTS, 90), COUNTS[case](train_tokenizer(TEXTS, 90))
    assert all_that_it_decides(after) != all_that_it_decides(before)
    assert tokenizer_digest(after) != tokenizer_digest(before)


@pytest.mark.parametrize("case", COUNTS_NOT)
def test_what_changes_no_id_keeps_the_digest(case):
    before, after = train_tokenizer(TEXTS, 90), COUNTS_NOT[case](train_tokenizer(TEXTS, 90))
    assert all_that_it_decides(after) == all_that_it_decides(before)
    assert tokenizer_digest(after) == tokenizer_digest(before)


def slow_tokenizer(folder, merges="a b</w>", **settings):
    folder.mkdir()
    tokens = ["<unk>", "a</w>", "b</w>", "ab</w>", "a", "a@@", "b", "<pad>", "b@@"]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    return CTRLTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), pad_token="<pad>", **settings)


def test_a_slow_tokenizer_is_all_of_its_files_and_settings(tmp_path):
    first = slow_tokenizer(tmp_path / "first")
    assert tokenizer_digest(first) == tokenizer_digest(slow_tokenizer(tmp_path / "moved"))
    assert tokenizer_digest(first) == tokenizer_digest(first)  # its cache has grown
    others = [
        slow_tokenizer(tmp_path / "merges", merges="b a</w>"),
        slow_tokenizer(tmp_path / "unknown", unk_token="a@@"),
        slow_tokenizer(tmp_path / "side", truncation_side="left"),
    ]
    assert len({tokenizer_digest(tokenizer) for tokenizer in (first, *others)}) == 4


def test_segments_are_counted():
    tokenizer = train_tokenizer(TEXTS, 90)
    assert (segment_types(tokenizer), segment_types(_vocabulary_of(tokenizer, _third_segment))) == (2, 3)


def test_compiled_code_repeats_nothing_of_a_file(tmp_path, capfd):
    """tokenizers prints the names of what it does not know, as they stand there."""
    train_tokenizer(TEXTS, 90).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["added_tokens_decoder"] = {"2": {"content": "[CLS]", "special": True, "nul\x00\x1b[2J": 1}}
    path.write_text(json.dumps(config))
    load_tokenizer(str(tmp_path))
    print("afterwards all is printed as before")
    assert capfd.readouterr().out == "afterwards all is printed as before\n"
