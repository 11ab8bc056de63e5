"""Progress bars of transformers and of the hub, which transformers switches along with its own."""

from collections.abc import Callable

from huggingface_hub.utils.tqdm import progress_bar_states
from transformers import logging


def keep_bars_of_transformers() -> Callable[[], None]:
    """A function that draws bars again wherever they are drawn now, and nowhere else."""
    drawn, of_hub = logging.is_progress_bar_enabled(), dict(progress_bar_states)

    def put_back() -> None:
        if drawn and not logging.is_progress_bar_enabled():
            logging.enable_progress_bar()
        progress_bar_states.clear()
        progress_bar_states.update(of_hub)

    return put_back
