"""Tokenizers: trained as `tokenizers` trains, told apart by what they decide, refused in one line;
and words.
"""

import json
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import DebertaV2Config, PreTrainedTokenizerFast

from glue_bench.errors import UserError
from glue_bench.training.tokenizers import (
    BERT_TOKENS,
    cached_tokenizer,
    encode,
    load_tokenizer,
    tokenizer_digest,
    train_tokenizer,
)
from glue_bench.training.words import WordRule

TEXTS = [
    "The old cat chased the tall dog again .",
    "was the quiet goose watched by Anna ?",
    "anna watched the lazy horse; nobody helped",
    "café naïve 中文 don't",
] * 2
ODD = st.text(
    st.sampled_from("aAbé\u0301\u00a0\x1f\u200b\ufffd中Σ.,'#[]  ")
    | st.characters(exclude_categories=["Cs"]),
    max_size=12,
)
WORDS = st.sampled_from(["[SEP]", "[MASK]", "the", "cats", "##s", "don't", "Anna"])


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 90)


@given(odd_texts=st.lists(ODD, max_size=4))
def test_a_vocabulary_equals_tokenizers_own_training_with_sorted_inner_characters(
    odd_texts,
):
    texts = [
        *TEXTS,
        "It\x1fis  e\u0301tage\u00a0two, [SEP]I\u0307 \u200b \u0301a \ufffd!",
        " ",
        "",
        *odd_texts,
    ]

    trained = train_tokenizer(texts, 400).get_vocab()
    inner = [
        token
        for token in sorted(trained, key=trained.get)
        if token.startswith("##") and len(token) == 3
    ]
    assert inner == sorted(inner)

    plain = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    plain.normalizer = normalizers.BertNormalizer(lowercase=True)
    plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    first = [*BERT_TOKENS.values(), *inner]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=first, show_progress=False)
    plain.train_from_iterator(texts, trainer)

    assert trained == plain.get_vocab()


@given(
    texts=st.lists(st.lists(ODD | WORDS, max_size=4).map(" ".join), max_size=6),
    is_split=st.booleans(),
)
def test_encoded_texts_have_the_tokens_of_a_call_without_special_ones(texts, is_split):
    tokenizer = train_tokenizer(TEXTS, 90)
    tokenizer(TEXTS, truncation=True, max_length=3, padding=True)  # it keeps this length
    tokenizer.split_special_tokens = is_split
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    assert encode(tokenizer, texts) == expected


def test_a_cached_tokenizer_is_trained_once_and_anew_where_it_is_damaged(
    tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path))
    train = Mock(wraps=partial(train_tokenizer, TEXTS, 90))
    digest = tokenizer_digest(tokenizer)
    for _ in range(2):
        assert tokenizer_digest(cached_tokenizer("key", train)) == digest
    assert train.call_count == 1
    (path,) = tmp_path.rglob("tokenizer.json")
    path.write_text('{"version": "1.0"}')
    assert tokenizer_digest(cached_tokenizer("key", train)) == digest
    assert train.call_count == 2


@pytest.mark.parametrize(
    ("file", "part", "change", "message"),
    [
        ("tokenizer_config.json", (), {"model_max_length": [1, "a"]}, r"no tokenizer in '.*' \("),
        (
            "tokenizer_config.json",
            (),
            {"pad_token": None},
            "the tokenizer of '.*' has no padding token; name one with `tokenizer`",
        ),
        ("tokenizer.json", (), {"model": {"type": "none"}}, r"no tokenizer in '.*' \("),
        (
            "tokenizer.json",
            ("model", "vocab"),
            {"far": 10**7},
            "the tokenizer of '.*' has ids beyond 10,000,000; ",
        ),
    ],
    ids=["limit", "padding", "model", "ids"],
)
def test_files_that_do_not_fit_are_one_line(tokenizer, tmp_path, file, part, change, message):
    tokenizer.save_pretrained(tmp_path)
    content = place = json.loads((tmp_path / file).read_text())
    for name in part:
        place = place[name]
    place.update(change)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message) as caught:
        load_tokenizer(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_one_file_has_no_tokenizer(make_tupe):
    with pytest.raises(
        UserError,
        match=r"no tokenizer in '.*tupe\.pt', which is one file; name one with `tokenizer`",
    ):
        load_tokenizer(str(make_tupe()))


PIECES = "spm.model"  # the file of DeBERTa-v2 and v3, whose hub folders have no tokenizer.json


@pytest.fixture
def deberta(tmp_path):
    """A folder with the configuration of a DeBERTa-v2, whose SentencePiece model may be written
    into it.
    """
    DebertaV2Config(vocab_size=80).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / PIECES).write_bytes(b"\x0e\x0a no SentencePiece model")
    return tmp_path


@pytest.mark.parametrize(
    ("absent", "names"),
    [
        (["sentencepiece"], "sentencepiece; "),
        (["google.protobuf"], "protobuf; "),
        (["sentencepiece", "google.protobuf"], "sentencepiece and protobuf; "),
    ],
)
def test_the_packages_that_a_sentencepiece_model_needs_are_named(
    deberta, monkeypatch, absent, names
):
    for module in ("sentencepiece", "google.protobuf"):
        stub = None
        if module not in absent:
            stub = ModuleType(module)
            stub.__spec__ = ModuleSpec(module, None)
        monkeypatch.setitem(sys.modules, module, stub)
    remedy = r"install it: pip install '\.\[sentencepiece\]'"
    line = rf"is the SentencePiece model spm\.model, which needs {names}{remedy}$"
    with pytest.raises(UserError, match=line):
        load_tokenizer(str(deberta))


def test_an_error_says_that_a_sentencepiece_model_is_damaged(deberta):
    pytest.importorskip("sentencepiece")
    pytest.importorskip("google.protobuf")
    with pytest.raises(
        UserError,
        match=r"SentencePiece model spm\.model, which cannot be read; the file may be damaged",
    ):
        load_tokenizer(str(deberta))


def test_the_pieces_of_a_sentencepiece_model_are_its_own(deberta):
    sentencepiece = pytest.importorskip("sentencepiece")
    pytest.importorskip("google.protobuf")

    with (deberta / PIECES).open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS),
            model_writer=file,
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
            pad_piece="[PAD]",
            bos_piece="[CLS]",
            eos_piece="[SEP]",
            unk_piece="[UNK]",
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
        )

    library = sentencepiece.SentencePieceProcessor(model_file=str(deberta / PIECES))
    pieces = library.encode(TEXTS[0], out_type=str)
    assert load_tokenizer(str(deberta)).tokenize(TEXTS[0]) == pieces


def changed(tokenizer, change):
    """Return a tokenizer with the same special tokens and a changed file."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    change(state)
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)), **BERT_TOKENS
    )


def with_set(**changes):
    def change(tokenizer):
        for name, value in changes.items():
            setattr(tokenizer, name, value)
        return tokenizer

    return change


def backwards(self, *texts, **options):
    encoded = PreTrainedTokenizerFast.__call__(self, *texts, **options)
    encoded["input_ids"] = [ids[::-1] for ids in encoded["input_ids"]]
    return encoded


COUNTS = {
    "truncation side": with_set(truncation_side="left"),
    "special tokens in texts": with_set(split_special_tokens=True),
    "[MASK]": with_set(mask_token="the"),
    "another special token": with_set(bos_token="dog"),
    "a word": lambda tokenizer: (tokenizer.add_tokens(["watched the"]), tokenizer)[1],
    "case": lambda tokenizer: changed(
        tokenizer, lambda state: state["normalizer"].update(lowercase=False)
    ),
    "segments": lambda tokenizer: changed(
        tokenizer, lambda state: state["post_processor"]["pair"][-2]["Sequence"].update(type_id=2)
    ),
    "code": lambda tokenizer: type("Backwards", (type(tokenizer),), {"__call__": backwards})(
        tokenizer_object=tokenizer.backend_tokenizer, **BERT_TOKENS
    ),
}
COUNTS_NOT = {
    "padding side": with_set(padding_side="left"),
    "longest text": with_set(model_max_length=3),
    "place": with_set(name_or_path="elsewhere"),
    "earlier calls": lambda tokenizer: (
        tokenizer(TEXTS, truncation=True, max_length=5, padding=True),
        tokenizer,
    )[1],
}


def all_that_it_decides(tokenizer):
    """Return everything that fine-tuning and pretraining take from a tokenizer."""
    values = [
        encode(tokenizer, ["[MASK] Anna", *TEXTS]),
        sorted(tokenizer.all_special_ids),
        [getattr(tokenizer, f"{name}_id") for name in BERT_TOKENS],
    ]
    for length in (5, 32):
        encoded = tokenizer(
            TEXTS, TEXTS[::-1], max_length=length, truncation=True, return_token_type_ids=True
        )
        values += [encoded["input_ids"], encoded["token_type_ids"]]
    return values


@pytest.mark.parametrize("case", [*COUNTS, *COUNTS_NOT])
def test_the_digest_changes_if_and_only_if_an_id_changes(case):
    change = (COUNTS | COUNTS_NOT)[case]
    before = train_tokenizer(TEXTS, 90)
    after = change(train_tokenizer(TEXTS, 90))
    assert (all_that_it_decides(after) != all_that_it_decides(before)) == (case in COUNTS)
    assert (tokenizer_digest(after) != tokenizer_digest(before)) == (case in COUNTS)


SEQUENCES = {
    "WordPiece": "[CLS] the cat ##s ' [UNK] [SEP] [SEP] ##s a1 . [MASK] b",
    "bytes": "[CLS] Ġthe Ġcat s Ġ' [UNK] [SEP] [SEP] s Ġa 1 . [MASK] Ġb",
    "SentencePiece": "[CLS] ▁the ▁cat s ' [UNK] [SEP] [SEP] s ▁a 1 . [MASK] ▁b",
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_words_follow_the_vocabularys_marks_between_separators(kind):
    sequence = SEQUENCES[kind].split()
    names = [*dict.fromkeys([*BERT_TOKENS.values(), *sequence, "Ġ" * (kind == "bytes") or "▁"])]
    model = models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), **BERT_TOKENS)
    ids = np.array(tokenizer.convert_tokens_to_ids(sequence))
    texts = []
    for spans in WordRule.of(tokenizer).stretches(ids):
        words = ["".join(sequence[first:stop]) for first, stop in spans]
        texts.append([word.strip("Ġ▁").replace("##", "") for word in words])
    expected = [["the", "cats", "'", "[UNK]"], ["s", "a1", "."], ["b"]]
    assert texts == expected
