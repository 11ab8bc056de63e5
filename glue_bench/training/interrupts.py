"""Signals that end a process, which wait for the end of what must not be cut in two."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

NUMBERS = [
    number
    for number in signal.Signals
    if number.name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
]
"""Ctrl-C, an end from outside, and what Slurm sends before the time of a job is over; Windows has the first two."""


class Interrupts:
    """Signals that end a run: one that comes in a block of `held` goes through when the block ends.

    A second one does not wait. Python delivers signals to the main thread alone; in other threads nothing changes.
    """

    def __init__(self) -> None:
        self.is_holding = False
        self.waiting: list[Callable[[], Any]] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """In this block signals come here first, and then to whoever heard them before."""
        handlers: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in NUMBERS}
        handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
        try:
            for number, handler in handlers.items():
                signal.signal(number, partial(self._hear, handler))
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """In this block the first signal waits."""
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
