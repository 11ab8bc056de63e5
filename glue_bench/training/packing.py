"""FULL-SENTENCES packing (RoBERTa, Liu et al. 2019, section 4.2), kept in memory-mapped arrays."""

import random
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import IO, Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError
from glue_bench.files import cache_folder, kept_or_made
from glue_bench.training.corpus import Corpus
from glue_bench.training.tokenizers import encode, tokenizer_digest, vocabulary_size

LAYOUT_VERSION = 2  # of the sequences: a part of every pretraining's id
FILES_VERSION = 3  # of the arrays in the cache
SENTENCES_AT_ONCE = 2_000
PIECE_TOKENS = 512
_SPLITS = ("train", "validation")
_Sentence = tuple[str, int, list[int]]
"""Its split, the number of its document, and its tokens."""


@dataclass(frozen=True)
class PackedText:
    """Sequences [CLS] ... [SEP], end to end: `ids` (tokens,), sequence i is [offsets[i], offsets[i + 1]).

    Document `documents[d]` of the corpus is [starts[d], starts[d + 1]) of the tokens; both (documents of this split,),
    by default one document. `cuts` (sequences,) says where in a sequence its second segment begins, 0 where it has one
    segment; None where all have.
    """

    ids: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    documents: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    cuts: np.ndarray | None = None

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence, special ones included."""
        return np.diff(self.offsets)

    @cached_property
    def pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Where pieces begin among the tokens, and the number of each one's document: int64 (pieces,) both.

        A piece is as many whole sequences of one document as have together at most PIECE_TOKENS tokens, or a part of
        a longer one.
        """
        bounds = np.union1d(self.offsets[:-1], self.starts)
        owners = self.documents[np.searchsorted(self.starts, bounds, side="right") - 1]
        starts: list[int] = []
        documents: list[int] = []
        stops = [*bounds[1:].tolist(), len(self.ids)]
        for run, stop, document in zip(bounds.tolist(), stops, owners.tolist(), strict=True):
            for start in range(run, stop, PIECE_TOKENS):
                end = min(start + PIECE_TOKENS, stop)
                if not starts or document != documents[-1] or end - starts[-1] > PIECE_TOKENS:
                    starts.append(start)
                    documents.append(document)
        return np.array(starts, dtype=np.int64), np.array(documents, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def pack(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, validation_share: float, *, pairs: bool = False
) -> dict[str, PackedText]:
    """The corpus as `train` and `validation` sequences of at most `length` tokens, cached.

    `validation_share` of the sentences is held out: the last ones of long documents, and some short ones whole. With
    `pairs` half of the sequences are cut at a sentence into [CLS] A [SEP] B [SEP], as BERT's.

    Raises:
        UserError: the corpus is too small to hold out a sequence, or none can be cut, or the tokenizer knows nothing
            of it, or has no [CLS], [SEP] or [MASK].
    """
    _check_special(tokenizer)
    parts = (f"v{FILES_VERSION}", corpus.digest[:16], tokenizer_digest(tokenizer)[:16], length, validation_share)
    kind = [word for word, applies in (("blank", corpus.blank_lines), ("pairs", pairs)) if applies]
    folder = cache_folder() / "corpora" / "-".join(map(str, (*parts, *kind)))
    packed = kept_or_made(
        folder,
        read=lambda place: {split: _load(place, split, pairs) for split in _SPLITS},
        make=lambda place: _write(place, corpus, tokenizer, length, validation_share, pairs),
    )
    empty = [split for split, text in packed.items() if not len(text)]
    if empty:
        raise UserError(f"corpus '{corpus.name}' is too small: nothing left for {empty[0]}; add text")
    if np.isin(packed["validation"].ids, tokenizer.all_special_ids).all():
        raise UserError(f"the tokenizer knows no word of corpus '{corpus.name}' (validation part); name another")
    cuts = packed["train"].cuts
    if cuts is not None and not cuts.any():
        raise UserError(
            f"pretraining.segments: pairs, but no sequence of corpus '{corpus.name}' has two sentences to cut between; "
            "give each sentence a line or a full stop, raise pretraining.length, or leave segments out"
        )
    return packed


def pack_beginning(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, tokens: int) -> PackedText:
    """The sequences of at most `length` tokens that a text begins with, as many as have `tokens`; nothing is cached.

    Raises:
        UserError: as `pack`, of the whole text.
    """
    _check_special(tokenizer)
    arrays = {name: array("q") for name in _names(pairs=False)}
    packer = _Packer(arrays, tokenizer, length, pairs=False)
    for _, document, ids in _encoded((("", *numbered) for numbered in corpus.numbered()), tokenizer):
        packer.add(document, ids)
        tokens -= len(ids)
        if tokens <= 0:
            break
    packer.flush()
    text = PackedText(**{name: np.array(values) for name, values in arrays.items()})
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


class _Growing:
    """A one-dimensional .npy file of a length that is not known before."""

    def __init__(self, path: Path, kind: type[np.generic]) -> None:
        self.file: IO[bytes] = path.open("wb")
        self.kind, self.count = np.dtype(kind), 0
        self._head()

    def __len__(self) -> int:
        return self.count

    def extend(self, values: Iterable[int]) -> None:
        added = array(self.kind.char, values)
        self.file.write(added.tobytes())
        self.count += len(added)

    def close(self) -> None:
        self.file.seek(0)
        self._head()
        self.file.close()

    def _head(self) -> None:
        # numpy leaves room in a header for any length, so that the second one has the size of the first.
        header = {"descr": self.kind.str, "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self.file, header)


def _names(*, pairs: bool) -> list[str]:
    """The arrays of a PackedText."""
    return ["ids", "offsets", "starts", "documents", *(["cuts"] if pairs else [])]


class _Packer:
    """Fills sequences with whole sentences and adds them to arrays; a sentence longer than a sequence is cut."""

    def __init__(
        self, arrays: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, length: int, *, pairs: bool
    ) -> None:
        self.arrays, self.pairs, self.room = arrays, pairs, length - 2 - pairs
        self.cls, self.sep = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
        self.document, self.cut = -1, 0
        self.pending: list[int] = []
        self.sentences: list[int] = []  # where they begin in `pending`
        self.begun: list[tuple[int, int]] = []  # where documents begin in `pending`, and their numbers
        self.random = random.Random(0)
        arrays["offsets"].extend([0])

    def add(self, document: int, sentence: list[int]) -> None:
        # The next document goes on in the same sequence, behind one more separator.
        if (
            document != self.document
            and self.pending
            and self.pending[-1] != self.sep
            and len(self.pending) < self.room
        ):
            self.pending.append(self.sep)
        for start in range(0, len(sentence), self.room):
            piece = sentence[start : start + self.room]
            if len(self.pending) + len(piece) > self.room:
                self.flush()
            if document != self.document:
                self.begun.append((len(self.pending), document))
                self.document = document
            self.sentences.append(len(self.pending))
            self.pending += piece

    def flush(self) -> None:
        """Write the sequence that has been filled so far, if there is anything in it."""
        while self.pending and self.pending[-1] == self.sep:
            self.pending.pop()
        if self.pending:
            if self.pairs:
                self.arrays["cuts"].extend([self._cut()])
            ids = self.arrays["ids"]
            # A document that begins a sequence has its [CLS], too.
            self.arrays["starts"].extend([len(ids) + (place and place + 1) for place, _ in self.begun])
            self.arrays["documents"].extend([number for _, number in self.begun])
            ids.extend([self.cls, *self.pending, self.sep])
            self.arrays["offsets"].extend([len(ids)])
        self.pending, self.sentences, self.begun = [], [], []

    def _cut(self) -> int:
        """Cut the sequence at a sentence, unless half of all are cut already; where its second segment begins."""
        places = [place for place in self.sentences if 0 < place < len(self.pending)]
        if not places or 2 * self.cut > len(self.arrays["cuts"]):
            return 0
        self.cut += 1
        place = self.random.choice(places)
        if self.pending[place - 1] != self.sep:
            self.pending.insert(place, self.sep)
            self.begun = [(start + (start >= place), number) for start, number in self.begun]
            place += 1
        return place + 1  # behind [CLS]


def _write(
    folder: Path, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, validation_share: float, pairs: bool
) -> None:
    kinds = {"ids": np.uint16 if vocabulary_size(tokenizer) <= 2**16 else np.int32, "cuts": np.uint16}
    arrays = {
        split: {name: _Growing(_path(folder, split, name), kinds.get(name, np.int64)) for name in _names(pairs=pairs)}
        for split in _SPLITS
    }
    packers = {split: _Packer(arrays[split], tokenizer, length, pairs=pairs) for split in _SPLITS}
    for split, document, ids in _encoded(_split(corpus, validation_share), tokenizer):
        packers[split].add(document, ids)
    for split in _SPLITS:
        packers[split].flush()
        for grown in arrays[split].values():
            grown.close()


def _encoded(sentences: Iterator[tuple[str, int, str]], tokenizer: PreTrainedTokenizerBase) -> Iterator[_Sentence]:
    while some := list(islice(sentences, SENTENCES_AT_ONCE)):
        encoded = encode(tokenizer, [text for _, _, text in some])
        yield from ((split, document, ids) for (split, document, _), ids in zip(some, encoded, strict=True))


def _split(corpus: Corpus, share: float) -> Iterator[tuple[str, int, str]]:
    """Each sentence with its split and the number of its document."""
    sizes = array("q")
    for document, _ in corpus.numbered():
        if document == len(sizes):
            sizes.append(0)
        sizes[document] += 1
    kept = chain.from_iterable(_held_out(sizes, share))
    for (document, sentence), held_out in zip(corpus.numbered(), kept, strict=True):
        yield "validation" if held_out else "train", document, sentence


def _held_out(sizes: Iterable[int], share: float) -> Iterator[Iterator[bool]]:
    """Which sentences of documents of these sizes are held out, `share` of all.

    They are the end of a long document, and now and then a whole short one. A short document is
    never cut: the second of two sentences is not what the first one is.
    """
    owed = 0.0
    for size in sizes:
        owed += share * size
        whole = size if owed >= size else 0
        held_out = min(int(owed), size) if share * size >= 1 else whole
        owed -= held_out
        yield chain(repeat(False, size - held_out), repeat(True, held_out))


def _load(folder: Path, split: str, pairs: bool) -> PackedText:
    text = PackedText(**{name: np.load(_path(folder, split, name), mmap_mode="r") for name in _names(pairs=pairs)})
    if text.offsets[0] != 0 or text.offsets[-1] != len(text.ids) or (text.lengths < 1).any():
        raise ValueError(f"offsets of '{folder}/{split}' do not lead through its tokens")
    return text


def _path(folder: Path, split: str, name: str) -> Path:
    return folder / f"{split}.{name}.npy"
