"""How pages are printed in a terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from glue_bench.pages.page import LONG_TEXT, Page, Table, one_line


def print_page(page: Page, console: Console, file: str = "") -> None:
    """Print a page in a terminal.

    Args:
        page: The page. Columns that do not fit are left out, the last ones first.
        console: The terminal.
        file: Where the columns are that do not fit; the last line says so.
    """
    if page.banner:
        console.print(Text(page.banner, style="yellow"))
    for table in page.tables:
        if table.title:
            console.print(Text(table.title, style="bold"))
        for warning in table.warnings:
            text = one_line(warning).replace("`", "")
            console.print(Text(f"Warning: {text}", style="yellow"))
        if table.caption:
            console.print(Text(one_line(table.caption).replace("`", "")))
        print_table(table, console, file)


def print_table(table: Table, console: Console, file: str) -> None:
    """Print the columns of a table that fit; feet are dim."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline")
    columns = count_fitting_columns(table, console.width)
    for place in range(columns):
        style = table.styles[place]
        side: Any = "right" if style == "number" else "left"
        grid.add_column(Text(table.header[place]), justify=side, no_wrap=style != "long")
    first_foot = len(table.rows) - table.feet
    for place, row in enumerate(table.rows):
        texts = [Text(cell.text, style="bold" if cell.bold else "") for cell in row[:columns]]
        grid.add_row(*texts, style="dim" if place >= first_foot else "")
    console.print(grid)
    hidden = len(table.columns) - columns
    if hidden:
        console.print(Text(f"More columns ({hidden}): {file}", style="dim"))


def count_fitting_columns(table: Table, width: int) -> int:
    """Count the columns that fit a width in characters, with a space between two; at least one."""
    used = -1
    for place, title in enumerate(table.header):
        widest = max([len(title), *(len(row[place].text) for row in table.rows)])
        if table.styles[place] == "long":
            widest = LONG_TEXT
        used += 1 + widest
        if used > width and place:
            return place
    return len(table.header)
