"""All that is printed goes through here, so that no text from outside can control a terminal."""

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from glue_bench.errors import plain


def echo(text: object = "", *, nl: bool = True, err: bool = False, **style: Any) -> None:
    """Print a text as it is, but for what would control the terminal; in a `style` of `typer.style` on a terminal."""
    typer.secho(plain(str(text)), nl=nl, err=err, **style)


def tell(console: Console, line: str, style: str = "") -> None:
    """Print a line, whatever brackets are in it, without breaking it."""
    console.print(plain(line), style=style or None, markup=False, highlight=False, soft_wrap=True)


class Screen(Console):
    """rich's console; of what it renders, only rich itself controls the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a cell or a title: before it is measured, so that nothing of it is cut off."""
        return super().render_str(plain(text), **options)
