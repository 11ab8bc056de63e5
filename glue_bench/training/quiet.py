"""Keep other libraries' load reports and progress bars out of the harness's output."""


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
