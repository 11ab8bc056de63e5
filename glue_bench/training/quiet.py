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


def keep_bars(*, with_datasets: bool) -> Callable[[], None]:
    """A function that draws progress bars again wherever they are drawn now."""
    import transformers
    from huggingface_hub.utils.tqdm import progress_bar_states

    drawn, of_hub = transformers.logging.is_progress_bar_enabled(), dict(progress_bar_states)
    of_datasets = _keep_bars_of_datasets() if with_datasets else None

    def put_back() -> None:
        if drawn and not transformers.logging.is_progress_bar_enabled():
            transformers.logging.enable_progress_bar()
        progress_bar_states.clear()  # after transformers, which changes those of the hub, too
        progress_bar_states.update(of_hub)
        if of_datasets:
            of_datasets()

    return put_back


def _keep_bars_of_datasets() -> Callable[[], None]:
    from datasets.utils import are_progress_bars_disabled, enable_progress_bars

    drawn = not are_progress_bars_disabled()

    def put_back() -> None:
        if drawn and are_progress_bars_disabled():
            enable_progress_bars()

    return put_back
