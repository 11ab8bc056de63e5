"""What transformers shows and says: progress bars, and those of the hub, which it switches along with its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from huggingface_hub.utils.tqdm import progress_bar_states
from transformers import logging


@contextmanager
def transformers_quiet() -> Iterator[None]:
    """In this block transformers draws no bars and says nothing below an error."""
    put_bars_back, verbosity = keep_bars_of_transformers(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        put_bars_back()


def keep_bars_of_transformers() -> Callable[[], None]:
    """A function that draws bars again wherever they are drawn now, and nowhere else."""
    drawn, of_hub = logging.is_progress_bar_enabled(), dict(progress_bar_states)

    def put_back() -> None:
        if drawn and not logging.is_progress_bar_enabled():
            logging.enable_progress_bar()
        progress_bar_states.clear()
        progress_bar_states.update(of_hub)

    return put_back
