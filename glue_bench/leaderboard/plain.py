"""A page as plain Markdown."""

from glue_bench.leaderboard.document import Grid, Page
from glue_bench.leaderboard.markdown import aligned


def render_page(page: Page) -> str:
    """The page as Markdown with aligned columns."""
    parts = [f"# {page.title}", *([f"**{page.banner}**"] if page.banner else [])]
    for section in page.sections:
        parts += [f"## {section.title}", *([section.text] if section.text else [])]
        parts += [_grid(section.grid)] if section.grid else []
    notes = "\n".join(f"- {note}" for note in page.notes)
    return "\n\n".join([*parts, *(["## Notes", notes] if notes else [])]) + "\n"


def _grid(grid: Grid) -> str:
    rows = [[cell.text + cell.marks for cell in row] for row in grid.rows]
    return aligned([grid.header, *rows], text_columns=1)
