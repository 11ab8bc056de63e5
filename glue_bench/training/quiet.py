"""Keep other libraries' load reports and progress bars out of the harness's output."""

from collections.abc import Callable


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


def keep_bars_of_datasets() -> Callable[[], None]:
    """A function that draws the bars of datasets again if they are drawn now."""
    from datasets.utils import are_progress_bars_disabled, enable_progress_bars

    drawn = not are_progress_bars_disabled()

    def put_back() -> None:
        if drawn and are_progress_bars_disabled():
            enable_progress_bars()

    return put_back
