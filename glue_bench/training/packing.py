"""FULL-SENTENCES packing (RoBERTa, Liu et al. 2019, section 4.2), kept in memory-mapped arrays."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError
from glue_bench.files import cache_folder
from glue_bench.training.corpus import Corpus
from glue_bench.training.tokenizers import tokenizer_digest
from glue_bench.training.tokens import keep_arrays, kept_or_made

LAYOUT_VERSION = 2
SENTENCES_AT_ONCE = 2_000
_SPLITS = ("train", "validation")


@dataclass(frozen=True)
class PackedText:
    """Sequences [CLS] ... [SEP], end to end: `ids` int32 (tokens,), sequence i is [offsets[i], offsets[i + 1])."""

    ids: np.ndarray
    offsets: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence, special ones included."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def pack(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, validation_share: float
) -> dict[str, PackedText]:
    """The corpus as `train` and `validation` sequences of at most `length` tokens, cached.

    `validation_share` of the sentences is held out: the last ones of long documents, and some short ones whole.

    Raises:
        UserError: the corpus is too small to hold out a sequence, or the tokenizer knows nothing of it, or has no
            [CLS], [SEP] or [MASK].
    """
    _check_special(tokenizer)
    parts = (f"v{LAYOUT_VERSION}", corpus.digest[:16], tokenizer_digest(tokenizer)[:16], length, validation_share)
    folder = cache_folder() / "corpora" / "-".join(map(str, parts))
    packed = kept_or_made(
        folder,
        read=lambda: {split: _load(folder, split) for split in _SPLITS},
        make=lambda: _write(folder, corpus, tokenizer, length, validation_share),
    )
    empty = [split for split, text in packed.items() if not len(text)]
    if empty:
        raise UserError(f"corpus '{corpus.name}' is too small: nothing left for {empty[0]}; add text")
    if np.isin(packed["validation"].ids, tokenizer.all_special_ids).all():
        raise UserError(f"the tokenizer knows no word of corpus '{corpus.name}' (validation part); name another")
    return packed


def pack_beginning(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, tokens: int) -> PackedText:
    """The sequences of at most `length` tokens that a text begins with, as many as have `tokens`; nothing is cached.

    Raises:
        UserError: as `pack`, of the whole text.
    """
    _check_special(tokenizer)
    packer, packed = _Packer(length - 2, int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)), 0
    for document in corpus.documents():
        for sentence in _encode(document, tokenizer):
            packer.add(sentence)
            packed += len(sentence)
        packer.end_document()
        if packed >= tokens:
            break
    text = PackedText(**packer.arrays())
    if np.isin(text.ids, tokenizer.all_special_ids).all():
        raise UserError(f"the tokenizer knows no word of corpus '{corpus.name}'; name another")
    return text


def _check_special(tokenizer: PreTrainedTokenizerBase) -> None:
    needed = {"[CLS]": tokenizer.cls_token_id, "[SEP]": tokenizer.sep_token_id, "[MASK]": tokenizer.mask_token_id}
    missing = [name for name, token_id in needed.items() if token_id is None]
    if missing:
        raise UserError(
            f"the tokenizer has no {' and no '.join(missing)} token; masked-LM pretraining needs one, name another"
        )


@dataclass
class _Packer:
    """Fills sequences with whole sentences; a sentence longer than a sequence is cut."""

    room: int
    cls: int
    sep: int
    pending: list[int] = field(default_factory=list)
    sequences: list[np.ndarray] = field(default_factory=list)

    def add(self, sentence: list[int]) -> None:
        for start in range(0, len(sentence), self.room):
            piece = sentence[start : start + self.room]
            if len(self.pending) + len(piece) > self.room:
                self.flush()
            self.pending += piece

    def end_document(self) -> None:
        """The next document goes on in the same sequence, behind one more separator."""
        # A document may give this split nothing; it leaves no second separator.
        if self.pending and self.pending[-1] != self.sep and len(self.pending) < self.room:
            self.pending.append(self.sep)

    def flush(self) -> None:
        while self.pending and self.pending[-1] == self.sep:
            self.pending.pop()
        if self.pending:
            self.sequences.append(np.array([self.cls, *self.pending, self.sep], dtype=np.int32))
        self.pending = []

    def arrays(self) -> dict[str, np.ndarray]:
        self.flush()
        lengths = [len(sequence) for sequence in self.sequences]
        ids = np.concatenate(self.sequences) if self.sequences else np.zeros(0, dtype=np.int32)
        return {"ids": ids, "offsets": np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])}


def _write(
    folder: Path, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, validation_share: float
) -> None:
    cls, sep = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
    packers = {split: _Packer(length - 2, cls, sep) for split in _SPLITS}
    for document in _split_documents(corpus.documents(), validation_share):
        for split, sentences in document.items():
            for sentence in _encode(sentences, tokenizer):
                packers[split].add(sentence)
            packers[split].end_document()
    keep_arrays(folder, {f"{split}.{name}": a for split in _SPLITS for name, a in packers[split].arrays().items()})


def _split_documents(documents: Iterable[list[str]], share: float) -> Iterator[dict[str, list[str]]]:
    """Each document's sentences, `share` of all held out: the end of a long document, now and then a whole short one.

    A short one is never cut: the second of two sentences is not what the first one is.
    """
    owed = 0.0
    for sentences in documents:
        owed += share * len(sentences)
        whole = len(sentences) if owed >= len(sentences) else 0
        held_out = min(int(owed), len(sentences)) if share * len(sentences) >= 1 else whole
        owed -= held_out
        kept = len(sentences) - held_out
        yield {"train": sentences[:kept], "validation": sentences[kept:]}


def _encode(sentences: list[str], tokenizer: PreTrainedTokenizerBase) -> Iterator[list[int]]:
    for start in range(0, len(sentences), SENTENCES_AT_ONCE):
        some = sentences[start : start + SENTENCES_AT_ONCE]
        # verbose: not a word about sentences longer than the tokenizer's model takes; they are cut here.
        yield from tokenizer(some, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]


def _load(folder: Path, split: str) -> PackedText:
    ids, offsets = (np.load(folder / f"{split}.{name}.npy", mmap_mode="r") for name in ("ids", "offsets"))
    text = PackedText(ids, offsets)
    if offsets[0] != 0 or offsets[-1] != len(ids) or (text.lengths < 1).any():
        raise ValueError(f"offsets of '{folder}/{split}' do not lead through its tokens")
    return text
