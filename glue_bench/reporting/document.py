"""What a page of tables says, whatever it is written in: every format prints these texts, so none can differ."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One cell as it is shown. `bold` marks the best and those that cannot be told from it; `marks` are never bold."""

    text: str
    bold: bool = False
    marks: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: `header` names the columns of `rows`; columns whose index is in `texts` are set to the left."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    texts: frozenset[int] = frozenset({0})


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled part of a page: a sentence or two, then a table. Either may be missing."""

    title: str
    text: str = ""
    grid: Grid | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its title, a warning above everything (demo data), its sections, and notes below them."""

    title: str
    sections: tuple[Section, ...]
    banner: str = ""
    notes: tuple[str, ...] = ()


LONG = 40


def long_columns(grid: Grid) -> frozenset[int]:
    """The columns of text that are better broken into lines: some cell has more than LONG characters."""
    return frozenset(i for i in grid.texts if any(len(row[i].text) > LONG for row in grid.rows))
