"""Pages as GitHub-flavoured Markdown with aligned columns."""

import re
from collections.abc import Sequence, Set

from glue_bench.reporting.grid import GridCell, Page, one_line, spans

# An underscore between letters or digits marks nothing, nor does an ampersand that begins no entity; number signs
# are taken off the end of a heading.
_SPECIAL = re.compile(r"[\\`*|<>\[\]~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#|\w+;)|#(?=#*$)")


def render(page: Page) -> str:
    """The page as GitHub-flavoured Markdown."""
    parts = [f"# {escape(page.title)}"]
    if page.banner:
        parts.append(f"**{escape(page.banner)}**")
    if page.lead:
        parts.append(sentence(page.lead))
    for section in page.sections:
        parts += [f"## {escape(section.title)}"] if section.title else []
        parts += [sentence(section.text)] if section.text else []
        if grid := section.grid:
            cells = [[_cell(cell) for cell in row] for row in (*grid.rows, *grid.feet)]
            parts.append(aligned([[escape(name) for name in grid.header], *cells], grid.texts))
    if page.notes:
        parts += ["## Notes", "\n".join(f"- {sentence(note)}" for note in page.notes)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Plain text as Markdown that shows it as it is."""
    return _SPECIAL.sub(r"\\\g<0>", one_line(text))


def sentence(text: str) -> str:
    """A sentence with the markup of `markup` as Markdown."""
    wrap = {"plain": escape, "bold": lambda run: f"**{escape(run)}**", "code": lambda run: f"`{one_line(run)}`"}
    return "".join(wrap[kind](run) for kind, run in spans(text))


def aligned(lines: Sequence[Sequence[str]], texts: Set[int]) -> str:
    """A Markdown table with aligned columns: the first line is the header; the columns `texts` are set to the left."""
    # Two at least: a rule of a colon alone is none, and the table would show as plain text.
    widths = [max(2, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * w if i in texts else "-" * (w - 1) + ":" for i, w in enumerate(widths)]

    def pad(line: Sequence[str]) -> list[str]:
        cells = enumerate(zip(line, widths, strict=True))
        return [cell.ljust(w) if i in texts else cell.rjust(w) for i, (cell, w) in cells]

    rows = [pad(lines[0]), rule, *map(pad, lines[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(cell: GridCell) -> str:
    text = escape(cell.text)
    aside = escape(f" ({cell.aside})") if cell.aside else ""
    return (f"**{text}**" if cell.bold and text else text) + escape(cell.marks) + aside
