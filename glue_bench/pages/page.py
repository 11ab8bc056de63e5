"""What is shown, as values: columns, tables, pages, and the parts of a report.

Titles, banners and cells are plain text. Captions and legends are sentences, which may hold
`**bold**` and `` `code` ``, neither within the other. `pages.render` writes all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from pandas import DataFrame

from glue_bench.pages.numbers import MISSING, format_number

if TYPE_CHECKING:  # matplotlib is imported only where a figure is drawn
    from matplotlib.figure import Figure

DEFAULT_DECIMALS = 2
"""How many decimals CSV and JSON have, unless a page or a column has another number of them."""
LONG_TEXT = 40
"""A column that has a longer text is broken into lines."""
BETTER = "▲"
WORSE = "▼"


@dataclass(frozen=True)
class Column:
    """How a column is shown.

    A column with `decimals` or `show` stands to the right, as numbers do; any other stands to the
    left, as text does. A missing value is a dash in a column with `decimals`, and empty elsewhere.

    Attributes:
        title: What stands above the column.
        decimals: How many decimals its numbers have; None for a column of texts.
        show: Writes a value as text; `str` if it is not given.
        note: The key of the legend line that explains the column; its name in the frame if empty.
    """

    title: str
    decimals: int | None = None
    show: Callable[[Any], str] | None = None
    note: str = ""

    def text(self, value: Any) -> str:
        """Write a value as it is shown."""
        if self.decimals is not None:
            return MISSING if pd.isna(value) else format_number(value, self.decimals)
        if pd.isna(value):
            return ""
        show = self.show or str
        return one_line(show(value))


class ShownCell(NamedTuple):
    """A cell as every format shows it, its marks included."""

    text: str
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a caption above and a legend below.

    Attributes:
        frame: The rows. It may have columns that are not shown.
        columns: The columns that are shown, by their names in the frame, from left to right.
        title: The heading of the table.
        warnings: Sentences above the caption: why the table can show nothing.
        caption: A sentence between heading and table.
        legend: The lines below the table.
        bold: Which cells are bold (bool), with the index of the frame and some of its columns.
        marks: What stands behind the text of a cell (str), likewise.
        feet: How many of the last rows are feet: rows that the rows above are compared with.
        notes: Keys of legend lines that the table needs beside those of its columns, its marks, its
            bold cells and its missing numbers.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    title: str = ""
    warnings: tuple[str, ...] = ()
    caption: str = ""
    legend: tuple[str, ...] = ()
    bold: DataFrame = field(default_factory=DataFrame)
    marks: DataFrame = field(default_factory=DataFrame)
    feet: int = 0
    notes: frozenset[str] = frozenset()

    @property
    def legend_keys(self) -> set[str]:
        """The keys of all legend lines that the table needs; each mark is its own key."""
        keys = set(self.notes)
        for name, column in self.columns.items():
            keys.add(column.note or name)
            if column.decimals is not None and self.frame[name].isna().any():
                keys.add(MISSING)
        signs = self.marks.fillna("").to_numpy().ravel()
        keys.update("".join(signs))
        if self.bold.eq(True).to_numpy().any():
            keys.add("bold")
        return keys

    @property
    def header(self) -> list[str]:
        """The titles of the columns."""
        return [one_line(column.title) for column in self.columns.values()]

    @cached_property
    def rows(self) -> list[list[ShownCell]]:
        """The cells, feet included."""
        index = self.frame.index
        names = list(self.columns)
        marks = self.marks.reindex(index=index, columns=names).astype(object).fillna("")
        bold = self.bold.reindex(index=index, columns=names).eq(True)
        cells_by_column: list[list[ShownCell]] = []
        for name, column in self.columns.items():
            values = self.frame[name].tolist()
            cells = []
            for value, mark, is_bold in zip(values, marks[name], bold[name], strict=True):
                text = column.text(value) + mark
                cells.append(ShownCell(text, bool(is_bold)))
            cells_by_column.append(cells)
        return [list(row) for row in zip(*cells_by_column, strict=True)]

    @cached_property
    def styles(self) -> list[str]:
        """For each column "number", "text", or "long" if its texts are broken into lines."""
        styles = []
        for place, column in enumerate(self.columns.values()):
            longest = max((len(row[place].text) for row in self.rows), default=0)
            if column.decimals is not None or column.show is not None:
                styles.append("number")
            elif longest > LONG_TEXT:
                styles.append("long")
            else:
                styles.append("text")
        return styles


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of tables.

    Attributes:
        title: The heading of the page.
        tables: The tables, from top to bottom.
        banner: A warning above everything (made-up data).
        data: The rows of CSV and JSON; by default the whole frame of the first table.
        decimals: How many decimals the numbers have in CSV and JSON.
        column_decimals: The columns that have another number of decimals there.
        figures: The figures, which HTML shows above the tables.
    """

    title: str
    tables: tuple[Table, ...] = ()
    banner: str = ""
    data: DataFrame | None = None
    decimals: int = DEFAULT_DECIMALS
    column_decimals: Mapping[str, int] = field(default_factory=dict)
    figures: tuple["Drawing", ...] = ()

    @property
    def rows(self) -> DataFrame:
        """The rows of CSV and JSON."""
        if self.data is None:
            return self.tables[0].frame
        return self.data


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with a title and a caption. `name` is the name of its files."""

    name: str
    title: str
    figure: "Figure"
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a report.

    Attributes:
        title: The heading of the part.
        tables: The tables of the part, below its figures.
        figures: The figures of the part.
        listing: Commands for the user to type, below the tables.
        folded: Parts inside this part, which only show their titles until a reader opens them.
    """

    title: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Drawing, ...] = ()
    listing: str = ""
    folded: tuple["Part", ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """Several parts on one HTML page. The `lead` is the sentence below its title."""

    title: str
    parts: tuple[Part, ...]
    banner: str = ""
    lead: str = ""


def with_legend(
    tables: Sequence[Table], legend: Mapping[str, str], notes: Iterable[str] = ()
) -> list[Table]:
    """Put under the last table each legend line that one of the tables needs.

    Args:
        tables: The tables that share a legend; each says what it needs by `legend_keys`.
        legend: The lines by their keys. A line that has several keys is shown once.
        notes: Keys of more lines to show.

    Returns:
        The same tables. The last one has the legend.
    """
    if not tables:
        return []
    keys = set(notes)
    for table in tables:
        keys |= table.legend_keys
    lines = dict.fromkeys(line for key, line in legend.items() if key in keys)
    *before, last = tables
    return [*before, replace(last, legend=tuple(lines))]


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Make a table of facts with their names; a fact that is empty is left out."""
    rows = [fact for fact in facts if fact[1]]
    return Table(
        frame=DataFrame(rows, columns=["fact", "value"]),
        columns={"fact": Column("Setup"), "value": Column("")},
    )


def one_line(text: str) -> str:
    """Join the lines of a text: each ends a row in Markdown, and two end a paragraph in LaTeX."""
    return " ".join(text.splitlines())
