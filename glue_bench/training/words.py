"""Where the words of a tokenized text begin."""

from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.training.tokenizers import vocabulary_size

WORD_START_MARKS = ("Ġ", "▁")  # words begin with one in byte-level and SentencePiece vocabularies
CONTINUATION_MARK = "##"  # mark of a token that continues a word in WordPiece vocabularies
Span = tuple[int, int]
"""The places of a word's tokens in a sequence: [first, stop)."""


@dataclass(frozen=True)
class WordRule:
    """The role of each token of a vocabulary in words: bool (vocabulary,).

    - `starts`: the token begins a word.
    - `joins`: the token continues a word, if it has no mark of a start. Letters and digits do; a
      punctuation mark is a word of its own.
    - `separates`: [CLS], [SEP], padding and [MASK], between which a text lies.
    - `regular`: the token is no special token.
    """

    starts: np.ndarray
    joins: np.ndarray
    separates: np.ndarray
    regular: np.ndarray

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> "WordRule":
        """Return the rule of a WordPiece, byte-level or SentencePiece vocabulary.

        In any other vocabulary each token is a word.
        """
        size = vocabulary_size(tokenizer)
        tokens = [token or "" for token in tokenizer.convert_ids_to_tokens(list(range(size)))]
        special = np.zeros(size, dtype=bool)
        special[list(tokenizer.all_special_ids)] = True
        separates = special.copy()
        if tokenizer.unk_token_id is not None:
            separates[tokenizer.unk_token_id] = False  # [UNK] stands for a word

        mark = start_mark(tokens)
        starts: list[bool] = []
        joins: list[bool] = []

        for token in tokens:
            if mark is None:
                starts.append(not token.startswith(CONTINUATION_MARK))
            else:
                starts.append(token.startswith(mark))
            bare = token.lstrip("".join(WORD_START_MARKS)).removeprefix(CONTINUATION_MARK)
            joins.append(has_letter(bare))

        return cls(
            starts=special | np.array(starts),
            joins=np.array(joins) & ~special,
            separates=separates,
            regular=~special,
        )

    def stretches(self, ids: np.ndarray) -> list[list[Span]]:
        """Return the words of a sequence (l,), in order, with a list for each stretch of text.

        Separators part stretches.
        """
        is_text = ~self.separates[ids]
        follows_word = np.concatenate([[False], is_text[:-1] & self.joins[ids[:-1]]])
        begins = is_text & (self.starts[ids] | ~self.joins[ids] | ~follows_word)
        edges = np.flatnonzero(begins | ~is_text).tolist()
        stretches: list[list[Span]] = [[]]
        for first, stop in zip(edges, [*edges[1:], len(ids)], strict=True):
            if is_text[first]:
                stretches[-1].append((first, stop))
            elif stretches[-1]:
                stretches.append([])
        return [words for words in stretches if words]


def start_mark(tokens: list[str]) -> str | None:
    """Return the mark with which the vocabulary's words begin, if it has one."""
    for mark in WORD_START_MARKS:
        # Many vocabularies without marks have the mark itself as a token.
        if sum(token.startswith(mark) for token in tokens) > 1:
            return mark
    return None


def has_letter(text: str) -> bool:
    """Return whether a text has a letter or a digit. Bytes of other scripts count as letters."""
    return any(character.isalnum() or ord(character) > 127 for character in text)
