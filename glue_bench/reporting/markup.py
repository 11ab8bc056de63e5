"""The markup of a page's sentences: `**bold**` and `` `code` ``, nothing else, and neither within the other."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

Kind = Literal["plain", "bold", "code"]
_MARKED = re.compile(r"\*\*(?P<bold>[^*]+)\*\*|`(?P<code>[^`]+)`")


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


def convert(text: str, escape: Callable[[str], str], wrap: dict[Kind, Callable[[str], str]]) -> str:
    """A sentence in another markup: each run escaped, then wrapped as its kind is written there."""
    return "".join(wrap.get(kind, str)(escape(run)) for kind, run in spans(text))


def one_line(text: str) -> str:
    """Without line breaks: each ends a row in Markdown, and two end a paragraph in LaTeX."""
    return " ".join(text.splitlines())
