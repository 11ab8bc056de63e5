"""Pages as one HTML file: nothing fetched, readable in light and dark and on narrow screens."""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from glue_bench.reporting.grid import Grid, GridCell, Page, long_columns, one_line, spans

LINK = re.compile(r"https?://(?:[^\s()<>&]|&amp;)*[\w/]")  # in escaped text, where other entities end an address
SPANS = {"plain": "{}", "bold": "<strong>{}</strong>", "code": "<code>{}</code>"}


def render(page: Page) -> str:
    """The page as a whole HTML document, without scripts."""
    return templates().get_template("page.html").render(page=page)


def templates() -> Environment:
    """The templates of documents; what they show is escaped."""
    environment = Environment(
        loader=PackageLoader("glue_bench.reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"line": one_line, "sentence": sentence, "styles": column_styles, "naming": naming_column}
    return environment


def sentence(text: str) -> Markup:
    """A sentence with the markup of `document.spans` as HTML; addresses become links."""
    shown = Markup()
    for kind, run in spans(text):
        inner = str(escape(one_line(run)))
        if kind == "plain":
            inner = LINK.sub(r'<a href="\g<0>">\g<0></a>', inner)
        shown += Markup(SPANS[kind].format(inner))
    return shown


def column_styles(grid: Grid) -> list[Markup]:
    """The class of each column's cells, as an attribute."""
    long = long_columns(grid)
    names = ["long" if i in long else "" if i in grid.texts else "number" for i in range(len(grid.header))]
    return [Markup(f' class="{name}"' if name else "") for name in names]


def naming_column(row: tuple[GridCell, ...]) -> int:
    """The first text names the row: further lines of a model leave its column empty."""
    return next((i for i, cell in enumerate(row) if cell.text), 0)
