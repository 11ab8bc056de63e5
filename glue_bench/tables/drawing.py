"""How all figures look: a paper's column wide, read in grey, on light and dark pages; and their files.

An SVG has no ground and holds its own colours for dark pages. Colours differ in lightness, so that they stay apart in
grey, and their hues were chosen by a search so that they stay apart with each kind of colour blindness (Machado et al.
2009); the tests compute both, for light and for dark pages.
"""

import base64
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from glue_bench.files import write_atomically
from glue_bench.tables.table import short

COLUMN, WIDE = 3.25, 6.75  # inches: the width of one column of a paper, and of two with the space between them
DPI = 300
PIXELS = 1.9  # of CSS for a point of an SVG: text of 7 points is 13 pixels
INK, QUIET, LINE, PAPER = "#1b1b1b", "#595959", "#d0d0d0", "#ffffff"
CYCLE = ("#4c4ed6", "#bb730f", "#94105f", "#299bdf", "#5b2d05", "#dd1d4b")
"""Colours of series after INK, which is that of the reference. In this order the first few differ the most."""
ON_DARK = {
    **{INK: "#f2f2f2", QUIET: "#a8a8a8", LINE: "#4a4a4a", PAPER: "#161616"},
    **dict(zip(CYCLE, ("#3d9df2", "#edba2e", "#e73f9b", "#bcdafa", "#cf2a37", "#f78d92"), strict=True)),
}
"""What a dark page has in place of each colour."""
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TEXT, SMALL = 7.0, 6.0  # points: titles and labels; ticks and legends. Nothing is smaller.
NO_DATES: dict[str, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}
SETTINGS: dict[str, Any] = {
    **{"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": TEXT, "text.color": INK},
    **{"axes.titlesize": TEXT, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 4},
    **{"axes.labelsize": TEXT, "axes.labelcolor": INK, "axes.edgecolor": QUIET, "axes.linewidth": 0.6},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.labelpad": 3},
    **{"axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.4, "axes.formatter.useoffset": False},
    **{"xtick.labelsize": SMALL, "ytick.labelsize": SMALL, "xtick.color": QUIET, "ytick.color": QUIET},
    **{"xtick.labelcolor": INK, "ytick.labelcolor": INK, "xtick.major.size": 2.5, "ytick.major.size": 2.5},
    **{"xtick.major.width": 0.6, "ytick.major.width": 0.6, "legend.fontsize": SMALL, "legend.frameon": False},
    **{"legend.handlelength": 2.2, "legend.labelspacing": 0.3, "legend.columnspacing": 1.2, "legend.borderpad": 0.1},
    **{"lines.linewidth": 1.1, "lines.markersize": 3.5, "axes.facecolor": "none", "image.interpolation": "none"},
    **{"svg.hashsalt": "glue-bench", "svg.fonttype": "none", "pdf.fonttype": 42, "text.parse_math": False},
    # Its lightness rises evenly, so that grey print keeps the order; signed numbers have the grey of its middle at 0.
    # Nunez, Anderton & Renslow 2018, "Optimizing colormaps with consideration for color vision deficiency".
    **{"image.cmap": "cividis", "figure.dpi": DPI, "savefig.dpi": DPI},
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with the name of its file, what it is called, and a sentence below it.

    A page shows it `width` pixels wide, so that its text is as large as the page's, from an `address` that holds it.
    """

    name: str
    title: str
    figure: Figure
    caption: str = ""

    @property
    def width(self) -> int:
        return round(self.figure.get_figwidth() * 72 * PIXELS)

    @cached_property
    def address(self) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(drawn(self.figure, 'svg')).decode()}"


@contextmanager
def paper_style() -> Iterator[None]:
    """The settings under which figures are made and drawn, whatever the user's own are; also a decorator."""
    with style.context(["default", SETTINGS]):
        yield


def panels(count: int, height: float, abreast: int = 3, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of `height` inches, at most `abreast` side by side; `options` are of `subplots`.

    Up to two side by side fit a paper's column, more take its whole width.
    """
    columns = min(count, abreast)
    rows = ceil(count / columns)
    figure = Figure(figsize=(COLUMN if columns < 3 else WIDE, rows * height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count])


def arm_styles(arms: Sequence[str], reference: str = "") -> dict[str, dict[str, Any]]:
    """Colour, dashes and marker of each arm, by their order: the same for the same `arms` in every figure.

    The reference is drawn in ink. Of forty arms no two are alike.
    """
    styles: dict[str, dict[str, Any]] = {}
    if reference:
        styles[reference] = {"color": INK, "linestyle": "solid", "marker": MARKERS[0]}
    for place, arm in enumerate(arm for arm in dict.fromkeys(arms) if arm != reference):
        turn, colour = divmod(place, len(CYCLE))
        marker = MARKERS[(place + 1) % len(MARKERS)]
        styles[arm] = {"color": CYCLE[colour], "linestyle": DASHES[turn % len(DASHES)], "marker": marker}
    return styles


def legend_below(figure: Figure, handles: Sequence[Any] = ()) -> None:
    """A legend under the axes, of `handles` or else of all that has a label there, each once; the figure grows by it.

    It has as many columns as its longest label leaves room for.
    """
    labelled = [handle for axes in figure.axes for handle in axes.get_legend_handles_labels()[0]]
    by_label = {str(handle.get_label()): handle for handle in handles or labelled}
    labels = [fitted(label, 40) for label in by_label]
    inches = 0.36 + max(map(len, labels), default=0) * SMALL * 0.56 / 72
    columns = max(1, min(len(labels), int((figure.get_figwidth() - 0.1) / inches)))
    figure.set_figheight(figure.get_figheight() + 0.115 * ceil(len(labels) / columns))
    figure.legend(by_label.values(), labels, loc="outside lower center", ncols=columns)


def fitted(name: str, length: int = 24) -> str:
    """A name of at most so many characters: of a longer one both ends, as names of arms often differ in the last."""
    return name if len(name) <= length else f"{name[: length // 2]}…{name[length // 2 + 1 - length :]}"


def counted(axes: Axes) -> None:
    """Write the large numbers of the horizontal axis short, with the digits that tell its ticks apart: 22.75M, 131B."""
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: short(value, 6))


def drawn(figure: Figure, format: str) -> bytes:
    """The figure as the bytes of a file of that format: the same for the same figure, without dates.

    An SVG has pixels that make its text as large as a page's, and the colours of dark pages.
    """
    with paper_style(), io.BytesIO() as file:
        figure.set_dpi(DPI)  # vector formats leave a figure at 72, at which the next PNG would be drawn
        figure.patch.set_visible(format != "svg")
        canvas: Any = get_registered_canvas_class(format)(figure)
        if (engine := figure.get_layout_engine()) is not None:  # or every format would be laid out again
            engine.execute(figure)
            figure.set_layout_engine("none")
        getattr(canvas, f"print_{format}")(file, metadata=NO_DATES[format])
        content = file.getvalue()
    if format != "svg":
        return content
    kinds = product(ON_DARK.items(), ("stroke", "fill"))
    rules = "".join(f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}' for (light, dark), kind in kinds)
    rules = f":root{{color-scheme:light dark}}@media (prefers-color-scheme:dark){{{rules}}}</style>"
    svg = content.decode().replace("</style>", rules, 1)
    return re.sub(
        r'(width|height)="([\d.]+)pt"', lambda found: f'{found[1]}="{float(found[2]) * PIXELS:.0f}"', svg
    ).encode()


def save(figure: Figure, stem: Path) -> None:
    """Write the figure as `stem` with the suffix of each format, into a folder that is made if needed.

    Text stays text in SVG and is embedded as TrueType in PDF, as publishers want it.
    """
    for format in NO_DATES:
        write_atomically(stem.with_name(f"{stem.name}.{format}"), drawn(figure, format))
