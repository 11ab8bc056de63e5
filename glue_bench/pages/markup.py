"""Plain text and sentences as Markdown, LaTeX and HTML: nothing in them is taken for markup.

Sentences may hold `**bold**` and `` `code` ``, neither within the other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import escape

from glue_bench.pages.page import BETTER, WORSE, one_line

_MARKED = re.compile(r"\*\*([^*]+)\*\*|`([^`]+)`")
# An underscore between letters or digits marks nothing in Markdown, nor does an ampersand that
# begins no entity; number signs are taken off the end of a heading.
_MARKDOWN = re.compile(r"[\\`*|>\[\]~$]|<(?=[\w/!?])|(?<![^\W_])_|_(?![^\W_])|&(?=#|\w+;)|#(?=#*$)")
# In escaped text, where other entities end an address.
_LINK = re.compile(r"https?://(?:[^\s()<>&]|&amp;)*[\w/]")
_LATEX = str.maketrans({
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
    '"': r"\char34{}",
    "[": "{[}", "*": "{*}",  # after \\ and \midrule they would be taken for an option
    "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}", "◇": r"$\diamond$", "±": r"$\pm$",
    "§": r"\S{}", "°": r"\textdegree{}", "–": r"\textendash{}",  # noqa: RUF001
    "\N{MINUS SIGN}": "$-$", BETTER: r"$\uparrow$", WORSE: r"$\downarrow$",
})  # fmt: skip
_LIGATURE = re.compile(r"([-',])(?=\1)")


def escape_markdown(text: str) -> str:
    """Write a text so that Markdown shows it as it is."""
    return _MARKDOWN.sub(r"\\\g<0>", text)


def escape_latex(text: str) -> str:
    """Write a text so that LaTeX shows it as it is."""
    return _LIGATURE.sub(r"\1{}", text.translate(_LATEX))


def escape_html(text: str) -> str:
    """Write a text so that HTML shows it as it is, with its addresses as links."""
    return _LINK.sub(r'<a href="\g<0>">\g<0></a>', str(escape(text)))


def keep(text: str) -> str:
    """Return the text itself: code in Markdown needs no escapes."""
    return text


@dataclass(frozen=True)
class Markup:
    """How a format writes a sentence: plain text, the text of code, bold and code."""

    escape: Callable[[str], str]
    escape_code: Callable[[str], str]
    bold: str
    code: str


MARKUPS = {
    "markdown": Markup(escape_markdown, keep, "**{}**", "`{}`"),
    "latex": Markup(escape_latex, escape_latex, r"\textbf{{{}}}", r"\texttt{{{}}}"),
    "html": Markup(escape_html, escape_html, "<strong>{}</strong>", "<code>{}</code>"),
}


def sentence(text: str, format: str = "markdown") -> str:
    """Write a sentence with its bold and its code in one of MARKUPS."""
    markup = MARKUPS[format]
    line = one_line(text)
    parts = []
    end = 0
    for match in _MARKED.finditer(line):
        parts.append(markup.escape(line[end : match.start()]))
        end = match.end()
        bold, code = match.groups()
        if code:
            parts.append(markup.code.format(markup.escape_code(code)))
        else:
            parts.append(markup.bold.format(markup.escape(bold)))
    parts.append(markup.escape(line[end:]))
    return "".join(parts)
