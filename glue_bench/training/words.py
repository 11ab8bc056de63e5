"""Where words begin in a sequence of word pieces; and examples whose words stand in a random order."""

from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.training.tokenizers import vocabulary_size
from glue_bench.training.tokens import TokenisedSplit, TokenisedTask

SUFFIX = "_shuffled"
SEED = 0  # one order for all arms, rates and seeds with the same tokenizer
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
        joins = np.array([is_wordlike(token) for token in tokens])
        return cls(special | np.array(starts), joins & ~special, separates, ~special)

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


def is_wordlike(token: str) -> bool:
    """Whether a token has a letter or a digit; bytes of other scripts count as letters."""
    bare = token.lstrip("".join(_STARTS)).removeprefix(_CONTINUES)
    return any(character.isalnum() or ord(character) > 127 for character in bare)


def with_shuffled(tokens: TokenisedTask, names: tuple[str, ...], rule: WordRule) -> TokenisedTask:
    """The task with a second form of these splits, called as they are and SUFFIX."""
    moved = {name + SUFFIX: shuffled(tokens.splits[name], rule) for name in names if name in tokens.splits}
    return replace(tokens, splits={**tokens.splits, **moved})


def shuffled(split: TokenisedSplit, rule: WordRule) -> TokenisedSplit:
    """The same examples; the words of each text change places and stay whole, separators and segments stay.

    It shows what a score keeps without the order of words (Sinha et al. 2021).
    """
    places, generator = np.arange(len(split.ids)), np.random.default_rng(SEED)
    for first, stop in zip(split.offsets[:-1], split.offsets[1:], strict=True):
        for words in rule.stretches(np.asarray(split.ids[first:stop])):
            order = generator.permutation(len(words))
            moved = [place for word in order for place in range(*words[word])]
            places[first + words[0][0] : first + words[-1][1]] = first + np.array(moved)
    return replace(split, ids=np.asarray(split.ids)[places])
