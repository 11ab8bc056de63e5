"""Figures of an experiment, and how all figures look: a paper's column wide, read in grey, on light and dark pages.

An SVG has no ground and holds its own colours for dark pages. Colours differ in lightness, so that they stay apart in
grey, and their hues were chosen by a search so that they stay apart with each kind of colour blindness (Machado et al.
2009); the tests compute both, for light and for dark pages.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from glue_bench.files import write_atomically
from glue_bench.tables.board import steps_frame
from glue_bench.tables.compare import Comparison
from glue_bench.tables.numbers import decimals_of, short, title_of

COLUMN, WIDE = 3.25, 6.75
"""Inches: the width of one column of a paper, and of two with the space between them."""
DPI = 300
PIXELS = 1.9
"""CSS pixels for a point of an SVG: text of 7 points is 13 pixels."""
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
BAND = 0.18
"""Opacity of the band around a line."""
FEW = 8
"""With more arms their bands hide each other and are left out."""
TEXT, SMALL = 7.0, 6.0
"""Sizes of text in points: of titles and labels, and of ticks and legends. Nothing is smaller."""
FORMATS = ("svg", "pdf", "png")
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


# How figures look


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
    others = [arm for arm in dict.fromkeys(arms) if arm != reference]
    looks = [
        (CYCLE[place % len(CYCLE)], DASHES[place // len(CYCLE) % len(DASHES)], MARKERS[(place + 1) % len(MARKERS)])
        for place in range(len(others))
    ]
    chosen = dict(zip(others, looks, strict=True)) | ({reference: (INK, "solid", MARKERS[0])} if reference else {})
    return {arm: dict(zip(("color", "linestyle", "marker"), look, strict=True)) for arm, look in chosen.items()}


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend under the axes, in as many columns as its longest label leaves room for; the figure grows by it."""
    labels = [fitted(label, 40) for label in labels]
    inches = 0.36 + max(map(len, labels), default=0) * SMALL * 0.56 / 72
    columns = max(1, min(len(labels), int((figure.get_figwidth() - 0.1) / inches)))
    figure.set_figheight(figure.get_figheight() + 0.115 * ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def fitted(name: str, length: int = 24) -> str:
    """A name of at most so many characters: of a longer one both ends, as names of arms often differ in the last."""
    return name if len(name) <= length else f"{name[: length // 2]}…{name[length // 2 + 1 - length :]}"


def counted(axes: Axes) -> None:
    """Write the large numbers of the horizontal axis short, with the digits that tell its ticks apart: 22.75M, 131B."""
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: short(value, 6))


def drawn(figure: Figure, format: str) -> bytes:
    """The figure as the bytes of a file of that format: the same for the same figure, without dates."""
    with paper_style(), io.BytesIO() as file:
        figure.set_dpi(DPI)  # vector formats leave a figure at 72, at which the next PNG would be drawn
        figure.patch.set_visible(format != "svg")
        canvas: Any = get_registered_canvas_class(format)(figure)
        if (engine := figure.get_layout_engine()) is not None:  # or every format would be laid out again
            engine.execute(figure)
            figure.set_layout_engine("none")
        getattr(canvas, f"print_{format}")(file, metadata=NO_DATES[format])
        return _for_pages(file.getvalue().decode()).encode() if format == "svg" else file.getvalue()


def _for_pages(svg: str) -> str:
    """With the colours of dark pages, in pixels that make its text as large as a page's."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in ON_DARK.items()
        for kind in ("stroke", "fill")
    )
    dark = f":root{{color-scheme:light dark}}@media (prefers-color-scheme:dark){{{rules}}}"
    svg = svg.replace("</style>", f"{dark}</style>", 1)
    return re.sub(r'(width|height)="([\d.]+)pt"', lambda found: f'{found[1]}="{float(found[2]) * PIXELS:.0f}"', svg)


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write the figure as `stem` with each format's suffix, into a folder that is made if needed; the paths written.

    Text stays text in SVG and is embedded as TrueType in PDF, as publishers want it.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{format}") for format in formats]
    for path, format in zip(paths, formats, strict=True):
        write_atomically(path, drawn(figure, format))
    return paths


# Figures of an experiment

VERDICTS = {
    "better": ("better", "^", CYCLE[0], CYCLE[0]),
    "worse": ("worse", "v", CYCLE[1], CYCLE[1]),
    "": ("not told apart", "o", INK, PAPER),
    "none": ("no interval", "x", QUIET, QUIET),
}
"""How the contrasts of a verdict are drawn: its name in the legend, marker, colour and the marker's face."""
UNPLANNED = "*"


@paper_style()
def forest(comparison: Comparison, column: str) -> Figure:
    """The contrasts of a column with their intervals, a dot for each seed, and the difference as a number.

    The planned ones come first, as the protocol has them, then the others, the best one on top, with UNPLANNED behind
    their names. A line is the interval; its marker says the verdict in shape and colour.
    """
    rows = forest_rows(comparison, column)
    figure, (axes,) = panels(1, 0.62 + 0.14 * max(len(rows), 2))
    kinds = _forest(axes, rows)
    unit, decimals = "nats; left of 0 the first is better" if "loss" in column else "points", decimals_of(column)
    axes.set(title=f"Contrasts: {comparison.board.title_of(column)}", xlabel=unit)
    for place, difference in zip(_places(rows), rows["difference"], strict=True):
        text = "not run" if np.isnan(difference) else f"{difference:+z.{decimals}f}"
        axes.annotate(text, (1.02, place), xycoords=("axes fraction", "data"), va="center", size=SMALL)
    _forest_legend(figure, kinds, planned=bool(rows["planned"].any()) and not rows["planned"].all())
    return figure


@paper_style()
def forests(comparison: Comparison, columns: Sequence[str]) -> Figure:
    """As `forest`, a panel for each column, its rows in the order of those of the primary column."""
    first = forest_rows(comparison, comparison.primary)["name"]
    figure, grid = panels(len(columns), 0.64 + 0.105 * len(first), 4, sharey=True)
    kinds: set[str] = set()
    for axes, column in zip(grid, columns, strict=True):
        kinds |= _forest(axes, forest_rows(comparison, column).set_index("name").reindex(first).reset_index())
        axes.set(title=comparison.board.title_of(column), xlabel="nats" if "loss" in column else "points")
    _forest_legend(figure, kinds, planned=False)
    return figure


def forest_rows(comparison: Comparison, column: str) -> pd.DataFrame:
    """The rows of a forest: name, planned, difference, low, high, verdict, and `seeds`, the difference in each seed."""
    frame = comparison.contrasts[comparison.contrasts["column"] == column]
    frame = frame.assign(planned=frame["kind"] == "declared")
    rest = frame[~frame["planned"]].sort_values("difference", ascending="loss" in column, kind="stable")
    rows = pd.concat([frame[frame["planned"]], rest]).drop_duplicates(["arm", "reference"])
    estimates = [one for each in comparison.assessed for one in each.estimates if one.column == column]
    pairs = list(zip(rows["arm"], rows["reference"], strict=True))
    seeds: list[Any] = [
        next((one.differences(*pair) for one in estimates if {*pair} <= {*one.arms}), []) for pair in pairs
    ]
    star = rows["planned"].map({True: "", False: UNPLANNED if rows["planned"].any() else ""})
    names = [f"{fitted(arm, 18)} - {fitted(reference, 14)}" for arm, reference in pairs]
    return rows.assign(name=names + star, seeds=seeds).reset_index(drop=True)


def _forest(axes: Axes, rows: pd.DataFrame) -> set[str]:
    """Draw one column; the verdicts that were drawn."""
    rows = rows.assign(place=_places(rows), verdict=rows["verdict"].where(rows["low"].notna(), "none"))
    axes.axvline(0, color=INK, linewidth=0.6, linestyle=(0, (1, 2)))
    known = dict(list(rows.dropna(subset="difference").groupby("verdict")))
    for verdict, mine in known.items():
        _, marker, colour, face = VERDICTS[str(verdict)]
        seeds = np.repeat(mine["place"] + 0.33, mine["seeds"].map(len))
        axes.hlines(mine["place"], mine["low"], mine["high"], color=colour)
        axes.plot(np.concatenate(mine["seeds"].to_list()), seeds, ".", color=colour, markersize=2)
        axes.plot(mine["difference"], mine["place"], marker, color=colour, markerfacecolor=face, markersize=3)
    axes.set_yticks(rows["place"], list(rows["name"]))
    axes.set_ylim(rows["place"].max() + 0.7, -0.6)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return {str(verdict) for verdict in known}


def _places(rows: pd.DataFrame) -> np.ndarray:
    """Where the rows stand, with a little room above those that were not planned."""
    return np.arange(len(rows)) + 0.5 * (rows["planned"].any() & ~rows["planned"].to_numpy(bool))


def _forest_legend(figure: Figure, kinds: set[str], *, planned: bool) -> None:
    looks = [look for verdict, look in VERDICTS.items() if verdict in kinds]
    handles = [
        Line2D([], [], marker=marker, color=colour, markerfacecolor=face, linestyle="none")
        for _, marker, colour, face in looks
    ]
    labels = [look[0] for look in looks]
    handles += [Line2D([], [], color=INK), Line2D([], [], color=INK, marker=".", markersize=2, linestyle="none")]
    labels += ["95% interval", "a seed"]
    if planned:
        handles.append(Line2D([], [], linestyle="none"))
        labels.append(f"{UNPLANNED} not planned")
    legend_below(figure, handles, labels)


@paper_style()
def losses(comparison: Comparison) -> Figure:
    """The validation loss against the tokens seen, and beside it the gap to the reference in the same seed.

    The training loss stands in where none was measured. A line is the mean over seeds, its band goes from the lowest to
    the highest seed. The legend begins with the lowest last loss.
    """
    frame = comparison.board.results.losses
    name = "validation_loss" if frame["validation_loss"].notna().any() else "train_loss"
    reference = reference_of(comparison)
    wide = frame.pivot_table(name, "step", ["arm", "pretraining_seed"], sort=False)
    tokens = frame.groupby("step")["tokens"].mean()
    styles = arm_styles(comparison.board.arms, reference)
    arms = [str(arm) for arm in wide.ffill().iloc[-1].groupby(level="arm").mean().sort_values().index]
    figure, grid = panels(2 if reference in wide else 1, 2.0)
    figure.set_figwidth(WIDE)
    lines = dict[str, Line2D]()
    for axes, less in zip(grid, ("", reference), strict=False):
        for arm in arms:
            curves = pd.DataFrame(wide[arm] - wide[less] if less else wide[arm]).dropna(how="all")
            x, look = tokens[curves.index], styles[arm] | ({"marker": ""} if len(curves) > FEW else {})
            (lines[arm],) = axes.plot(x, curves.mean(axis=1), **look)
            if len(arms) <= FEW:
                low, high = curves.min(axis=1), curves.max(axis=1)
                axes.fill_between(x, low, high, color=look["color"], alpha=BAND, linewidth=0)
        axes.set(xlabel="tokens seen", xlim=(0, None), ylabel="nats; below 0 is better" if less else "nats")
        axes.set_title(f"Gap to {fitted(less)}" if less else title_of(name))
        counted(axes)
    legend_below(figure, list(lines.values()), arms)
    return figure


@paper_style()
def loss_by_parameters(comparison: Comparison) -> Figure:
    """The last validation loss of each arm against the parameters of its encoder; a dot is a seed."""
    results, reference = comparison.board.results, reference_of(comparison)
    runs = results.pretrainings[~results.pretrainings["is_search"]].dropna(subset="validation_loss")
    styles, losses_of = arm_styles(comparison.board.arms, reference), dict(list(runs.groupby("arm")["validation_loss"]))
    parameters: dict[Any, int] = results.arms["parameters"].to_dict()
    arms = sorted(map(str, losses_of), key=lambda arm: losses_of[arm].mean())
    figure, (axes,) = panels(1, 2.0)
    axes.set(title="Val. loss by parameters", xlabel="parameters of the encoder", ylabel="nats, lower is better")
    points = []
    for arm in arms:
        size, mine = parameters[arm], losses_of[arm]
        axes.plot([size] * len(mine), mine, ".", color=styles[arm]["color"], markersize=2)
        points += axes.plot(size, mine.mean(), **styles[arm] | {"linestyle": "none"})
    counted(axes)
    legend_below(figure, points, arms)
    return figure


@paper_style()
def scores_by_steps(comparison: Comparison, columns: Sequence[str]) -> Figure:
    """Means over seeds of each arm against the steps of pretraining before fine-tuning, a panel for each column."""
    frame, styles = steps_frame(comparison.board), arm_styles(comparison.board.arms, reference_of(comparison))
    figure, grid = panels(len(columns), 1.5)
    lines = dict[str, Line2D]()
    for axes, column in zip(grid, columns, strict=True):
        for arm, mine in frame.groupby("arm", sort=False):
            (lines[str(arm)],) = axes.plot(mine["steps"], mine[column], **styles[str(arm)])
        axes.set(title=comparison.board.title_of(column), xlabel="steps of pretraining", ylabel="score (0 to 100)")
        counted(axes)
    legend_below(figure, list(lines.values()), list(lines))
    return figure


def reference_of(comparison: Comparison) -> str:
    """The arm that the others are compared with; of several the first, "" where nothing is compared."""
    return next((one.group.reference for one in comparison.assessed), "")


def result_figures(comparison: Comparison) -> dict[str, bytes]:
    """The pictures that stand beside the tables of committed results, by the names of their files."""
    figures = {"contrasts.svg": forest(comparison, comparison.primary)}
    if len(comparison.board.results.losses):
        figures["loss.svg"] = losses(comparison)
    return {name: drawn(figure, "svg") for name, figure in figures.items()}
