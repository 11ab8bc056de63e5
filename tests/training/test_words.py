"""Validation examples with shuffled words: what moves, what stays, and what is scored."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from glue_bench.api import run
from glue_bench.records.store import Store
from glue_bench.tables.results import read_results
from glue_bench.training.convert import SENTENCES
from glue_bench.training.tokenizers import SPECIAL, train_tokenizer
from glue_bench.training.tokens import TokenisedSplit, TokenisedTask
from glue_bench.training.words import SUFFIX, WordRule, shuffled, with_shuffled

TOKENIZER = train_tokenizer(SENTENCES, 150)


@pytest.fixture(scope="module")
def split() -> TokenisedSplit:
    encoded = TOKENIZER(SENTENCES[:6], SENTENCES[6:12], return_token_type_ids=True)
    ids = [np.array(each, dtype=np.int32) for each in encoded["input_ids"]]
    segments = np.concatenate([np.array(each, dtype=np.uint8) for each in encoded["token_type_ids"]])
    return TokenisedSplit(np.concatenate(ids), segments, np.cumsum([0, *map(len, ids)]), np.arange(6))


SEQUENCES = {
    "WordPiece": ["[CLS]", "the", "cat", "##s", "'", "[UNK]", "[SEP]", "[SEP]", "##s", "a1", ".", "[MASK]", "b"],
    "bytes": ["[CLS]", "Ġthe", "Ġcat", "s", "Ġ'", "[UNK]", "[SEP]", "[SEP]", "s", "Ġa", "1", ".", "[MASK]", "Ġb"],
    "SentencePiece": [
        "[CLS]",
        "▁the",
        "▁cat",
        "s",
        "'",
        "[UNK]",
        "[SEP]",
        "[SEP]",
        "s",
        "▁a",
        "1",
        ".",
        "[MASK]",
        "▁b",
    ],
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_words_are_those_of_the_vocabularys_marks_between_separators(kind):
    sequence = SEQUENCES[kind]
    names = [*dict.fromkeys([*SPECIAL.values(), *sequence, "Ġ" * (kind == "bytes") or "▁"])]
    model = models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), **SPECIAL)
    ids = np.array(tokenizer.convert_tokens_to_ids(sequence))
    found = WordRule.of(tokenizer).stretches(ids)
    words = [["".join(sequence[slice(*word)]).strip("Ġ▁").replace("##", "") for word in words] for words in found]
    assert words == [["the", "cats", "'", "[UNK]"], ["s", "a1", "."], ["b"]]


def test_words_change_places_and_stay_whole_within_their_text(split):
    rule = WordRule.of(TOKENIZER)
    moved = shuffled(split, rule)
    assert (moved.ids != split.ids).any()
    assert (moved.ids == shuffled(split, rule).ids).all()
    assert moved.segments is split.segments
    assert moved.offsets is split.offsets
    for first, stop in zip(split.offsets[:-1], split.offsets[1:], strict=True):
        before, after = split.ids[first:stop], moved.ids[first:stop]
        for these, those in zip(rule.stretches(before), rule.stretches(after), strict=True):
            assert these[0][0] == those[0][0]
            words = [
                sorted(tuple(ids[slice(*word)]) for word in span) for ids, span in ((before, these), (after, those))
            ]
            assert words[0] == words[1]


def test_only_the_splits_that_are_named_are_there_a_second_time(split):
    task = TokenisedTask("rte", {"train": split, "validation": split}, 0)
    found = with_shuffled(task, ("validation", "validation_mismatched"), WordRule.of(TOKENIZER))
    assert list(found.splits) == ["train", "validation", "validation" + SUFFIX]


@pytest.mark.usefixtures("small_demo")
def test_cells_are_scored_without_order_and_keep_their_ids(tiny, tmp_path):
    summaries = [
        run(tiny(name=name, tasks=["cola"], finetuning={"order": order}), results=tmp_path)
        for name, order in (("plain", False), ("order", True))
    ]
    plain, asked = (Store(summary.folder).scan_records()[0] for summary in summaries)
    assert [one.cell_id for one in plain] == [one.cell_id for one in asked]
    assert [one.scores for one in plain] == [one.scores for one in asked]
    assert not any(one.order for one in plain)
    none = next(one for one in asked if one.cell.arm == "none")
    assert none.order == none.scores  # it sees a bag of words
    plain, asked = (read_results(summary.folder).scores for summary in summaries)
    assert plain["shuffled"].isna().all()
    assert asked["shuffled"].notna().equals(asked["last"])
    assert "shuffled" in (summaries[1].folder / "scores.csv").read_text().splitlines()[0]
