"""The functions that print. They let no text from outside control a terminal."""

import errno
import os
import sys
from collections.abc import Iterable
from typing import IO, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from glue_bench.errors import escape_controls


def echo(text: object = "", *, nl: bool = True, err: bool = False, **style: Any) -> None:
    """Print a text without characters that would control the terminal.

    Text for a reader that has gone is lost, and so is text that standard error cannot take.

    Args:
        text: The text.
        nl: Whether a line feed follows.
        err: Whether it goes to standard error.
        style: Colours of `typer.style`, which a terminal shows.

    Raises:
        OSError: the output does not fit on the disk.
    """
    try:
        typer.secho(escape_controls(str(text)), nl=nl, err=err, **style)
    except OSError as error:
        if not (err or error.errno in (errno.EPIPE, errno.EIO)):
            raise
        silence(sys.stderr if err else sys.stdout)


def discard_unwritten() -> None:
    """Discard text that a stream can no longer write, for which Python would change the status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:
                stream.flush()
        except OSError:
            silence(stream)


def silence(stream: IO[str]) -> None:
    """Discard all that is written to a stream from now on, and all that it could not write."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, stream.fileno())
    os.close(null_device)


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print a line without breaking it; brackets are no markup. Without a reader it is lost."""
    try:
        console.print(
            escape_controls(line),
            style=style or None,
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    except OSError:
        console.quiet = True  # a quiet console drops the text that rich keeps for the next time
        console.print()
        console.quiet = False


class Screen(Console):
    """A console of rich in which rich alone controls the terminal, and no text that is printed."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of what is printed."""
        for segment in super().render(renderable, options):
            yield (
                segment if segment.control else segment._replace(text=escape_controls(segment.text))
            )

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text of a cell or a title.

        It is escaped here, before rich measures it, so that nothing is cut off.
        """
        return super().render_str(escape_controls(text), **options)

    def on_broken_pipe(self) -> None:
        """Discard text for a reader that has gone; rich would end the process."""
        silence(self.file)
