"""What the official rows of GLUE are, by digest, and how the rows of a split differ from them."""

import hashlib
from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple

import pandas as pd

from glue_bench.data.tasks import TASKS

LENGTH = 16  # hexadecimal digits of a SHA-256: two different splits agree in one of 10^19 cases


class Fingerprint(NamedTuple):
    """The digests of one split, each cut to LENGTH.

    `rows` is that of texts and labels in row order, `sorted_rows` that of the same rows in alphabetical order. `texts`
    leaves labels out, and `words` also the number of blanks between and around words.
    """

    rows: str
    sorted_rows: str
    texts: str
    words: str


def split_digest(name: str, frame: pd.DataFrame) -> str:
    """SHA-256 of one split's texts and labels, in row order."""
    rows = frame.to_csv(index=False, sep="\t", lineterminator="\n", float_format="%.6g")
    return hashlib.sha256(f"{name}\n{rows}".encode()).hexdigest()


def fingerprint(name: str, frame: pd.DataFrame) -> Fingerprint:
    """The digests of the split `name`, a frame of `TaskData.splits`."""
    return Fingerprint(
        rows=split_digest(name, frame)[:LENGTH],
        sorted_rows=split_digest(name, frame.sort_values(list(frame.columns)))[:LENGTH],
        texts=split_digest(name, frame.drop(columns="label"))[:LENGTH],
        words=_words_digest(name, frame),
    )


def difference(task: str, split: str, frame: pd.DataFrame, official: Fingerprint) -> str:
    """How a split of a task differs from the official one, in a few words; empty for the official rows."""
    if split_digest(split, frame)[:LENGTH] == official.rows:
        return ""
    digests = fingerprint(split, frame)
    if digests.sorted_rows == official.sorted_rows:
        return "the official rows in another order"
    if digests.texts == official.texts:
        return _difference_of_labels(task, split, frame, official)
    if digests.words == official.words:
        return "other blanks in texts"
    if _words_digest(split, frame, _unquoted) == official.words:
        return "CSV quotes around texts"
    return "other rows"


def _difference_of_labels(task: str, split: str, frame: pd.DataFrame, official: Fingerprint) -> str:
    """How the labels of a split with the official texts differ."""
    labels = TASKS[task].labels
    for order in permutations(range(len(labels))):
        renumbered = frame.assign(label=frame["label"].map(dict(enumerate(order))))
        if split_digest(split, renumbered)[:LENGTH] == official.rows:
            meanings = ", ".join(f"{number} is {labels[meant]}" for number, meant in enumerate(order))
            return f"label ids in another order: {meanings}"
    return "other labels"


def _words_digest(name: str, frame: pd.DataFrame, read: Callable[[str], str] = str) -> str:
    """The digest `words` of a split whose texts are first passed through `read`."""
    words = frame.drop(columns="label").map(lambda text: " ".join(read(text).split()))
    return split_digest(name, words)[:LENGTH]


def _unquoted(text: str) -> str:
    """A text without the quotes that CSV puts around a field, and inside of it doubles."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return text[1:-1].replace('""', '"')
    return text


OFFICIAL: dict[str, dict[str, Fingerprint]] = {
    "cola": {
        "train": Fingerprint("62408ba9d10df712", "17d58f3882fcee4a", "32b71d534c1be069", "32b71d534c1be069"),
        "validation": Fingerprint("25c52cd1b518c503", "a9eac7e9a2789bc2", "b3fcd73cf0648ef0", "b3fcd73cf0648ef0"),
        "test": Fingerprint("cbff36d4caa17855", "0f3806d70312d930", "7d06dcd5d7e6c403", "7d06dcd5d7e6c403"),
    },
    "sst2": {
        "train": Fingerprint("02b0136a19856722", "20bc0503866993ea", "2c62d8505529ea07", "4ade127d523c9a86"),
        "validation": Fingerprint("b37db060ceeadbb3", "95406d02e74a4c07", "e158cdb64dc5d4cb", "d91103137fda02e6"),
        "test": Fingerprint("dd6add216ed8f3a9", "da3867ced1255b5d", "f1db96608d8e747c", "f1db96608d8e747c"),
    },
    "mrpc": {
        "train": Fingerprint("f75cf3f7dfe52f6d", "97dd63a31f91d7fd", "639ab91ea7f5fc28", "639ab91ea7f5fc28"),
        "validation": Fingerprint("b09d2c35d99ef6d8", "87e0060e352762db", "57cb408f1f8b5472", "57cb408f1f8b5472"),
        "test": Fingerprint("3a81ed6273130228", "97ed030c2ac1a161", "9b3eb77c91a99f08", "9b3eb77c91a99f08"),
    },
    "stsb": {
        "train": Fingerprint("814a6699cc82eabf", "6901285f44e2bbd8", "b1b18ac7f9e61cf1", "e2b432e49070f65f"),
        "validation": Fingerprint("689d0a3f73b0e9f1", "12a8876f80b4c0b8", "f7889ccdfb64b8a7", "fce283bf2c2a67d8"),
        "test": Fingerprint("936940dfabc21c89", "abbf6f1b1903a0d7", "1102c1eb1bbba8aa", "918ebccabaed815d"),
    },
    "qqp": {},
    "mnli": {
        "validation_matched": Fingerprint("fb09d05b2533d817", "131df2de1a8331ba", "846c8e3c9302b2da", "c30ad66a467b941a"),
        "validation_mismatched": Fingerprint("f1904542760d39eb", "f0d5824a872ce21b", "16265df0f6776367", "9a064cee92890e6b"),
        "test_matched": Fingerprint("3e2d748e5915bb73", "8070a2e3eb95a09f", "af1027c48a507bd7", "e50435821ba2480c"),
        "test_mismatched": Fingerprint("e7f383392b08d65a", "9e994f160727610a", "96f570c01a2df8e3", "7e9ea9cc9c3e765c"),
    },
    "qnli": {
        "validation": Fingerprint("bded154eda66f502", "7a19e294515d2b6d", "b0c3574a2f9f91b1", "73f980e89eea1ba5"),
        "test": Fingerprint("9cdf88f2a971dd4e", "d69b01e49beb99be", "b9930825a479aa8b", "3314c968fd6a446c"),
    },
    "rte": {
        "train": Fingerprint("427a2de5ff2d58c8", "5c7eaae03c7191dc", "e139f7391a644401", "e33218a682b086ff"),
        "validation": Fingerprint("6d527f1caf2ca56b", "017b2bfef1eac8f2", "9ee004df7af9c8cc", "abc3567a2a19e865"),
        "test": Fingerprint("60749eb87c05d210", "df1b1f03470825c1", "c76a2bb0fd5e50db", "7fb0f6811dcec4ee"),
    },
    "wnli": {
        "train": Fingerprint("460ed2bd44951fcd", "f70c785ffba698f8", "346c5ebc8892ec38", "346c5ebc8892ec38"),
        "validation": Fingerprint("acc69f510a281f92", "60266221d6fae80d", "20d241bd0c0a29fd", "20d241bd0c0a29fd"),
        "test": Fingerprint("38c3178ff9aa17ea", "c4b59f18cf8a920f", "3c7a7bfbdfbdd355", "3c7a7bfbdfbdd355"),
    },
    "ax": {
        "test": Fingerprint("6b2cf3152b49fd42", "51173d3b65a20469", "3d5c0ea1604ca46c", "8819537805717212"),
    },
}
"""The digests of official splits, by task and split.

Computed on files in the classic layout whose texts have, split by split, the number of bytes that the first version of
the hub's dataset states. QQP and the train splits of MNLI and QNLI are absent: no complete copy was at hand.
"""
