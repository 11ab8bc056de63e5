"""Ctrl-C in two steps: the first lets what runs end, the second does not."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console


class Stop:
    """A context in which the first Ctrl-C only sets `asked`. The second raises KeyboardInterrupt.

    Outside the main thread signals cannot be caught; there Ctrl-C does what it does.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.console.print("stopping: no cell is started any more; Ctrl-C again gives up those that run")
