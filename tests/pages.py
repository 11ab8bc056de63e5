"""The README, the pages of docs/ and those of results/: their blocks of code, and outputs with where they come from."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("results/*/README.md"))]
}
README = PAGES["README.md"]
KINDS = ("from", "made by", "after the demo")
_SHOWN = re.compile(rf"<!-- ({'|'.join(KINDS)}): (.+?) -->\n(```\w*\n.*?\n```\n|(?:[|>][^\n]*\n)+)", re.DOTALL)
_MASKED = [
    (re.compile(r"(?<=, on ).+(?= \(cpu\))"), "a processor"),
    (re.compile(r"\b[0-9a-f]{12}\b|[-+]?\d[\d.,:]*"), "#"),
    (re.compile(r"[*▲▼‡]|-{3,}:?"), ""),
]


class Shown(NamedTuple):
    """An output in a page: `kind` and `source` say where it comes from."""

    page: str
    kind: str
    source: str
    block: str

    @property
    def pieces(self) -> list[str]:
        """What has to be in the source: each line; of a quotation, which is wrapped, what stands between `...`."""
        lines = [line for line in self.block.splitlines() if not line.startswith("```")]
        if self.block.startswith(">"):
            lines = " ".join(line.removeprefix(">") for line in lines).split("...")
        return [piece for line in lines if (piece := squeezed(line))]


def page(name: str) -> str:
    """A page of docs/."""
    return PAGES[f"docs/{name}.md"]


def blocks(language: str, text: str | None = None) -> list[str]:
    """The code of all blocks of a language, of one page or of all of them."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text or "\n".join(PAGES.values()), re.DOTALL | re.MULTILINE)
    return [code for named, code in fences if named == language]


def block(language: str, text: str, holding: str = "") -> str:
    """The first block of a language in a page that holds these words."""
    return next(code for code in blocks(language, text) if holding in code)


def shown(kind: str) -> list[Shown]:
    """The outputs of one kind in all pages."""
    return [Shown(name, *found) for name, text in PAGES.items() for found in _SHOWN.findall(text) if found[0] == kind]


def squeezed(text: str) -> str:
    """Words with one space between them: columns may be wider in the source."""
    return " ".join(text.split())


def masked(text: str) -> str:
    """Without what another machine may have otherwise: numbers, hashes, marks, processor, and the width of columns."""
    for pattern, instead in _MASKED:
        text = pattern.sub(instead, text)
    return squeezed(text)
