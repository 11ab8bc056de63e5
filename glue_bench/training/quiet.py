"""Silence for other libraries."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def quiet_transformers() -> None:
    """Let transformers log errors alone, and draw no bars, in the rest of this process."""
    import transformers
    from huggingface_hub.utils import disable_progress_bars

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()


@contextmanager
def without_output() -> Iterator[None]:
    """Drop all standard output of the process in this block.

    The library tokenizers prints names from a file, and they may contain control characters.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # the output is closed
        yield
        return
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
