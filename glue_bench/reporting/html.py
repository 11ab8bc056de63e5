"""Pages as one HTML file: no script, nothing fetched, readable in light and dark and on narrow screens."""

import re
from html import escape as _escape

from glue_bench.reporting.document import Cell, Grid, Page, Section, long_columns
from glue_bench.reporting.markup import convert, one_line

_LINK = re.compile(r"https?://(?:[^\s()<>&]|&amp;)*[\w/]")  # in escaped text, where other entities end an address
STYLE = """\
:root { color-scheme: light dark; --text: #1b1b1b; --quiet: #595959; --line: #c9c9c9; --page: #fff; --warn: #8a3b00;
  --link: #0550ae; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --quiet: #a8a8a8; --line: #4a4a4a; --page: #161616; --warn: #ffb454; --link: #79b8ff; }
}
body { margin: 2rem auto; max-width: 90rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
a { color: var(--link); overflow-wrap: anywhere; }
.banner { color: var(--warn); font-weight: bold; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; border-bottom: 2px solid var(--text); font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.5rem; }
caption > * { position: sticky; left: 0; width: fit-content; max-width: min(calc(100vw - 3rem), 45rem); margin: 0; }
caption > p, .notes { color: var(--quiet); }
.unseen { position: absolute; clip-path: inset(50%); }
th, td { padding: 0.25rem 0.75rem; text-align: left; vertical-align: baseline; white-space: nowrap;
  border-top: 1px solid var(--line); }
thead th { vertical-align: bottom; border-top: 2px solid var(--text); border-bottom: 1px solid var(--text); }
tbody th { font-weight: normal; }
tr > :first-child { position: sticky; left: 0; background: var(--page); }
.number { text-align: right; }
thead .number { white-space: normal; }
.long { white-space: normal; min-width: 20rem; }
.notes li { max-width: 60rem; }
.notes code { color: var(--text); }
"""


def render(page: Page) -> str:
    """The page as a whole HTML document."""
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}</title>",
        f"<style>\n{STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{escape(page.title)}</h1>",
        *([f'<p class="banner">{escape(page.banner)}</p>'] if page.banner else []),
        *(line for section in page.sections for line in _section(page, section)),
        *_notes(page),
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Plain text as HTML that shows it as it is."""
    return _escape(one_line(text))


def sentence(text: str) -> str:
    """A sentence with the markup of `markup` as HTML; addresses become links."""
    return convert(text, escape, {"plain": _linked, "bold": _bold, "code": lambda run: f"<code>{run}</code>"})


def _section(page: Page, section: Section) -> list[str]:
    title = [f"<h2>{escape(section.title)}</h2>"] if section.title else []
    about = [*title, *([f"<p>{sentence(section.text)}</p>"] if section.text else [])]
    if section.grid is None:
        return ["<section>", *about, "</section>"]
    return _grid(
        section.grid, about or [f'<p class="unseen">{escape(page.title)}</p>'], escape(section.title or page.title)
    )


def _grid(grid: Grid, caption: list[str], name: str) -> list[str]:
    """A table that scrolls sideways, by keyboard too: hence the tab stop, which needs a name."""
    styles = _styles(grid)
    cells = (f'<th scope="col"{style}>{escape(text)}</th>' for text, style in zip(grid.header, styles, strict=True))
    return [
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">',
        "<table>",
        f"<caption>{''.join(caption)}</caption>",
        f"<thead>\n<tr>{''.join(cells)}</tr>\n</thead>",
        "<tbody>",
        *(_row(row, styles) for row in grid.rows),
        "</tbody>",
        "</table>",
        "</div>",
    ]


def _styles(grid: Grid) -> list[str]:
    """The class of each column's cells, as an attribute."""
    long = long_columns(grid)
    names = ["long" if i in long else "" if i in grid.texts else "number" for i in range(len(grid.header))]
    return [f' class="{name}"' if name else "" for name in names]


def _row(row: tuple[Cell, ...], styles: list[str]) -> str:
    """The first text names the row: further lines of a model leave its column empty."""
    name = next((i for i, cell in enumerate(row) if cell.text), 0)
    cells = (_cell(cell, i == name, style) for i, (cell, style) in enumerate(zip(row, styles, strict=True)))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(cell: Cell, names_row: bool, style: str) -> str:
    text = escape(cell.text)
    shown = (_bold(text) if cell.bold else text) + escape(cell.marks)
    return f'<th scope="row"{style}>{shown}</th>' if names_row else f"<td{style}>{shown}</td>"


def _bold(text: str) -> str:
    return f"<strong>{text}</strong>"


def _linked(text: str) -> str:
    return _LINK.sub(r'<a href="\g<0>">\g<0></a>', text)


def _notes(page: Page) -> list[str]:
    if not page.notes:
        return []
    items = [f"<li>{sentence(note)}</li>" for note in page.notes]
    return ['<section class="notes">', "<h2>Notes</h2>", "<ul>", *items, "</ul>", "</section>"]
