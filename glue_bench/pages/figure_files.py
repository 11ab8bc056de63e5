"""The files of figures: PDF, SVG and PNG without dates, and an SVG within an HTML page.

An SVG has no background, and has other colours on a dark page.
"""

import base64
import io
import re
from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure

from glue_bench.files import results_written_to, write_atomically
from glue_bench.pages.figure_style import ON_DARK, paper_style
from glue_bench.pages.page import Drawing

NO_DATES: dict[str, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}
"""The formats, and the metadata to leave out: they would change the bytes of the same figure."""
PIXELS_PER_POINT = 1.9  # pixels of CSS for a point of an SVG: text of 7 points is 13 pixels
_SVG_POINTS = re.compile(r'="([\d.]+)pt"')


def figure_bytes(figure: Figure, format: str) -> bytes:
    """Draw a figure as a file; an SVG has text as large as a page's, light and dark."""
    with paper_style(), io.BytesIO() as file:
        figure.patch.set_visible(format != "svg")
        figure.savefig(file, format=format, metadata=NO_DATES[format])
        content = file.getvalue()
    if format != "svg":
        return content

    def in_pixels(match: re.Match[str]) -> str:
        return f'="{float(match[1]) * PIXELS_PER_POINT:.0f}"'

    svg = content.decode().replace("</style>", f"{dark_rules()}</style>", 1)
    return _SVG_POINTS.sub(in_pixels, svg).encode()


def dark_rules() -> str:
    """Write the rules of CSS that give an SVG other colours on a dark page."""
    rules = []
    for light, dark in ON_DARK.items():
        for kind in ("stroke", "fill"):
            rules.append(f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}')
    dark_only = f"@media (prefers-color-scheme:dark){{{''.join(rules)}}}"
    return f":root{{color-scheme:light dark}}{dark_only}"


def svg_address(figure: Figure) -> str:
    """Write an address that holds the figure itself, as SVG, for the `src` of an image."""
    content = base64.b64encode(figure_bytes(figure, "svg")).decode()
    return f"data:image/svg+xml;base64,{content}"


def width_in_pixels(figure: Figure) -> int:
    """Give the width of a figure on a page, in pixels of CSS."""
    return round(figure.get_figwidth() * 72 * PIXELS_PER_POINT)


def save_figure(figure: Figure, stem: Path) -> None:
    """Write a figure as `stem` with the suffix of each format; its folder is made if needed."""
    for format in NO_DATES:
        write_atomically(stem.with_name(f"{stem.name}.{format}"), figure_bytes(figure, format))


def save_drawings(drawings: Iterable[Drawing], folder: Path) -> None:
    """Write figures to the folder that a user chose, each as PDF, SVG and PNG."""
    place = folder.expanduser()
    with results_written_to(place, "choose another folder with --figures"):
        for drawing in drawings:
            save_figure(drawing.figure, place / drawing.name)
