"""Signals that end a process. They can wait for the end of a block that must run as a whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
HANDLED_SIGNALS = [number for number in signal.Signals if number.name in SIGNAL_NAMES]
"""Ctrl-C, SIGTERM, and the signals that Slurm sends before the time of a job is over.

Windows has only the first two.
"""


class Interrupts:
    """Signals that end a run.

    A signal that comes in a block of `held` goes through when the block ends. A second one does not
    wait. Python delivers signals to the main thread alone; in other threads nothing changes.
    """

    def __init__(self) -> None:
        self.is_holding = False
        self.waiting: list[Callable[[], Any]] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive signals in this block, and pass them on to their earlier handlers."""
        handlers: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in HANDLED_SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    handlers[number] = handler
        try:
            for number, handler in handlers.items():
                signal.signal(number, partial(self._hear, handler))
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the first signal wait for the end of this block."""
        self.is_holding = True
        try:
            yield
        finally:
            self.is_holding = False
            while self.waiting:
                self.waiting.pop()()

    def _hear(self, handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
        if self.is_holding and not self.waiting:
            self.waiting.append(partial(handler, number, frame))
        else:
            handler(number, frame)
