"""Every figure of the README and of a results page stands in the tables, at the printed precision and with its sign.

A contrast (difference, interval, answer) must be one row of statistics.csv. Any other figure must be a value of the
folder's tables; the README may take from all of them, and from the papers' tables.
"""

import csv
import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("results/*/README.md")))]
KINDS = (
    "leaderboard.*",
    "statistics.*",
    "budget.*",
    "rates.csv",
    "scores.csv",
    "losses.csv",
    "tupe-1.md",
    "agreement*",
)
NUMBER = re.compile(r"(?<![\w.,/-])[-+]?\d[\d,]*(?:\.\d+)?(?: million|%|k\b|M\b)?(?![\w/]|[.-]\d)")
INTERVAL = re.compile(r"(?:([-+]\d+\.\d+)[^\d;]{1,60}(?:\d+% interval )?\(?)?([-+]\d+\.\d+) to ([-+]?\d+\.\d+)")
SENTENCE = re.compile(r"`([\w-]+)` is (better|worse) than `([\w-]+)` \(([-+][\d.]+) nats\)")
UNITS = {" million": 1e6, "M": 1e6, "k": 1e3}
ANSWERS = {"yes": True, "holds": True, "does not hold": True, "better": True, "worse": True, "not s": False}


class Figure(NamedTuple):
    """A figure of a page, and the words around it."""

    page: str
    text: str
    words: str


class Contrast(NamedTuple):
    """A difference of two arms as a page prints it; what it leaves out is empty."""

    page: str
    arms: tuple[str, str] | None
    difference: str
    interval: tuple[str, str] | None
    answer: str


def prose(page: str) -> str:
    """A page in one line, without code, links' targets and comments."""
    text = (ROOT / page).read_text("utf-8")
    text = re.sub(r"```.*?```|<!--.*?-->|<picture>.*?</picture>", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "", text)
    return re.sub(r"[ \t]*\n>?[ \t]*", " ", text)


def decimals(text: str) -> int:
    return len(text.strip(" milonMk%").partition(".")[2])


def is_shown(text: str, value: float) -> bool:
    """Whether a value is printed so; without a sign it may be a size."""
    unit = next((size for name, size in UNITS.items() if text.endswith(name)), 1.0)
    shown = float(text.strip(" milonMk%").replace(",", ""))
    near = 0.5 * 10 ** -decimals(text) + 1e-9
    return any(abs(one / unit - shown) <= near for one in ((value,) if text[0] in "+-" else (value, -value)))


# Contrasts


def contrasts(page: str) -> list[Contrast]:
    """The rows of tables that name two arms, and in sentences the intervals, and verdicts between two arms."""
    found = []
    for line in (ROOT / page).read_text("utf-8").splitlines():
        pair = re.search(r"\| +`?([\w-]+)`? - `?([\w-]+)`? +\|(.*)", line)
        numbers = re.findall(r"[-+]?\d+\.\d+", pair[3]) if pair else []
        if pair and len(numbers) >= 3:
            answer = next((cell.strip() for cell in pair[3].split("|") if re.match(r" *[a-z]{3}", cell)), "")
            found.append(Contrast(page, (pair[1], pair[2]), numbers[0], (numbers[1], numbers[2]), answer))
    text = re.sub(r"\|[^|]*(?=\|)", "", prose(page)) if found else prose(page)
    for difference, low, high in INTERVAL.findall(text):
        found.append(Contrast(page, None, difference, (low, high), ""))
    for arm, verdict, reference, difference in SENTENCE.findall(text):
        found.append(Contrast(page, (arm, reference), difference, None, verdict))
    for listed in re.findall(r"not shown to differ: (.*?)\.", text):
        pairs = re.findall(r"`([\w-]+)` and `([\w-]+)`", listed)
        found += [Contrast(page, pair, "", None, "not shown") for pair in pairs]
    return found


@cache
def statistics(page: str) -> list[dict[str, str]]:
    """The rows that a page may take from: those named beforehand first."""
    folders = (
        [(ROOT / page).parent]
        if page != "README.md"
        else [path.parent for path in sorted(ROOT.glob("results/*/statistics.csv"))]
    )
    texts = [(path / "statistics.csv").read_text("utf-8") for path in folders]
    rows = [row for text in texts for row in csv.DictReader(StringIO(text))]
    return sorted(rows, key=lambda row: row["kind"] != "declared")


def is_row(contrast: Contrast, row: dict[str, str]) -> bool:
    """Whether a row of statistics.csv has the contrast's numbers."""
    printed = [contrast.difference, *(contrast.interval or ("", ""))]
    columns = zip(printed, (row["difference"], row["low"], row["high"]), strict=True)
    return all(value and is_shown(signed(text), float(value)) for text, value in columns if text)


def signed(text: str) -> str:
    return text if text[0] in "+-" else f"+{text}"


def is_true(contrast: Contrast) -> bool:
    """Whether the row of its arms, or one where it names none, has its numbers and its answer."""
    rows = statistics(contrast.page)
    if contrast.arms:
        of_loss = [row for row in rows if row["column"] == "validation_loss"]
        mine = [row for row in of_loss if (row["arm"], row["reference"]) == contrast.arms]
        named = [row for row in mine if row["kind"] == "declared"]
        return any(is_row(contrast, row) and answers(contrast.answer, row["verdict"]) for row in named or mine)
    return any(is_row(contrast, row) for row in rows)


def answers(answer: str, verdict: str) -> bool:
    """Whether what a page says agrees with a verdict."""
    if answer in ("better", "worse"):
        return answer == verdict
    said = next((shown for words, shown in ANSWERS.items() if answer.startswith(words)), None)
    return said is None or said == bool(verdict)


# Other figures


@cache
def values(page: str) -> list[float]:
    """Every number of the tables that a page may take from."""
    folders = (
        [(ROOT / page).parent]
        if page != "README.md"
        else [path.parent for path in sorted(ROOT.glob("results/*/statistics.csv"))]
    )
    paths = [path for folder in folders for kind in KINDS for path in folder.glob(kind)]
    if page == "README.md":
        paths += ROOT.glob("glue_bench/**/papers/*.csv")
    found = set()
    for path in paths:
        text = path.read_text("utf-8")
        cells = re.split(r"[,\s]", text) if path.suffix == ".csv" else re.findall(r"[-+]?\d[\d,]*(?:\.\d+)?", text)
        known = (cell.replace(",", "") for cell in cells if re.fullmatch(r"[-+]?\d[\d,]*(\.\d+)?(e-?\d+)?", cell))
        found |= set(map(float, known))
    return sorted(found)


def figures(page: str) -> list[Figure]:
    """The numbers of a page with decimals, a sign, a unit or thousands; versions of programs are none."""
    text = re.sub(r"`[^`]*`|\b(?:torch|Python|recipe) \d[\d.]*", "` `", prose(page))
    return [
        Figure(page, found[0], text[max(0, found.start() - 30) : found.end() + 12])
        for found in NUMBER.finditer(text)
        if re.search(r"\.\d|^[-+]\d|,\d{3}|%|million|k|M", found[0])
    ]


def name(case: Contrast | Figure) -> str:
    return " ".join(map(str, case[:4]))


@pytest.mark.parametrize("contrast", [one for page in PAGES for one in contrasts(page)], ids=name)
def test_every_contrast_is_a_row_of_the_statistics(contrast):
    assert is_true(contrast)


@pytest.mark.parametrize("figure", [one for page in PAGES for one in figures(page)], ids=name)
def test_every_figure_stands_in_the_tables(figure):
    assert any(is_shown(figure.text, value) for value in values(figure.page)), figure.words
