"""What is shown, as values: columns, tables, pages, and the parts of a report.

Titles, banners and cells are plain text. Captions and legends are sentences, which may hold `**bold**` and
`` `code` ``, neither within the other. `pages.render` writes all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from pandas import DataFrame

from glue_bench.pages.numbers import MISSING, number

if TYPE_CHECKING:  # matplotlib is imported only where a figure is drawn
    from matplotlib.figure import Figure

DECIMALS = 2
"""How many decimals numbers have where nothing else is said."""
LONG = 40
"""Columns with longer texts are broken into lines."""
BETTER, WORSE = "▲", "▼"


@dataclass(frozen=True)
class Column:
    """How a column is shown: as numbers with so many `decimals`, or by `show`, to the right; else as text, to the left.

    A missing number is a dash, anything else that is missing is empty. `note` is the key of the line that explains the
    column in a legend; without it that is the column's name in the frame.
    """

    title: str
    decimals: int | None = None
    show: Callable[[Any], str] | None = None
    note: str = ""

    def text(self, value: Any) -> str:
        """A value as it is shown."""
        if pd.isna(value):
            return "" if self.decimals is None else MISSING
        return (
            number(value, self.decimals)
            if self.decimals is not None
            else one_line((self.show or str)(value))
        )


class ShownCell(NamedTuple):
    """A cell as every format shows it, its marks included."""

    text: str
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """The `columns` of a frame, by their names there, with a caption above and a legend below.

    `bold` (bool) and `marks` (str, behind the text) have the frame's index and some of its columns. The last `feet`
    rows are of another kind: what the numbers above are to be compared with. `notes` are keys of legend lines that the
    table needs beside those of its columns, marks, bold cells and missing numbers.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    title: str = ""
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
        keys.update("".join(self.marks.fillna("").to_numpy().ravel()))
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
        names, index = list(self.columns), self.frame.index
        marks = (
            self.marks.reindex(index=index, columns=names)
            .astype(object)
            .fillna("")
            .to_numpy()
            .tolist()
        )
        bold = self.bold.reindex(index=index, columns=names).eq(True).to_numpy().tolist()
        texts = [
            map(column.text, self.frame[name].tolist()) for name, column in self.columns.items()
        ]
        rows = zip(zip(*texts, strict=True), marks, bold, strict=True)
        return [
            [ShownCell(text + mark, is_bold) for text, mark, is_bold in zip(*row, strict=True)]
            for row in rows
        ]

    @cached_property
    def styles(self) -> list[str]:
        """Of each column "number", "text", or "long" if its texts are broken into lines."""
        places = range(len(self.columns))
        texts = [
            "long" if any(len(row[i].text) > LONG for row in self.rows) else "text" for i in places
        ]
        columns = zip(self.columns.values(), texts, strict=True)
        return [
            text if column.decimals is None and column.show is None else "number"
            for column, text in columns
        ]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its title, a warning above everything (made-up data), and its tables.

    `data` is what CSV and JSON have: the first table's whole frame unless it is given. Numbers have so many `decimals`
    there, or those that `column_decimals` gives by column.
    """

    title: str
    tables: tuple[Table, ...] = ()
    banner: str = ""
    data: DataFrame | None = None
    decimals: int = DECIMALS
    column_decimals: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> DataFrame:
        """What CSV and JSON have."""
        return self.tables[0].frame if self.data is None else self.data


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with a title and a caption. `name` is the name of its files."""

    name: str
    title: str
    figure: "Figure"
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a report: figures, tables, what is typed (`listing`), and parts that are folded behind their titles."""

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
    """Put under the last table the lines of a legend that a table needs, or that one of the `notes` names."""
    keys = set(notes)
    for table in tables:
        keys |= table.legend_keys
    lines = tuple(dict.fromkeys(line for key, line in legend.items() if key in keys))
    return [*tables[:-1], *(replace(last, legend=lines) for last in tables[-1:])]


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """The facts of which anything is known, each with its name."""
    frame = DataFrame([fact for fact in facts if fact[1]], columns=["fact", "value"])
    return Table(frame=frame, columns={"fact": Column("Setup"), "value": Column("")})


def one_line(text: str) -> str:
    """Without line breaks: each ends a row in Markdown, and two end a paragraph in LaTeX."""
    return " ".join(text.splitlines())
