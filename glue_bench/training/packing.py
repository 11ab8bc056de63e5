"""FULL-SENTENCES packing (RoBERTa, Liu et al. 2019, section 4.2), kept in memory-mapped arrays."""

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
from glue_bench.files import cache_folder, kept_or_made
from glue_bench.training.corpus import Corpus
from glue_bench.training.tokenizers import encode, tokenizer_digest, vocabulary_size
from glue_bench.training.tokens import Ragged

LAYOUT_VERSION = 2  # of the sequences: a part of every pretraining's id, and of the cache's key
SENTENCES_AT_ONCE = 2_000
PIECE_TOKENS = 512
SPLITS = ("train", "validation")


@dataclass(frozen=True, eq=False)
class PackedText(Ragged):
    """Sequences [CLS] ... [SEP].

    Document `documents[d]` of the corpus is [starts[d], starts[d + 1]) of the tokens; both (documents of this split,),
    by default one document. `cuts` (sequences,) says where in a sequence its second segment begins, 0 where it has one
    segment; None where all have.
    """

    starts: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    documents: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    cuts: np.ndarray | None = None

    @cached_property
    def pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Where pieces begin among the tokens, and the number of each one's document: int64 (pieces,) both.

        A piece is whole sequences of one document with together at most PIECE_TOKENS tokens, or a part of a longer one.
        """
        bounds = np.union1d(self.offsets[:-1], self.starts)
        owners = self.documents[np.searchsorted(self.starts, bounds, side="right") - 1]
        starts, documents = list[int](), list[int]()
        stops = [*bounds[1:].tolist(), len(self.ids)]
        for run, stop, document in zip(bounds.tolist(), stops, owners.tolist(), strict=True):
            for start in range(run, stop, PIECE_TOKENS):
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
    """The corpus as `train` and `validation` sequences of at most `length` tokens, cached.

    `validation_share` of the sentences is held out: the last ones of long documents, and some short ones whole. With
    `pairs` half of the sequences are cut at a sentence into [CLS] A [SEP] B [SEP], as BERT's.
    Raises UserError where the corpus is too small to hold out a sequence, or none can be cut, or the tokenizer knows
    nothing of it, or has no [CLS], [SEP] or [MASK].
    """
    needed = {
        "[CLS]": tokenizer.cls_token_id,
        "[SEP]": tokenizer.sep_token_id,
        "[MASK]": tokenizer.mask_token_id,
    }
    if missing := [name for name, token_id in needed.items() if token_id is None]:
        has = f"the tokenizer has no {' and no '.join(missing)} token"
        raise UserError(f"{has}; masked-LM pretraining needs one, name another")
    ids = np.uint16 if vocabulary_size(tokenizer) <= 2**16 else np.int32
    kinds = {
        "ids": ids,
        "cuts": np.uint16,
        "offsets": np.int64,
        "starts": np.int64,
        "documents": np.int64,
    }

    def make(folder: Path) -> None:
        with corpus.unchanged():
            sizes = (
                sum(1 for _ in group) for _, group in groupby(corpus.numbered(), itemgetter(0))
            )
            train = array("q", count_train(sizes, validation_share))
            for split in SPLITS:
                chosen = encode_split(corpus, train, split, tokenizer)
                if not write(
                    pack_sequences(chosen, tokenizer, length, pairs), folder, split, kinds
                ):
                    raise UserError(
                        f"corpus '{corpus.name}' is too small: nothing left for {split}; add text"
                    )
        packed = read(folder)
        if np.isin(packed["validation"].ids, tokenizer.all_special_ids).all():
            raise UserError(
                f"the tokenizer knows no word of corpus '{corpus.name}'; name another with `tokenizer`"
            )
        if pairs and not np.any(packed["train"].cuts):
            wrong = f"no sequence of corpus '{corpus.name}' has two sentences to cut between"
            advice = "end each sentence with a full stop, raise pretraining.length, or leave segments out"
            raise UserError(f"pretraining.segments: pairs, but {wrong}; {advice}")

    def read(folder: Path) -> dict[str, PackedText]:
        names = [name for name in kinds if pairs or name != "cuts"]
        return {
            split: PackedText(
                **{name: np.memmap(folder / f"{split}.{name}", kinds[name], "r") for name in names}
            )
            for split in SPLITS
        }

    of = LAYOUT_VERSION, corpus.digest[:16], tokenizer_digest(tokenizer)[:16]
    what = (*of, length, validation_share, corpus.blank_lines, pairs)
    return kept_or_made(cache_folder() / "corpora" / "-".join(map(str, what)), make, read)


def count_train(sizes: Iterable[int], share: float) -> Iterator[int]:
    """How many sentences of each document are to train on; `share` is held out: ends of long ones, some short ones."""
    owed = 0.0
    for size in sizes:
        owed += share * size
        whole = size if owed >= size else 0
        held_out = min(int(owed), size) if share * size >= 1 else whole
        owed -= held_out
        yield size - held_out


def encode_split(
    corpus: Corpus, train: Iterable[int], split: str, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[int, list[int]]]:
    """The tokens of each sentence of one split, with the number of its document."""
    documents = zip(groupby(corpus.numbered(), itemgetter(0)), train, strict=True)
    rest = chain.from_iterable(
        islice(sentences, count) if split == "train" else islice(sentences, count, None)
        for (_, sentences), count in documents
    )
    while some := list(islice(rest, SENTENCES_AT_ONCE)):
        numbers, texts = zip(*some, strict=True)
        yield from zip(numbers, encode(tokenizer, list(texts)), strict=True)


@dataclass
class Filling:
    """A sequence without its [CLS] and last [SEP]: `tokens`, and where in them `sentences` and `documents` begin.

    A document is (place, number). `cut` is where the second segment begins, counted from [CLS].
    """

    tokens: list[int] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    documents: list[tuple[int, int]] = field(default_factory=list)
    cut: int = 0


def pack_sequences(
    sentences: Iterable[tuple[int, list[int]]],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    pairs: bool,
) -> Iterator[Filling]:
    """[CLS] ... [SEP] of at most `length` tokens, with `pairs` every other one cut, as far as there are sentences."""
    cls, sep = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
    draw, count, cut = random.Random(0), 0, 0
    for each in fill_sequences(sentences, sep, length - 2 - pairs):
        while each.tokens and each.tokens[-1] == sep:
            each.tokens.pop()
        if not each.tokens:
            continue
        places = [place for place in each.sentences if 0 < place < len(each.tokens)]
        if pairs and places and 2 * cut <= count:
            place = draw.choice(places)
            if each.tokens[place - 1] != sep:  # a second segment begins behind a separator
                each.tokens.insert(place, sep)
                each.documents = [
                    (start + (start >= place), number) for start, number in each.documents
                ]
                place += 1
            each.cut = place + 1
            cut += 1
        count += 1
        each.tokens = [cls, *each.tokens, sep]
        yield each


def fill_sequences(
    sentences: Iterable[tuple[int, list[int]]], sep: int, room: int
) -> Iterator[Filling]:
    """Whole sentences in order, as many as there is room for; one that is longer than a sequence is parted."""
    current, last = Filling(), -1
    for document, sentence in sentences:
        # The next document goes on in the same sequence, behind one more separator.
        if (
            document != last
            and current.tokens
            and current.tokens[-1] != sep
            and len(current.tokens) < room
        ):
            current.tokens.append(sep)
        for start in range(0, len(sentence), room):
            piece = sentence[start : start + room]
            if len(current.tokens) + len(piece) > room:
                yield current
                current = Filling()
            if document != last:
                current.documents.append((len(current.tokens), document))
                last = document
            current.sentences.append(len(current.tokens))
            current.tokens += piece
    yield current


def write(
    made: Iterable[Filling], folder: Path, split: str, kinds: Mapping[str, type[np.generic]]
) -> int:
    """Write what sequences add to the arrays of a PackedText, a file an array; returns how many tokens there are."""
    tokens = 0
    with ExitStack() as stack:
        files = {
            name: stack.enter_context((folder / f"{split}.{name}").open("wb")) for name in kinds
        }

        def put(**values: list[int]) -> None:
            for name, some in values.items():
                files[name].write(array(np.dtype(kinds[name]).char, some))

        put(offsets=[0])
        for each in made:
            # A document that begins a sequence has its [CLS], too.
            put(starts=[tokens + (place and place + 1) for place, _ in each.documents])
            tokens += len(each.tokens)
            put(
                documents=[number for _, number in each.documents],
                ids=each.tokens,
                cuts=[each.cut],
                offsets=[tokens],
            )
    return tokens
