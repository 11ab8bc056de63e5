"""What a report is made of, whatever is in it."""

import re
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from glue_bench.reporting.figures.save import svg_text
from glue_bench.reporting.grid import Page, PageSection


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure: the name of its file, what it is called, what it shows in a sentence, and the drawn figure itself."""

    name: str
    title: str
    description: str
    drawn: Figure

    @property
    def svg(self) -> Markup:
        """It for a page."""
        return Markup(svg_text(self.drawn, self.title, self.description))


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a report: a sentence, figures, tables, notes below them, and what is typed (`listing`).

    `folded` are parts that are shown on request, each behind its title.
    """

    title: str
    text: str = ""
    figures: tuple[Drawing, ...] = ()
    sections: tuple[PageSection, ...] = ()
    notes: tuple[str, ...] = ()
    listing: str = ""
    folded: tuple["Part", ...] = ()

    @property
    def anchor(self) -> str:
        """Where links to it lead: its title in lower case."""
        return "-".join(re.findall(r"\w+", self.title.lower()))


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report: its title, a warning above everything (demo data), the verdict, what there is of it, and its parts."""

    title: str
    text: str
    parts: tuple[Part, ...]
    banner: str = ""
    lead: str = ""

    @property
    def figures(self) -> list[Drawing]:
        """All of them, those behind folds too."""
        return [figure for part in self.parts for each in (part, *part.folded) for figure in each.figures]


def part_of(page: Page, title: str = "") -> Part:
    """A page as a part, its notes behind a fold."""
    folded = (Part(title="Notes", notes=page.notes),) if page.notes else ()
    return Part(title=title or page.title, text=page.lead, sections=page.sections, folded=folded)
