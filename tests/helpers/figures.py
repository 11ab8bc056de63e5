"""The figures of a page: how they are found in its text, and when a value is printed as one."""

import re
from collections.abc import Iterator

import numpy as np

NUMBER = re.compile(r"(?<![\w.,/-])[-+]?\d[\d,]*(?:\.\d+)?(?: million|%|k\b|M\b)?(?![\w/]|[.-]\d)")
UNITS = {" million": 1e6, "M": 1e6, "k": 1e3, "%": 1.0}


def figures_in(text: str) -> Iterator[re.Match[str]]:
    """Yield the numbers of a text with decimals, a sign, a unit or thousands."""
    for number in NUMBER.finditer(text):
        if re.search(r"\.\d|^[-+]\d|,\d{3}|%|million|k|M", number[0]):
            yield number


def is_shown(text: str, values: float | np.ndarray) -> bool:
    """Return whether one of the values is printed as this text; without a sign the text may be a
    size.
    """
    unit = next((unit for unit in UNITS if text.endswith(unit)), "")
    number = text.removesuffix(unit).replace(",", "")
    signs = (1,) if text[0] in "+-" else (1, -1)
    decimals = len(number.partition(".")[2])
    half_step = 0.5 * 10**-decimals + 1e-9
    scale = UNITS.get(unit, 1.0)
    printed = float(number)
    scaled = np.asarray(values) / scale
    return any(np.any(np.abs(sign * scaled - printed) <= half_step) for sign in signs)


def prose(text: str) -> str:
    """Return a text without code, comments, addresses, versions of programs and marks of quotes."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^> ", "", text, flags=re.MULTILINE).replace("\n", " ")
    text = re.sub(r"`([-+\d.,%]+(?: to [-+\d.,%]+)?)`", r"\1", text)  # a figure, and no code
    return re.sub(r"\]\([^)]*\)|https?://\S+|`[^`]*`|\b(?:torch|Python) \d[\d.]*", " ", text)
