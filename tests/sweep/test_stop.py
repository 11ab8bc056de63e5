"""Ctrl-C: once lets the running cell end, twice does not, nor does SIGTERM."""

import io
import signal
import sys
import threading

import pytest
from rich.console import Console
from stored import read_records

from glue_bench.api import run
from glue_bench.records.store import Store
from glue_bench.sweep import attempts
from glue_bench.sweep.stop import Stop

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def sweep(tiny, tmp_path, monkeypatch):
    """The tiny sweep in which each cell meets Ctrl-C so many times."""
    finetune = attempts.finetune

    def run_it(times: int, number: signal.Signals = signal.SIGINT):
        def interrupted(*arguments, **options):
            for _ in range(times):
                signal.raise_signal(number)
            return finetune(*arguments, **options)

        monkeypatch.setattr(attempts, "finetune", interrupted)
        console = Console(file=io.StringIO())
        summary = run(tiny(), results=tmp_path / "runs", console=console)
        return summary, console.file.getvalue()

    return run_it


def test_once_lets_the_running_cell_end_and_starts_no_other(sweep):
    before = signal.getsignal(signal.SIGINT)
    summary, said = sweep(1)
    assert (summary.interrupted, summary.finished, summary.failed) == (True, 1, {})
    assert "\nstopping: nothing is started any more; Ctrl-C again gives up those that run" in said
    assert len(read_records(Store(summary.folder))) == 1
    assert signal.getsignal(signal.SIGINT) is before
    summary, _ = sweep(0)
    assert (summary.interrupted, summary.skipped, summary.finished) == (False, 1, 3)


def test_twice_gives_the_running_cell_up(sweep):
    summary, _ = sweep(2)
    assert (summary.interrupted, summary.finished, summary.failed) == (True, 0, {})
    assert read_records(Store(summary.folder)) == []
    assert not (summary.folder / "claims").exists()
    assert sweep(0)[0].finished == 4


def test_sigterm_gives_the_running_cell_up_and_leaves_the_tables(sweep):
    before = signal.getsignal(signal.SIGTERM)
    summary, said = sweep(1, signal.SIGTERM)
    assert (summary.interrupted, summary.cause, summary.finished, summary.failed) == (True, "terminated", 0, {})
    assert "stopping" not in said
    assert not (summary.folder / "claims").exists()
    assert signal.getsignal(signal.SIGTERM) is before
    assert sweep(0)[0].finished == 4


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_python_lets_no_code_hear_is_heard_after_it(monkeypatch, number):
    class Deaf:
        def __del__(self):
            signal.raise_signal(number)

    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with Stop(Console(file=io.StringIO())) as stop:
        stop.asked = True
        stop.check()
        Deaf()
        with pytest.raises(KeyboardInterrupt):
            stop.check()
    assert said == []
    assert sys.unraisablehook == said.append


def test_outside_the_main_thread_signals_stay_as_they_are():
    seen = []

    def enter():
        with Stop(Console(file=io.StringIO())):
            seen.extend(map(signal.getsignal, SIGNALS))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [*map(signal.getsignal, SIGNALS)]


def test_a_handler_that_is_not_pythons_stays(monkeypatch):
    """It could not be put back."""
    before = [*map(signal.getsignal, SIGNALS)]
    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda _: None)
        with Stop(Console(file=io.StringIO())):
            patch.undo()
            assert [*map(signal.getsignal, SIGNALS)] == before
