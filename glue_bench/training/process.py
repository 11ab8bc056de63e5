"""What a call sets in the process that made it, and how all of it is put back when the call ends."""

import faulthandler
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

from glue_bench.model.bars import keep_bars_of_transformers
from glue_bench.model.plugins import keep_plugins
from glue_bench.training.memory import stop_keeping_freed, unfreeze_imports
from glue_bench.training.quiet import keep_bars_of_datasets
from glue_bench.training.runtime import all_threads, settle_anew

Restoring = Iterator[None]
"""A generator that notes how something is, yields, and puts it back."""


@contextmanager
def process_kept(*, reads_data: bool = True) -> Iterator[None]:
    """When this block ends, in whatever way, the process is as it was before the block.

    Everything that the package sets for the whole process is set inside such a block: environment variables, signal
    handlers, levels of loggers, progress bars, torch's threads, objects frozen for the garbage collector,
    the states of `random`, NumPy and torch, accelerate's shared state, variants of plugins.
    In the block accelerate's state is the package's own, whatever the caller has made of it. `reads_data` says that
    the block needs `datasets`, which takes more than a second to import.

    Three things stay:
    - what a library sets when it is imported for the first time;
    - the process group of `accelerate launch`, which belongs to all its processes;
    - in glibc, a threshold of 32 MiB for memory that is mapped. glibc cannot be asked for its settings; they become
      those that its own rule leads to once a block of 32 MiB has been freed, and freed memory is given back.

    As a decorator it does the same for each call of a function. It is for one thread at a time.
    """
    kept = (
        _variables,
        _handlers,
        _fault_handler,
        _levels,
        _random_numbers,
        _threads,
        _attention,
        _accelerate,
    )
    with ExitStack() as ending:
        for keep in kept:
            state = keep()
            next(state)  # notes it
            ending.callback(next, state, None)  # puts it back, however the block has ended
        ending.callback(keep_bars_of_transformers())
        if reads_data:
            ending.callback(keep_bars_of_datasets())
        ending.callback(keep_plugins())
        ending.callback(stop_keeping_freed)
        ending.callback(unfreeze_imports)
        yield


def _variables() -> Restoring:
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def _handlers() -> Restoring:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    if threading.current_thread() is not threading.main_thread():
        return  # another thread can neither have changed a handler nor change it back
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _fault_handler() -> Restoring:
    """Ray enables it."""
    enabled = faulthandler.is_enabled()
    yield
    if faulthandler.is_enabled() and not enabled:
        faulthandler.disable()


def _levels() -> Restoring:
    loggers = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    before = [(logger, logger.level) for logger in (logging.root, *loggers)]
    yield
    for logger, level in before:
        if logger.level != level:
            logger.setLevel(level)


def _random_numbers() -> Restoring:
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    yield
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    torch.set_rng_state(cpu)
    if gpus is not None:
        torch.cuda.set_rng_state_all(gpus)
    elif torch.cuda.is_available():  # not used before: its generators would have begun with the process's seed
        torch.cuda.manual_seed_all(torch.initial_seed())
    if mps is not None:
        torch.mps.set_rng_state(mps)


def _threads() -> Restoring:
    before = torch.get_num_threads()
    all_threads.cache_clear()
    yield
    torch.set_num_threads(before)
    all_threads.cache_clear()


def _attention() -> Restoring:
    """Whether cuDNN may compute attention."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


def _accelerate() -> Restoring:
    shared = [kind._shared_state for kind in (PartialState, AcceleratorState, GradientState)]
    before = [dict(state) for state in shared]
    _forget_accelerate()
    yield
    _forget_accelerate()
    for state, values in zip(shared, before, strict=True):
        state.update(values)


def _forget_accelerate() -> None:
    settle_anew()
    GradientState._reset_state()
