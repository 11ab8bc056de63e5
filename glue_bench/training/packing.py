"""FULL-SENTENCES packing (RoBERTa, Liu et al. 2019, section 4.2), kept in memory-mapped arrays.

With room for ten tokens, the documents "a b c d. e f g h." and "i j." become two sequences. The
first one has no room for the third sentence. A [SEP] separates two documents of one sequence:

    [CLS] a b c d e f g h [SEP]
    [CLS] i j [SEP] ...
"""

import random
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError
from glue_bench.files import cache_folder, read_or_make
from glue_bench.training.corpus import Corpus
from glue_bench.training.tokenizers import encode, tokenizer_digest, vocabulary_size
from glue_bench.training.tokens import Ragged

LAYOUT_VERSION = 2  # how texts become sequences; a part of pretraining ids and the cache's key
SENTENCES_AT_ONCE = 2_000
PIECE_TOKENS = 512
TEXT_SPLITS = ("train", "validation")

ArrayKinds = Mapping[str, type[np.generic]]
"""The arrays of a PackedText by name, with the type of their numbers."""


@dataclass(frozen=True, eq=False)
class PackedText(Ragged):
    """The sequences [CLS] ... [SEP] of one split.

    - `starts` (documents of this split,): the index of the first token of each document, in order.
    - `documents` (documents of this split,): the number that each document has in the corpus. By
      default all tokens belong to one document.
    - `cuts` (sequences,): the index in each sequence at which its second segment begins, or 0 if
      the sequence has one segment. `cuts` is None if every sequence has one segment.
    """

    starts: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    documents: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    cuts: np.ndarray | None = None

    @cached_property
    def pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """The index of each piece's first token, and the number of each piece's document.

        Both are int64 (pieces,). A piece lies in one document and has at most PIECE_TOKENS tokens.
        It is one or more whole sequences, or a part of a sequence that is longer.
        """
        bounds = np.union1d(self.offsets[:-1], self.starts)
        owners = self.documents[np.searchsorted(self.starts, bounds, side="right") - 1]
        begins = bounds.tolist()
        stops = [*begins[1:], len(self.ids)]
        starts: list[int] = []
        documents: list[int] = []
        for begin, stop, document in zip(begins, stops, owners.tolist(), strict=True):
            for start in range(begin, stop, PIECE_TOKENS):
                end = min(start + PIECE_TOKENS, stop)
                if not starts or document != documents[-1] or end - starts[-1] > PIECE_TOKENS:
                    starts.append(start)
                    documents.append(document)
        return np.array(starts, dtype=np.int64), np.array(documents, dtype=np.int64)


def pack(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    validation_share: float,
    *,
    pairs: bool = False,
) -> dict[str, PackedText]:
    """Pack a corpus into `train` and `validation` sequences. They are kept in the cache.

    Args:
        corpus: the text.
        tokenizer: one with [CLS], [SEP] and [MASK].
        length: the largest number of tokens of a sequence.
        validation_share: the share of the sentences that is held out. The last sentences of long
            documents are held out, and some short documents as a whole.
        pairs: whether half of the sequences are cut at a sentence into [CLS] A [SEP] B [SEP], as
            in BERT.

    Raises:
        UserError: the corpus is too small to hold out a sequence; or `pairs` is set and no
            sequence can be cut; or the tokenizer knows no word of the corpus; or the tokenizer has
            no [CLS], [SEP] or [MASK].
    """
    packing = Packing(corpus, tokenizer, length, validation_share, pairs)
    packing.check_tokenizer()
    return read_or_make(cache_folder() / "corpora" / packing.key, packing.make, packing.read)


@dataclass(frozen=True)
class Packing:
    """The arguments of `pack`, with the steps of packing as methods."""

    corpus: Corpus
    tokenizer: PreTrainedTokenizerBase
    length: int
    validation_share: float
    pairs: bool

    @property
    def key(self) -> str:
        """The name of the sequences in the cache."""
        parts = (
            LAYOUT_VERSION,
            self.corpus.digest[:16],
            tokenizer_digest(self.tokenizer)[:16],
            self.length,
            self.validation_share,
            self.corpus.blank_lines,
            self.pairs,
        )
        return "-".join(map(str, parts))

    @property
    def kinds(self) -> ArrayKinds:
        """The number type of each array in the cache, by the name of the array."""
        return {
            "ids": np.uint16 if vocabulary_size(self.tokenizer) <= 2**16 else np.int32,
            "cuts": np.uint16,
            "offsets": np.int64,
            "starts": np.int64,
            "documents": np.int64,
        }

    def check_tokenizer(self) -> None:
        """Raise UserError if the tokenizer lacks a special token."""
        token_ids = {
            "[CLS]": self.tokenizer.cls_token_id,
            "[SEP]": self.tokenizer.sep_token_id,
            "[MASK]": self.tokenizer.mask_token_id,
        }
        missing = [name for name, token_id in token_ids.items() if token_id is None]
        if missing:
            raise UserError(
                f"the tokenizer has no {' and no '.join(missing)} token; "
                "masked-LM pretraining needs one, name another"
            )

    def make(self, folder: Path) -> None:
        """Write the arrays into an empty folder."""
        kinds = self.kinds
        with self.corpus.unchanged():
            train_counts = array("q", count_train(self._document_sizes(), self.validation_share))
            for split in TEXT_SPLITS:
                sentences = encode_sentences(self.corpus, train_counts, split, self.tokenizer)
                sequences = pack_sequences(sentences, self.tokenizer, self.length, pairs=self.pairs)
                if not write_arrays(sequences, folder, split, kinds):
                    raise UserError(
                        f"corpus '{self.corpus.name}' is too small: "
                        f"nothing left for {split}; add text"
                    )
        self._check_text(self.read(folder))

    def _document_sizes(self) -> Iterator[int]:
        for _, sentences in groupby(self.corpus.numbered(), itemgetter(0)):
            yield sum(1 for _ in sentences)

    def _check_text(self, text: Mapping[str, PackedText]) -> None:
        """Refuse a text of unknown words, and one whose sequences cannot be cut into pairs."""
        name = self.corpus.name
        if np.isin(text["validation"].ids, self.tokenizer.all_special_ids).all():
            raise UserError(
                f"the tokenizer knows no word of corpus '{name}'; name another with `tokenizer`"
            )
        if self.pairs and not np.any(text["train"].cuts):
            raise UserError(
                f"pretraining.segments: pairs, but no sequence of corpus '{name}' "
                "has two sentences to cut between; end each sentence with a full stop, "
                "raise pretraining.length, or leave segments out"
            )

    def read(self, folder: Path) -> dict[str, PackedText]:
        """Map the arrays of a folder into memory."""
        kinds = dict(self.kinds)
        if not self.pairs:
            del kinds["cuts"]
        texts = {}
        for split in TEXT_SPLITS:
            arrays = {
                name: np.memmap(folder / f"{split}.{name}", kind, "r")
                for name, kind in kinds.items()
            }
            texts[split] = PackedText(**arrays)
        return texts


def count_train(sizes: Iterable[int], share: float) -> Iterator[int]:
    """Yield how many sentences of each document are to train on.

    The end of each long document is held out, and some short documents as a whole.

    Args:
        sizes: how many sentences each document has.
        share: the share of all sentences that is held out.
    """
    owed = 0.0
    for size in sizes:
        owed += share * size
        if share * size >= 1:
            held_out = min(int(owed), size)
        elif owed >= size:
            held_out = size
        else:
            held_out = 0
        owed -= held_out
        yield size - held_out


def encode_sentences(
    corpus: Corpus, train_counts: Iterable[int], split: str, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[int, list[int]]]:
    """Yield the tokens of each sentence of one split, after the number of its document.

    Args:
        corpus: the text of both splits.
        train_counts: how many sentences of each document are to train on; the rest is validation.
        split: `train` or `validation`.
        tokenizer: makes the tokens.
    """
    documents = zip(groupby(corpus.numbered(), itemgetter(0)), train_counts, strict=True)
    sentences = chain.from_iterable(
        islice(document, count) if split == "train" else islice(document, count, None)
        for (_, document), count in documents
    )
    while chunk := list(islice(sentences, SENTENCES_AT_ONCE)):
        numbers, texts = zip(*chunk, strict=True)
        yield from zip(numbers, encode(tokenizer, list(texts)), strict=True)


@dataclass
class Filling:
    """A sequence that is being filled.

    - `tokens`: the tokens of the sequence without its [CLS] and its last [SEP].
    - `sentences`: the index in `tokens` at which each sentence begins.
    - `documents`: for each document, the index in `tokens` at which it begins, and its number.
    - `cut`: the index at which the second segment begins, counted from [CLS]; 0 if there is none.
    """

    tokens: list[int] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    documents: list[tuple[int, int]] = field(default_factory=list)
    cut: int = 0

    def inner_sentences(self) -> list[int]:
        """Return the starts of sentences that have tokens before and after the start."""
        return [place for place in self.sentences if 0 < place < len(self.tokens)]

    def cut_at(self, place: int, sep: int) -> None:
        """Begin the second segment at the sentence that starts at `place`, after a separator."""
        if self.tokens[place - 1] != sep:
            self.tokens.insert(place, sep)
            self.documents = [
                (start + 1 if start >= place else start, number) for start, number in self.documents
            ]
            place += 1
        self.cut = place + 1


def pack_sequences(
    sentences: Iterable[tuple[int, list[int]]],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    *,
    pairs: bool,
) -> Iterator[Filling]:
    """Yield the sequences [CLS] ... [SEP] of a text.

    Args:
        sentences: the tokens of each sentence, after the number of its document.
        tokenizer: gives the ids of [CLS] and [SEP].
        length: the largest number of tokens of a sequence.
        pairs: whether half of the sequences are cut. A sequence of one sentence cannot be cut.
    """
    cls = int(tokenizer.cls_token_id)
    sep = int(tokenizer.sep_token_id)
    room = length - 3 if pairs else length - 2
    generator = random.Random(0)
    sequences = 0
    cut_sequences = 0
    for filling in fill_sequences(sentences, sep, room):
        while filling.tokens and filling.tokens[-1] == sep:
            filling.tokens.pop()
        if not filling.tokens:
            continue
        places = filling.inner_sentences()
        if pairs and places and 2 * cut_sequences <= sequences:
            filling.cut_at(generator.choice(places), sep)
            cut_sequences += 1
        sequences += 1
        filling.tokens = [cls, *filling.tokens, sep]
        yield filling


def fill_sequences(
    sentences: Iterable[tuple[int, list[int]]], sep: int, room: int
) -> Iterator[Filling]:
    """Yield sequences with as many whole sentences as there is room for, in order.

    A sentence that is longer than a sequence is split. The next document begins in the same
    sequence, after one separator.

    Args:
        sentences: the tokens of each sentence, after the number of its document.
        sep: the id of the separator.
        room: the largest number of tokens of a sequence, without its [CLS] and its last [SEP].
    """
    current = Filling()
    last_document = -1
    for document, sentence in sentences:
        is_next = document != last_document
        if is_next and 0 < len(current.tokens) < room and current.tokens[-1] != sep:
            current.tokens.append(sep)
        for start in range(0, len(sentence), room):
            part = sentence[start : start + room]
            if len(current.tokens) + len(part) > room:
                yield current
                current = Filling()
            if document != last_document:
                current.documents.append((len(current.tokens), document))
                last_document = document
            current.sentences.append(len(current.tokens))
            current.tokens += part
    yield current


def write_arrays(sequences: Iterable[Filling], folder: Path, split: str, kinds: ArrayKinds) -> int:
    """Write sequences as the arrays of a PackedText, one file for each array.

    Args:
        sequences: the sequences, with their [CLS] and [SEP].
        folder: the folder of the files.
        split: the first part of the files' names.
        kinds: the arrays with their types.

    Returns:
        How many tokens there are.
    """
    tokens = 0
    with ExitStack() as stack:
        files = {}
        for name in kinds:
            files[name] = stack.enter_context((folder / f"{split}.{name}").open("wb"))

        def put(**values: list[int]) -> None:
            for name, numbers in values.items():
                files[name].write(array(np.dtype(kinds[name]).char, numbers))

        put(offsets=[0])
        for sequence in sequences:
            # The [CLS] of a sequence belongs to the document that begins the sequence.
            put(starts=[tokens + (place and place + 1) for place, _ in sequence.documents])
            tokens += len(sequence.tokens)
            put(
                documents=[number for _, number in sequence.documents],
                ids=sequence.tokens,
                cuts=[sequence.cut],
                offsets=[tokens],
            )
    return tokens
