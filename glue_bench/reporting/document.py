"""What a page of tables says, whatever it is written in: every format prints these texts, so none can differ."""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

LONG = 40
"""Columns with longer texts are better broken into lines."""
Kind = Literal["plain", "bold", "code"]
_MARKED = re.compile(r"\*\*(?P<bold>[^*]+)\*\*|`(?P<code>[^`]+)`")


@dataclass(frozen=True)
class GridCell:
    """One cell as it is shown. `bold` marks the best and those that cannot be told from it; `marks` are never bold."""

    text: str
    bold: bool = False
    marks: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: `header` names the columns of `rows`; columns whose index is in `texts` are set to the left."""

    header: tuple[str, ...]
    rows: tuple[tuple[GridCell, ...], ...]
    texts: frozenset[int] = frozenset({0})


@dataclass(frozen=True, kw_only=True)
class PageSection:
    """A titled part of a page: a sentence or two, then a table. Either may be missing."""

    title: str
    text: str = ""
    grid: Grid | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its title, a warning above everything (demo data), its sections, and notes below them.

    Titles, banner and cells are plain text. The sentences of sections and notes may hold `**bold**` and `` `code` ``,
    neither within the other.
    """

    title: str
    sections: tuple[PageSection, ...]
    banner: str = ""
    notes: tuple[str, ...] = ()


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
