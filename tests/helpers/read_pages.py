"""What a rendered page says, read back by parsers that know nothing of how it was written."""

import re
from html.parser import HTMLParser
from operator import mul
from typing import NamedTuple

from markdown_it import MarkdownIt


class ReadCell(NamedTuple):
    """A cell as it was read: its text without markup, and whether a part of it is bold."""

    text: str
    is_bold: bool


class Read(NamedTuple):
    """A table as it was read: its title, its header and its rows."""

    title: str
    header: list[str]
    rows: list[list[ReadCell]]

    @property
    def texts(self) -> list[list[str]]:
        return [[cell.text for cell in row] for row in self.rows]


class _Page(HTMLParser):
    """Collects a document's attributes, its texts by their tags, and its tables.

    A table is called by its caption or the last heading.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tables: list[Read] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.heading = ""

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.texts.setdefault(tag, []).append("")
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append(Read(self.heading, [], []))
        elif tag == "tr" and "thead" not in self.open:
            self.tables[-1].rows.append([])
        elif tag in ("th", "td"):
            table = self.tables[-1]
            if "thead" in self.open:
                table.header.append("")
            else:
                table.rows[-1].append(ReadCell("", is_bold=False))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("h1", "h2"):
            self.heading = self.texts[tag][-1]
        elif tag == "caption":
            self.tables[-1] = self.tables[-1]._replace(title=self.texts[tag][-1])

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if {"th", "td"} & set(self.open):
            table = self.tables[-1]
            if "thead" in self.open:
                table.header[-1] += data
            else:
                cell = table.rows[-1][-1]
                is_bold = cell.is_bold or "strong" in self.open
                table.rows[-1][-1] = ReadCell(cell.text + data, is_bold)


def parse_html(text: str) -> _Page:
    """Parse a document in which every element is closed and every row is as long as its header."""
    page = _Page()
    page.feed(text)
    page.close()
    assert not page.open
    assert all(len(row) == len(table.header) for table in page.tables for row in table.rows)
    return page


def read_html(text: str) -> list[Read]:
    assert text.startswith('<!doctype html>\n<html lang="en">')
    return parse_html(text).tables


def read_markdown(text: str) -> list[Read]:
    """Return the tables of a Markdown text."""
    return parse_html(MarkdownIt().enable("table").render(text)).tables


_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|[{}&%$#_^~]|[^\\{}&%$#_^~]+", re.DOTALL)
_SYMBOLS = {
    r"\textbackslash": "\\",
    r"\textasciitilde": "~",
    r"\textasciicircum": "^",
    r"\textasciigrave": "`",
    r"\textbar": "|",
    r"\textless": "<",
    r"\textgreater": ">",
    r"\char": '"',
    r"\textdagger": "†",
    r"\textdaggerdbl": "‡",
    r"\textendash": "–",  # noqa: RUF001
    r"\textdegree": "°",
    r"\uparrow": "▲",
    r"\downarrow": "▼",
    r"\pm": "±",
    r"\diamond": "◇",
    r"\S": "§",
    r"\&": "&",
    r"\%": "%",
    r"\$": "$",
    r"\#": "#",
    r"\_": "_",
    r"\{": "{",
    r"\}": "}",
    r"\\": "",
}
_SILENT = {r"\textbf", r"\texttt", r"\ensuremath", r"\item"}  # anything else is an error


def read_latex(text: str) -> list[Read]:
    """Read the tables of a LaTeX fragment, each by its caption."""
    assert text.startswith("% Needs \\usepackage{booktabs")
    body = re.sub(r"(?<!\\)\$(\\?[a-z]+|-)\$", r"\\ensuremath{\1}", text.partition("\n")[2])
    parts = re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", body, re.DOTALL)
    return [_latex_table(part) for part in parts]


def _latex_table(text: str) -> Read:
    """Read one table: its header and its rows, feet included."""
    (caption,) = re.findall(r"^\\caption\{(.*)\}$", text, re.MULTILINE)
    assert re.search(r"^\\label\{tab:[a-z0-9-]+\}$", text, re.MULTILINE)
    (tabular,) = re.findall(
        r"^\\begin\{tabular\}(.*?)^\\end\{tabular\}\}?$", text, re.DOTALL | re.MULTILINE
    )
    columns = re.match(r"\{((?:[lr]|p\{[^}]*\})+)\}$", tabular, re.MULTILINE)
    parts = re.split(r"^\\(?:top|mid|bottom)rule$", tabular, flags=re.MULTILINE)
    assert columns
    assert len(parts) in (4, 5)
    lines: list[str] = []
    for part in parts[1:-1]:
        lines += part.strip().splitlines()
    rows = [_latex_row(line) for line in lines]
    assert {len(row) for row in rows} == {len(re.findall(r"[lr]|p\{[^}]*\}", columns[1]))}
    return Read(latex_text(caption), [cell.text for cell in rows[0]], rows[1:])


def _latex_row(line: str) -> list[ReadCell]:
    assert line.endswith(r" \\")
    assert not re.match(r"\s*[\[*]", line)  # an option of the \\ or \midrule before it
    cells = [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))]
    return [ReadCell(latex_text(cell), r"\textbf{" in cell) for cell in cells]


def latex_text(source: str) -> str:
    """Return what LaTeX prints; an unescaped special, an unknown command or an open brace is an
    error.
    """
    depth = 0
    text = ""
    last = ""
    readable = source.replace(r"\ensuremath{-}", "-").replace(r"\char34", r"\char")

    for token in _TOKEN.findall(readable):
        assert token not in set("&%$#_^~"), f"unescaped {token} in {source}"
        if token in "{}":
            depth += {"{": 1, "}": -1}[token]
            assert depth >= 0
        elif token.startswith("\\"):
            assert token in _SYMBOLS or token in _SILENT, token
            text += _SYMBOLS.get(token, "")
        else:
            assert not re.search(r"--|''|,,", token)
            assert not set('|<>"`\n') & set(token)
            is_word = re.match(r"[A-Za-z0-9]", token)
            swallows = re.fullmatch(r"\\[A-Za-z]+", last)
            assert not (is_word and swallows), f"{last} swallows {token}"
            text += token
        last = token

    assert depth == 0
    return text


READERS = {"markdown": read_markdown, "latex": read_latex, "html": read_html}


def linear(colour: str) -> list[float]:
    """Return the red, green and blue light of an sRGB colour."""
    from matplotlib.colors import to_rgb

    return [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in to_rgb(colour)
    ]


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.1)."""
    shares = (0.2126, 0.7152, 0.0722)
    low, high = sorted(sum(map(mul, shares, linear(colour))) for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def check_texts(figure):
    """Draw a figure without pixels, check that all texts lie inside it, and return the texts."""
    from matplotlib.text import Text

    from glue_bench.pages.figure_style import paper_style

    with paper_style():
        figure.draw_without_rendering()
    undrawn = [label for axes in figure.axes for label in undrawn_labels(axes)]
    page = figure.bbox.padded(2)
    texts: list[str] = []
    for item in figure.findobj(Text):
        text = item.get_text()
        if not text or not item.get_visible() or item in undrawn:
            continue
        box = item.get_window_extent()
        assert page.count_contains(box.corners()) == 4, f"'{text}' is cut off: {box} of {page}"
        texts.append(text)
    return texts


def undrawn_labels(axes):
    """Return the labels of ticks that are not drawn, because they lie outside the axis."""
    labels = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                labels.append(tick.label1)
    return labels
