"""How pages are written as LaTeX."""

import re

from glue_bench.pages.markup import escape_latex, sentence
from glue_bench.pages.page import Page, ShownCell, Table

COLUMN_LETTERS = {"number": "r", "text": "l", "long": r"p{0.3\linewidth}"}
"""The letter of a column in LaTeX's `tabular`, by the style of the column."""
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")  # not in 2e-05 or between numbers


def to_latex(page: Page) -> str:
    r"""Write a fragment to \input: floating tables, each with the page's title and a legend."""
    parts = [r"% Needs \usepackage{booktabs,graphicx}"]
    for number, table in enumerate(page.tables, 1):
        parts.append(latex_table(page, number, table))
    return "\n".join(parts)


def latex_table(page: Page, number: int, table: Table) -> str:
    """Write a floating table, with a rule above its feet and the legend below it.

    It is shrunk if it is wider than the line.

    Args:
        page: The page. Its title and its banner go into the caption.
        number: The place of the table on the page, from 1.
        table: The table.

    Returns:
        The lines of the table.
    """
    letters = "".join(COLUMN_LETTERS[style] for style in table.styles)
    rows = [latex_row(row, table.styles) for row in table.rows]

    if table.feet:
        rows.insert(-table.feet, r"\midrule")
    legend = [rf"\item {sentence(line, 'latex')}" for line in table.legend]
    if legend:
        legend = [r"\begin{itemize}", *legend, r"\end{itemize}"]

    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{latex_caption(page, table)}}}",
        rf"\label{{tab:{latex_label(page, number)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{letters}}}",
        r"\toprule",
        " & ".join(map(escape_latex, table.header)) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
        *legend,
        "",
    ]
    return "\n".join(lines)


def latex_caption(page: Page, table: Table) -> str:
    """Write the caption: both titles, the banner, the warnings, and the caption."""
    parts = []
    for title in (page.title, table.title):
        if title:
            parts.append(f"{escape_latex(title)}.")
    if page.banner:
        parts.append(rf"\textbf{{{escape_latex(page.banner)}}}")
    parts += [sentence(f"**Warning.** {warning}", "latex") for warning in table.warnings]
    if table.caption:
        parts.append(sentence(table.caption, "latex"))
    return " ".join(parts)


def latex_label(page: Page, number: int) -> str:
    """Make a label from the first words of a title. Every table but the first has a number, too."""
    words = re.findall(r"[a-z0-9]+", page.title.lower())
    label = "-".join(words[:4])
    if number > 1:
        label += f"-{number}"
    return label or "table"


def latex_row(row: list[ShownCell], styles: list[str]) -> str:
    """Write a row of a table."""
    texts = [latex_cell(cell, style) for cell, style in zip(row, styles, strict=True)]
    return " & ".join(texts) + r" \\"


def latex_cell(cell: ShownCell, style: str) -> str:
    """Write a cell; in a column of numbers a hyphen before a digit is a minus."""
    text = cell.text
    if style == "number":
        text = _MINUS.sub("\N{MINUS SIGN}", text)
    text = escape_latex(text)
    return rf"\textbf{{{text}}}" if cell.bold else text
