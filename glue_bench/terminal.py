"""All that is printed goes through here, so that no text from outside can control a terminal."""

import errno
import os
import sys
from collections.abc import Iterable
from typing import IO, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from glue_bench.errors import plain


def echo(text: object = "", *, nl: bool = True, err: bool = False, **style: Any) -> None:
    """Print a text as it is, but for what would control the terminal; in a `style` of `typer.style` on a terminal.

    What nobody reads any more is lost, and so is what standard error cannot take. Raises OSError for output that does
    not fit on the disk.
    """
    try:
        typer.secho(plain(str(text)), nl=nl, err=err, **style)
    except OSError as error:
        if not (err or error.errno in (errno.EPIPE, errno.EIO)):
            raise
        silence(sys.stderr if err else sys.stdout)


def let_go() -> None:
    """What a stream of this process can no longer write is lost: at the exit Python would change the status for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:
                stream.flush()
        except OSError:
            silence(stream)


def silence(stream: IO[str]) -> None:
    """What is written to a stream of this process from now on is lost, and so is what it could not write."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def tell(console: Console, line: str, style: str = "") -> None:
    """Print a line, whatever brackets are in it, without breaking it. One that cannot be written is lost."""
    try:
        console.print(
            plain(line), style=style or None, markup=False, highlight=False, soft_wrap=True
        )
    except OSError:
        console.quiet = (
            True  # rich keeps what it could not write for the next time; a quiet console drops it
        )
        console.print()
        console.quiet = False


class Screen(Console):
    """rich's console; of what it renders, only rich itself controls the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a cell or a title: before it is measured, so that nothing of it is cut off."""
        return super().render_str(plain(text), **options)

    def on_broken_pipe(self) -> None:
        """What nobody reads any more is lost; rich would end the process."""
        silence(self.file)
