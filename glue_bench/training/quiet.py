"""Keep other libraries' load reports and progress bars out of the harness's output."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def quiet_libraries() -> None:
    """transformers and datasets say errors only, and draw no bars, from here on in this process."""
    import datasets

    quiet_transformers()
    datasets.logging.set_verbosity_error()
    datasets.disable_progress_bars()


def quiet_transformers() -> None:
    """The same where no data is read: importing datasets takes more than a second."""
    import transformers
    from huggingface_hub.utils import disable_progress_bars

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()


@contextmanager
def without_output() -> Iterator[None]:
    """What compiled code prints in this block is dropped: tokenizers repeats a file's names, control characters too."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
