"""What the official rows of GLUE are, by digest, and how the rows of a split differ from them."""

import hashlib
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import NamedTuple

import pandas as pd

from glue_bench.data.tasks import TASKS

DIGEST_DIGITS = 12
"""Hexadecimal digits of a SHA-256: two different splits share them in one of 10^14 cases."""
OTHER_LABEL_ORDER = "label ids in another order"
LabelOrder = tuple[int, ...]
"""The official id of the class that each label id of some data means."""


class Fingerprint(NamedTuple):
    """The digests of one split, each cut to DIGEST_DIGITS.

    Attributes:
        rows: That of texts and labels in row order.
        sorted_rows: That of the same rows in alphabetical order.
        texts: That of texts without labels.
        words: That of texts without labels and without the number of blanks between and around
            words.
    """

    rows: str
    sorted_rows: str
    texts: str
    words: str


def split_digest(name: str, frame: pd.DataFrame) -> str:
    """Return the SHA-256 of one split's texts and labels, in row order."""
    rows = frame.to_csv(index=False, sep="\t", lineterminator="\n", float_format="%.6g")
    content = f"{name}\n{rows}".encode()
    return hashlib.sha256(content).hexdigest()


def fingerprint_split(name: str, frame: pd.DataFrame) -> Fingerprint:
    """Return the digests of the split `name`, a frame of `TaskData.splits`."""
    sorted_frame = frame.sort_values(list(frame.columns))
    texts = frame.drop(columns="label")
    return Fingerprint(
        rows=split_digest(name, frame)[:DIGEST_DIGITS],
        sorted_rows=split_digest(name, sorted_frame)[:DIGEST_DIGITS],
        texts=split_digest(name, texts)[:DIGEST_DIGITS],
        words=_words_digest(name, frame),
    )


def difference(task: str, split: str, frame: pd.DataFrame, official: Fingerprint) -> str:
    """Say in a few words how a split of a task differs from the official one.

    Args:
        task: The name of the task.
        split: The name of the split.
        frame: The rows of the split, a frame of `TaskData.splits`.
        official: The digests of the official split.

    Returns:
        An empty text for the official rows.
    """
    if split_digest(split, frame)[:DIGEST_DIGITS] == official.rows:
        return ""
    digests = fingerprint_split(split, frame)
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
    """Say how the labels of a split with the official texts differ."""
    for order in _label_orders(task):
        official_ids = dict(enumerate(order))
        renumbered = frame.assign(label=frame["label"].map(official_ids))
        if split_digest(split, renumbered)[:DIGEST_DIGITS] == official.rows:
            return _describe_label_order(task, order)
    return "other labels"


def label_order(task: str, difference: str) -> LabelOrder | None:
    """Return the order of label ids that a `difference` describes; None if it is about no order."""
    for order in _label_orders(task):
        if difference == _describe_label_order(task, order):
            return order
    return None


def _label_orders(task: str) -> Iterator[LabelOrder]:
    """Yield all orders in which data may number the classes of a task."""
    yield from permutations(range(len(TASKS[task].labels)))


def _describe_label_order(task: str, order: LabelOrder) -> str:
    """Say which class each label id of a task's data means."""
    labels = TASKS[task].labels
    meanings = [f"{number} is {labels[meant]}" for number, meant in enumerate(order)]
    return f"{OTHER_LABEL_ORDER}: {', '.join(meanings)}"


def _words_digest(name: str, frame: pd.DataFrame, read: Callable[[str], str] = str) -> str:
    """Return the digest `words` of a split whose texts are first passed through `read`."""

    def single_blanks(text: str) -> str:
        return " ".join(read(text).split())

    words = frame.drop(columns="label").map(single_blanks)
    return split_digest(name, words)[:DIGEST_DIGITS]


def _unquoted(text: str) -> str:
    """Remove the quotes that CSV puts around a field, and that it doubles inside of it."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return text[1:-1].replace('""', '"')
    return text


OFFICIAL: dict[str, dict[str, Fingerprint]] = {
    "cola": {
        "train": Fingerprint("62408ba9d10d", "17d58f3882fc", "32b71d534c1b", "32b71d534c1b"),
        "validation": Fingerprint("25c52cd1b518", "a9eac7e9a278", "b3fcd73cf064", "b3fcd73cf064"),
        "test": Fingerprint("cbff36d4caa1", "0f3806d70312", "7d06dcd5d7e6", "7d06dcd5d7e6"),
    },
    "sst2": {
        "train": Fingerprint("02b0136a1985", "20bc05038669", "2c62d8505529", "4ade127d523c"),
        "validation": Fingerprint("b37db060ceea", "95406d02e74a", "e158cdb64dc5", "d91103137fda"),
        "test": Fingerprint("dd6add216ed8", "da3867ced125", "f1db96608d8e", "f1db96608d8e"),
    },
    "mrpc": {
        "train": Fingerprint("f75cf3f7dfe5", "97dd63a31f91", "639ab91ea7f5", "639ab91ea7f5"),
        "validation": Fingerprint("b09d2c35d99e", "87e0060e3527", "57cb408f1f8b", "57cb408f1f8b"),
        "test": Fingerprint("3a81ed627313", "97ed030c2ac1", "9b3eb77c91a9", "9b3eb77c91a9"),
    },
    "stsb": {
        "train": Fingerprint("814a6699cc82", "6901285f44e2", "b1b18ac7f9e6", "e2b432e49070"),
        "validation": Fingerprint("689d0a3f73b0", "12a8876f80b4", "f7889ccdfb64", "fce283bf2c2a"),
        "test": Fingerprint("936940dfabc2", "abbf6f1b1903", "1102c1eb1bbb", "918ebccabaed"),
    },
    "qqp": {},
    "mnli": {
        "validation_matched": Fingerprint(
            "fb09d05b2533", "131df2de1a83", "846c8e3c9302", "c30ad66a467b"
        ),
        "validation_mismatched": Fingerprint(
            "f1904542760d", "f0d5824a872c", "16265df0f677", "9a064cee9289"
        ),
        "test_matched": Fingerprint("3e2d748e5915", "8070a2e3eb95", "af1027c48a50", "e50435821ba2"),
        "test_mismatched": Fingerprint(
            "e7f383392b08", "9e994f160727", "96f570c01a2d", "7e9ea9cc9c3e"
        ),
    },
    "qnli": {
        "validation": Fingerprint("bded154eda66", "7a19e294515d", "b0c3574a2f9f", "73f980e89eea"),
        "test": Fingerprint("9cdf88f2a971", "d69b01e49beb", "b9930825a479", "3314c968fd6a"),
    },
    "rte": {
        "train": Fingerprint("427a2de5ff2d", "5c7eaae03c71", "e139f7391a64", "e33218a682b0"),
        "validation": Fingerprint("6d527f1caf2c", "017b2bfef1ea", "9ee004df7af9", "abc3567a2a19"),
        "test": Fingerprint("60749eb87c05", "df1b1f034708", "c76a2bb0fd5e", "7fb0f6811dce"),
    },
    "wnli": {
        "train": Fingerprint("460ed2bd4495", "f70c785ffba6", "346c5ebc8892", "346c5ebc8892"),
        "validation": Fingerprint("acc69f510a28", "60266221d6fa", "20d241bd0c0a", "20d241bd0c0a"),
        "test": Fingerprint("38c3178ff9aa", "c4b59f18cf8a", "3c7a7bfbdfbd", "3c7a7bfbdfbd"),
    },
    "ax": {
        "test": Fingerprint("6b2cf3152b49", "51173d3b65a2", "3d5c0ea1604c", "881953780571"),
    },
}
"""The digests of official splits, by task and split.

Computed on files in the classic layout whose texts have, split by split, the number of bytes that
the first version of the hub's dataset states. QQP and the train splits of MNLI and QNLI are absent:
no complete copy was at hand.
"""
