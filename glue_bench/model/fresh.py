"""Fresh weights: the names of the modules and a seed decide every random number of a start.

So `glue-bench convert`, a sweep and its workers start an arm with the same bits, and modules that two arms share start
equal. Only an arm from scratch that is not pretrained is drawn as a whole, by one stream of the cell's seed.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    """A model on the CPU whose weights depend on `seed`, and on the name of the module that they are of, alone.

    transformers initialises modules only: a bare `nn.Parameter` of a variant keeps what `__init__` drew, and so depends
    on the draws before it, too.
    """
    done: set[int] = set()
    with drawing(seed):
        model = kind(config)
        for name, module in model.named_modules():
            own = [
                parameter
                for parameter in module.parameters(recurse=False)
                if id(parameter) not in done
            ]
            if (
                own and id(getattr(module, "weight", None)) not in done
            ):  # as is a decoder that is tied to the words
                done.update(map(id, own))
                seed_generators(seed_of(seed, name))
                model._init_weights(module)
    return model


def unfilled(kind: type[Model], config: EncoderConfig) -> Model:
    """A model on the CPU for weights that replace every parameter (but a plugin's): saves 0.15 s a cell of MiniLM."""
    with no_init_weights() if VARIANTS.get(config.variant) in OURS else nullcontext():
        return kind(config)


def on_meta(kind: type[Model], config: EncoderConfig) -> Model:
    """A model without numbers, for its names and shapes; a plugin's `__init__` moves no generator of the caller."""
    with drawing(), torch.device("meta"):
        return kind(config)


@contextmanager
def drawing(seed: int = SEED) -> Iterator[None]:
    """In this block random numbers of the CPU follow from `seed`; after it, all generators are as they were."""
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        seed_generators(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """In this block torch computes with so many CPU threads: sums and factorisations round by their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seed_of(*parts: object) -> int:
    """63 bits that these parts decide."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def seed_generators(seed: int) -> None:
    """Seed those of torch on the CPU, of numpy and of Python."""
    torch.default_generator.manual_seed(
        seed
    )  # torch.manual_seed would reseed accelerators, whose state is not kept
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
