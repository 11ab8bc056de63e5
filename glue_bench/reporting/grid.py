"""What a page of tables says, whatever it is written in: every format prints these texts, so none can differ."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

LONG = 40
"""Columns with longer texts are better broken into lines."""
Kind = Literal["plain", "bold", "code"]
_MARKED = re.compile(r"\*\*(?P<bold>[^*]+)\*\*|`(?P<code>[^`]+)`")


@dataclass(frozen=True)
class GridCell:
    """One cell as it is shown. `bold` marks the best; `marks` follow the text, and `aside` stands small beside it."""

    text: str
    bold: bool = False
    marks: str = ""
    aside: str = ""


Row = Iterable[GridCell | str]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: `header` names the columns of `rows`; columns whose index is in `texts` are set to the left.

    `feet` are rows of another kind below a rule: what the numbers above are to be compared with.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[GridCell, ...], ...]
    feet: tuple[tuple[GridCell, ...], ...] = ()
    texts: frozenset[int] = frozenset({0})

    @classmethod
    def of(
        cls, header: Iterable[str], rows: Iterable[Row], feet: Iterable[Row] = (), texts: Iterable[int] = (0,)
    ) -> "Grid":
        """A table of cells and plain texts."""
        body, below = (
            tuple(tuple(cell if isinstance(cell, GridCell) else GridCell(cell) for cell in row) for row in each)
            for each in (rows, feet)
        )
        return cls(header=tuple(header), rows=body, feet=below, texts=frozenset(texts))

    @property
    def labels(self) -> list[int]:
        """The columns of text before the first number: they name the rows."""
        numbers = [i for i in range(len(self.header)) if i not in self.texts]
        return [i for i in sorted(self.texts) if i < min(numbers, default=len(self.header))]

    def width(self, column: int, measure: Callable[[str], float]) -> float:
        """The widest of a column's lines, by the measure of a text."""
        texts = [f"{cell.text}{cell.marks}{cell.aside}" for row in (*self.rows, *self.feet) for cell in [row[column]]]
        return max(map(measure, [*self.header[column].splitlines(), *texts]), default=0.0)

    def columns(self, chosen: Sequence[int]) -> "Grid":
        """Some of the columns, in the order given."""
        rows, feet = (tuple(tuple(row[i] for i in chosen) for row in rows) for rows in (self.rows, self.feet))
        header = tuple(self.header[i] for i in chosen)
        texts = frozenset(place for place, i in enumerate(chosen) if i in self.texts)
        return replace(self, header=header, rows=rows, feet=feet, texts=texts)


@dataclass(frozen=True, kw_only=True)
class PageSection:
    """A titled part of a page: a sentence or two, then a table. Either may be missing."""

    title: str
    text: str = ""
    grid: Grid | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its title, a warning above everything (demo data), what it found, its sections, and notes below them.

    Titles, banner and cells are plain text. The sentences of `lead`, sections and notes may hold `**bold**` and
    `` `code` ``, neither within the other.
    """

    title: str
    sections: tuple[PageSection, ...]
    banner: str = ""
    lead: str = ""
    notes: tuple[str, ...] = ()


def folded(grid: Grid, room: float, widths: Sequence[float]) -> Iterator[Grid]:
    """The grid in as many as it takes for each to be at most `room` wide; the labels are repeated in each."""
    used = left = sum(widths[i] for i in grid.labels)
    chunks: list[list[int]] = [[]]
    for i in (i for i in range(len(grid.header)) if i not in grid.labels):
        if chunks[-1] and used + widths[i] > room:
            chunks.append([])
            used = left
        chunks[-1].append(i)
        used += widths[i]
    yield from (grid.columns([*grid.labels, *chunk]) for chunk in chunks)


def long_columns(grid: Grid) -> frozenset[int]:
    """The columns of text that are better broken into lines: some cell has more than LONG characters."""
    return frozenset(i for i in grid.texts if any(len(row[i].text) > LONG for row in grid.rows))


class Span(NamedTuple):
    """A run of text set in one way, its marks taken off."""

    kind: Kind
    text: str


def spans(text: str) -> list[Span]:
    """A sentence in runs, in order; a mark without its partner is plain text."""
    found: list[Span] = []
    end = 0
    for match in _MARKED.finditer(text):
        kind: Kind = "code" if match["code"] else "bold"
        found += [Span("plain", text[end : match.start()]), Span(kind, match[kind])]
        end = match.end()
    return [span for span in [*found, Span("plain", text[end:])] if span.text]


def one_line(text: str) -> str:
    """Without line breaks: each ends a row in Markdown, and two end a paragraph in LaTeX."""
    return " ".join(text.splitlines())
