"""Validation examples with their words in random order: what a score keeps without the order (Sinha et al. 2021)."""

from dataclasses import replace

import numpy as np

from glue_bench.training.tokens import TokenisedSplit, TokenisedTask
from glue_bench.training.words import WordRule

SUFFIX = "_shuffled"
SEED = 0  # one order for all arms, rates and seeds with the same tokenizer


def with_shuffled(tokens: TokenisedTask, names: tuple[str, ...], rule: WordRule) -> TokenisedTask:
    """The task with a second form of these splits, called as they are and SUFFIX."""
    moved = {name + SUFFIX: shuffled(tokens.splits[name], rule) for name in names if name in tokens.splits}
    return replace(tokens, splits={**tokens.splits, **moved})


def shuffled(split: TokenisedSplit, rule: WordRule) -> TokenisedSplit:
    """The same examples; the words of each text change places and stay whole, separators and segments stay."""
    places, generator = np.arange(len(split.ids)), np.random.default_rng(SEED)
    for first, stop in zip(split.offsets[:-1], split.offsets[1:], strict=True):
        for words in rule.stretches(np.asarray(split.ids[first:stop])):
            order = generator.permutation(len(words))
            moved = [place for word in order for place in range(*words[word])]
            places[first + words[0][0] : first + words[-1][1]] = first + np.array(moved)
    return replace(split, ids=np.asarray(split.ids)[places])
