"""Fresh weights: the names of the modules and a seed decide every random number of a start.

So `glue-bench convert`, a sweep and its workers start an arm with the same bits. Modules that two
arms share start equal. Only an arm from scratch without a pretraining is drawn as a whole, from one
stream of random numbers with the cell's seed.
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

GRAFT_SEED = 0
"""The seed of grafts, and the default seed."""
Model = TypeVar("Model", bound=PreTrainedModel)


def fresh(kind: type[Model], config: EncoderConfig, seed: int = GRAFT_SEED) -> Model:
    """Build a model on the CPU whose weights depend on `seed` and the names of modules alone.

    transformers initialises modules only. A bare `nn.Parameter` of a variant keeps the numbers that
    `__init__` drew, so it also depends on earlier draws.
    """
    drawn_ids: set[int] = set()
    with fixed_seed(seed):
        model = kind(config)
        for name, module in model.named_modules():
            new_ids: set[int] = set()
            for parameter in module.parameters(recurse=False):
                if id(parameter) not in drawn_ids:
                    new_ids.add(id(parameter))
            # A decoder shares its weight with the words, which are drawn already.
            is_tied = id(getattr(module, "weight", None)) in drawn_ids
            if new_ids and not is_tied:
                drawn_ids |= new_ids
                seed_generators(seed_of(seed, name))
                model._init_weights(module)
    return model


def build_unfilled(kind: type[Model], config: EncoderConfig) -> Model:
    """Build a model on the CPU whose parameters (except a plugin's) will be replaced.

    Not drawing them saves 0.15 s for each cell of MiniLM.
    """
    is_ours = VARIANTS.get(config.variant) in OURS
    with no_init_weights() if is_ours else nullcontext():
        return kind(config)


def on_meta(kind: type[Model], config: EncoderConfig) -> Model:
    """Build a model without numbers, for its names and shapes.

    A plugin's `__init__` moves no generator of the caller.
    """
    with fixed_seed(), torch.device("meta"):
        return kind(config)


@contextmanager
def fixed_seed(seed: int = GRAFT_SEED) -> Iterator[None]:
    """In this block random numbers of the CPU follow from `seed`.

    After it, all generators are as they were.
    """
    numpy_state = np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        seed_generators(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """In this block torch computes with a number of CPU threads.

    The number of threads changes the rounding of sums and factorisations.
    """
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)


def seed_of(*parts: object) -> int:
    """Return a seed of 63 bits that these parts decide."""
    text = " ".join(map(str, parts))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def seed_generators(seed: int) -> None:
    """Seed the generators of torch on the CPU, of numpy and of Python."""
    # torch.manual_seed would reseed accelerators, whose state is not kept.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
