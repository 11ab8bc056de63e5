"""Where words begin in a sequence of word pieces."""

from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.training.tokenizers import vocabulary_size

_STARTS = ("Ġ", "▁")  # what a word begins with in byte-level and in SentencePiece vocabularies
_CONTINUES = "##"  # what goes on with a word in WordPiece vocabularies

Span = tuple[int, int]
"""A word's pieces in a sequence: [first, stop)."""


@dataclass(frozen=True)
class WordRule:
    """What a vocabulary says of each token: bool (vocabulary,).

    `starts` is true where a token begins a word; `joins` where one without such a mark goes on with a word that was
    begun: letters and digits do, a punctuation mark is a word of its own. `separates` is true of [CLS], [SEP], padding
    and [MASK], between which a text lies; `regular` of what is no special token.
    """

    starts: np.ndarray
    joins: np.ndarray
    separates: np.ndarray
    regular: np.ndarray

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> "WordRule":
        """The rule of a WordPiece, byte-level or SentencePiece vocabulary; in any other, each token is a word."""
        size = vocabulary_size(tokenizer)
        tokens = [token or "" for token in tokenizer.convert_ids_to_tokens(list(range(size)))]
        special = np.zeros(size, dtype=bool)
        special[list(tokenizer.all_special_ids)] = True
        separates = special.copy()
        if tokenizer.unk_token_id is not None:
            separates[tokenizer.unk_token_id] = False  # it stands for a word
        # The mark itself is in many vocabularies.
        mark = next((mark for mark in _STARTS if sum(token.startswith(mark) for token in tokens) > 1), None)
        starts = [token.startswith(mark) if mark else not token.startswith(_CONTINUES) for token in tokens]
        bare = [token.lstrip("".join(_STARTS)).removeprefix(_CONTINUES) for token in tokens]
        # Bytes of other scripts count as letters.
        joins = [any(character.isalnum() or ord(character) > 127 for character in token) for token in bare]
        return cls(special | np.array(starts), np.array(joins) & ~special, separates, ~special)

    def stretches(self, ids: np.ndarray) -> list[list[Span]]:
        """The words of a sequence (l,), in order, those between two separators in a list of their own."""
        inside = ~self.separates[ids]
        before = np.concatenate([[False], inside[:-1] & self.joins[ids[:-1]]])
        begins = inside & (self.starts[ids] | ~self.joins[ids] | ~before)
        edges = np.flatnonzero(begins | ~inside).tolist()
        found: list[list[Span]] = [[]]
        for first, stop in zip(edges, [*edges[1:], len(ids)], strict=True):
            if inside[first]:
                found[-1].append((first, stop))
            elif found[-1]:
                found.append([])
        return [words for words in found if words]
