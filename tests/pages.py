"""The README, the pages of docs/ and those of results/, and their blocks of code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "benchmarks/README.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted(ROOT.glob("results/*/README.md")),
        *sorted(ROOT.glob("results/*/METHODS.md")),
    ]
}


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
