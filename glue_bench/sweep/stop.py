"""Ctrl-C in two steps: the first lets what runs end, the second does not. SIGTERM does not either."""

import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from rich.console import Console

from glue_bench.terminal import tell

INTERRUPTED, TERMINATED = "interrupted", "terminated"


class Stop:
    """A context in which the first Ctrl-C only sets `asked`. The second raises KeyboardInterrupt.

    SIGTERM, which batch systems send some seconds before they kill, raises it at once; `cause` tells them apart. Where
    Python lets no exception out, as in the `__del__` of an object, it is not heard: `check` raises it again.

    Outside the main thread signals cannot be caught, and a handler that is not Python's could not be put back; there
    Ctrl-C does what it does.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.asked, self.given_up, self.cause = False, False, INTERRUPTED
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}
        # A signal may come in the middle of a print, which cannot be begun again there: another thread says it.
        self._to_say: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._speaker = threading.Thread(target=self._speak, daemon=True, name="stop")

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._speaker.start()
            self._unheard, sys.unraisablehook = sys.unraisablehook, self._keep_silent
            for number, handler in ((signal.SIGINT, self._ask), (signal.SIGTERM, self._terminate)):
                if signal.getsignal(number) is not None:
                    self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._speaker.ident:
            sys.unraisablehook = self._unheard
            self._to_say.put(None)
            self._speaker.join()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block the first Ctrl-C raises, too: what runs can be taken up again where it was."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has raised it and it was not heard."""
        if self.given_up:
            raise KeyboardInterrupt

    def _keep_silent(self, unheard: Any) -> None:
        if not isinstance(unheard.exc_value, KeyboardInterrupt):
            self._unheard(unheard)

    def _speak(self) -> None:
        while (line := self._to_say.get()) is not None:
            tell(self.console, line)

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked, self.given_up, self.cause = True, True, TERMINATED
        raise KeyboardInterrupt

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        if self.asked or self._at_once:
            self.given_up = True
            raise KeyboardInterrupt
        self.asked = True
        self._to_say.put("stopping: nothing is started any more; Ctrl-C again gives up those that run")
