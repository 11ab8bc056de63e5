"""Fresh weights: every random number of a start, decided by facts that are part of the start's identity.

The identity of a cell has the arm's variant and options, the plugin's source, and what the arm starts from: the digest
of its checkpoint or the sizes of fresh weights. A draw follows from these alone, because it is decided by a seed (a
constant for grafts, else the seed of the pretraining or of the cell, which the identity has too) and by the names and
sizes of the modules. What the process has drawn or computed before, the arm's name and the other arms have no part in
it. So `glue-bench convert`, a sweep in one process and its workers start an arm with the same bits.

This is of grafts and pretrained arms. An arm from scratch that is only fine-tuned is drawn as a whole, by one stream of
the cell's seed: it starts with the same bits each time, but does not share those of modules with other arms.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.variants import OURS, VARIANTS

SEED = 0  # of grafts, and of what stands in where no seed is given
Model = TypeVar("Model", bound=PreTrainedModel)


def fresh(kind: type[Model], config: EncoderConfig, seed: int = SEED) -> Model:
    """A model on the CPU with fresh weights, a function of `kind`, `config` and `seed` alone.

    The weights of each module are decided by (seed, its name), so that modules which two arms share start equal. What a
    variant draws in its own `__init__` and transformers does not know how to initialise, such as an `nn.Parameter`, is
    decided by `seed` and by what that `__init__` drew before.
    """
    with drawing(seed):
        model = kind(config)
        _initialise(model, seed)
    return model


def unfilled(kind: type[Model], config: EncoderConfig) -> Model:
    """A model on the CPU whose parameters have no values yet, for weights that replace every one of them.

    To draw numbers that nobody reads took 0.15 s for each cell of all-MiniLM-L6-v2. A plugin's variant is filled
    nevertheless: its `__init__` may draw what no weights replace.
    """
    if VARIANTS.get(config.variant) not in OURS:
        return kind(config)
    with no_init_weights():
        return kind(config)


def on_meta(kind: type[Model], config: EncoderConfig) -> Model:
    """A model without numbers, for its names and shapes; a plugin's `__init__` moves no generator of the caller."""
    with drawing(), torch.device("meta"):
        return kind(config)


@contextmanager
def drawing(seed: int = SEED) -> Iterator[None]:
    """In this block, random numbers of torch on the CPU, of numpy and of Python follow from `seed`.

    After it, the caller's generators are as they were.
    """
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        _seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)


@contextmanager
def one_thread() -> Iterator[None]:
    """In this block torch computes with one thread: sums and factorisations round by the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def number(*parts: object) -> int:
    """63 bits that these parts decide."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def _initialise(model: PreTrainedModel, seed: int) -> None:
    done: set[int] = set()
    for name, module in model.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if id(parameter) not in done]
        if not own or id(getattr(module, "weight", None)) in done:  # a decoder tied to the words
            continue
        done.update(map(id, own))
        _seed(number(seed, name))
        model._init_weights(module)


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed accelerators, whose state is not kept
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
