"""Figures of an experiment, its contrasts and its losses; how all figures look, and their files.

They are a paper's column wide and are read in grey, on light and dark pages. An SVG has no ground and holds its own
colours for dark pages. Colours differ in lightness, so that they stay apart in grey, and their hues were chosen by a
search so that they stay apart with each kind of colour blindness (Machado et al. 2009); the tests compute both.
"""

import base64
import io
import re
from collections.abc import Sequence
from functools import partial
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_params_from_file, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from glue_bench.board.compare import Comparison
from glue_bench.data.measures import MEASURES
from glue_bench.files import write_atomically
from glue_bench.pages.numbers import short

COLUMN, WIDE = (
    3.25,
    6.75,
)  # inches: the width of one column of a paper, and of two with the space between them
STYLE: Any = rc_params_from_file(
    Path(__file__).with_name("figures.mplstyle"), use_default_template=False
)
INK, QUIET, LINE, PAPER = (
    STYLE["text.color"],
    STYLE["axes.edgecolor"],
    STYLE["grid.color"],
    "#ffffff",
)
PIXELS = 1.9  # of CSS for a point of an SVG: text of 7 points is 13 pixels
SMALL = STYLE["legend.fontsize"]
CYCLE = ("#4c4ed6", "#bb730f", "#94105f", "#299bdf", "#5b2d05", "#dd1d4b")
"""Colours of series after INK, which is that of the reference. In this order the first few differ the most."""
_DARK = (
    "#f2f2f2",
    "#a8a8a8",
    "#4a4a4a",
    "#161616",
    "#3d9df2",
    "#edba2e",
    "#e73f9b",
    "#bcdafa",
    "#cf2a37",
    "#f78d92",
)
ON_DARK = dict(zip((INK, QUIET, LINE, PAPER, *CYCLE), _DARK, strict=True))
"""What a dark page has in place of each colour."""
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
NO_DATES: dict[str, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}
BAND, CROWDED = (
    0.18,
    8,
)  # opacity of the band around a line; more lines have no bands, and more points no markers
UNPLANNED = "*"
VERDICTS: dict[str, dict[str, Any]] = {
    "better": {"label": "better", "marker": "^", "color": CYCLE[0]},
    "worse": {"label": "worse", "marker": "v", "color": CYCLE[1]},
    "": {"label": "not told apart", "marker": "o", "color": INK, "markerfacecolor": PAPER},
    "none": {"label": "no interval", "marker": "x", "color": QUIET},
}
"""How the contrasts of a verdict are drawn, and its name in the legend."""

paper_style = partial(style.context, ["default", STYLE])
"""The settings under which figures are made and drawn, whatever the user's own are: a context or a decorator."""


def panels(
    count: int, height: float, abreast: int = 3, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of `height` inches; more than two `abreast` take a paper's whole width."""
    columns = min(count, abreast)
    rows = ceil(count / columns)
    figure = Figure(figsize=(COLUMN if columns < 3 else WIDE, rows * height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count])


def arm_styles(arms: Sequence[str], reference: str = "") -> dict[str, dict[str, Any]]:
    """Colour, dashes and marker of each arm, by their order, the reference in ink; of forty arms no two are alike.

    Dashes change with each arm, so that a line shows through another one that lies on it.
    """
    styles: dict[str, dict[str, Any]] = {
        reference: {"color": INK, "linestyle": "solid", "marker": MARKERS[0]}
    }
    for place, arm in enumerate(arm for arm in dict.fromkeys(arms) if arm != reference):
        turn, colour = divmod(place, len(CYCLE))
        marker = MARKERS[(place + 1) % len(MARKERS)]
        styles[arm] = {
            "color": CYCLE[colour],
            "linestyle": DASHES[(turn + place) % len(DASHES)],
            "marker": marker,
        }
    return styles


def legend_below(figure: Figure, handles: Sequence[Any] = ()) -> Figure:
    """The figure, taller by a legend under the axes, of `handles` or of all that has a label there, each once."""
    labelled = [handle for axes in figure.axes for handle in axes.get_legend_handles_labels()[0]]
    by_label = {str(handle.get_label()): handle for handle in handles or labelled}
    labels = [fitted(label, 40) for label in by_label]
    inches = 0.36 + max(map(len, labels), default=0) * SMALL * 0.56 / 72
    columns = max(1, min(len(labels), int((figure.get_figwidth() - 0.1) / inches)))
    figure.set_figheight(figure.get_figheight() + 0.115 * ceil(len(labels) / columns))
    figure.legend(by_label.values(), labels, loc="outside lower center", ncols=columns)
    return figure


def fitted(name: str, length: int = 24) -> str:
    """A name of at most so many characters: of a longer one both ends, as names of arms often differ in the last."""
    return (
        name if len(name) <= length else f"{name[: length // 2]}…{name[length // 2 + 1 - length :]}"
    )


def drawn(figure: Figure, format: str) -> bytes:
    """A file without dates, the same for the same figure; an SVG with text as large as a page's, light and dark."""
    with paper_style(), io.BytesIO() as file:
        figure.patch.set_visible(format != "svg")
        figure.savefig(file, format=format, metadata=NO_DATES[format])
        content = file.getvalue()
    if format != "svg":
        return content
    kinds = product(ON_DARK.items(), ("stroke", "fill"))
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}' for (light, dark), kind in kinds
    )
    rules = f":root{{color-scheme:light dark}}@media (prefers-color-scheme:dark){{{rules}}}</style>"
    svg = content.decode().replace("</style>", rules, 1)
    return re.sub(
        r'="([\d.]+)pt"', lambda match: f'="{float(match[1]) * PIXELS:.0f}"', svg
    ).encode()


def svg_address(figure: Figure) -> str:
    """An address that holds the figure itself, as SVG, for the `src` of an image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn(figure, 'svg')).decode()}"


def width_in_pixels(figure: Figure) -> int:
    """How wide a page shows a figure, in pixels of CSS."""
    return round(figure.get_figwidth() * 72 * PIXELS)


def save(figure: Figure, stem: Path) -> None:
    """Write the figure as `stem` with the suffix of each format, into a folder that is made if needed."""
    for format in NO_DATES:
        write_atomically(stem.with_name(f"{stem.name}.{format}"), drawn(figure, format))


# Contrasts


def forest_rows(comparison: Comparison, column: str) -> pd.DataFrame:
    """The contrasts of a column: planned, difference, low, high, verdict, and `seeds`, the difference in each seed.

    The planned ones come first, as the protocol has them, then the others, the best one on top.
    """
    frame = comparison.contrasts[comparison.contrasts["column"] == column]
    frame = frame.assign(planned=frame["kind"] == "declared")
    rest = frame[~frame["planned"]].sort_values(
        "difference", ascending=MEASURES[column].lowest_is_best, kind="stable"
    )
    rows = pd.concat([frame[frame["planned"]], rest]).drop_duplicates(["arm", "reference"])
    estimates, seeds = comparison.estimates(column), list[Any]()
    for pair in zip(rows["arm"], rows["reference"], strict=True):
        seeds.append(
            next((one.differences(*pair) for one in estimates if {*pair} <= {*one.arms}), [])
        )
    return rows.assign(seeds=seeds).set_index(["arm", "reference"])


@paper_style()
def forest(comparison: Comparison, columns: Sequence[str]) -> Figure:
    """Contrasts with their intervals and a dot for each seed, a panel for each column; of one the differences, too.

    Rows are in the order of the primary column, or of the first one while that has none; those that were not planned
    stand apart. A line is the interval; its marker says the verdict.
    """
    frames = (forest_rows(comparison, column) for column in (comparison.primary, *columns))
    first, alone = next(rows for rows in frames if len(rows)), len(columns) == 1
    unplanned = ~first["planned"].to_numpy(bool) & bool(first["planned"].any())
    places = np.arange(len(first)) + 0.5 * unplanned
    pairs = [f"{fitted(arm, 18)} - {fitted(reference, 14)}" for arm, reference in first.index]
    names = [name + UNPLANNED * star for name, star in zip(pairs, unplanned.tolist(), strict=True)]
    height = 0.62 + 0.14 * max(len(first), 2) if alone else 0.64 + 0.105 * len(first)
    figure, grid = panels(len(columns), height, 4, sharey=True)
    kinds = set[str]()
    for axes, column in zip(grid, columns, strict=True):
        rows = forest_rows(comparison, column).reindex(first.index).assign(place=places)
        kinds |= _intervals(
            axes, rows.assign(verdict=rows["verdict"].where(rows["low"].notna(), "none"))
        )
        axes.set_yticks(places, names)
        title = comparison.board.title_of(column)
        measure = MEASURES[column]
        label: str = measure.unit
        if alone:
            title = f"Contrasts: {title}"
            if measure.lowest_is_best:
                label += "; left of 0 the first is better"
            for place, value in zip(places, rows["difference"], strict=True):
                text = "not run" if np.isnan(value) else f"{value:+z.{measure.decimals}f}"
                axes.annotate(
                    text, (1.02, place), xycoords=("axes fraction", "data"), va="center", size=SMALL
                )
        axes.set(title=title, xlabel=label, ylim=(places.max() + 0.7, -0.6))
    looks = [
        {"linestyle": "none", **look} for verdict, look in VERDICTS.items() if verdict in kinds
    ]
    looks += [{"label": "95% interval", "color": INK}]
    looks += [
        {"label": "a seed", "color": INK, "marker": ".", "markersize": 2, "linestyle": "none"}
    ]
    looks += [{"label": f"{UNPLANNED} not planned", "linestyle": "none"}] if unplanned.any() else []
    return legend_below(figure, [Line2D([], [], **look) for look in looks])


def _intervals(axes: Axes, rows: pd.DataFrame) -> set[str]:
    """Draw the rows of a forest that have a difference, each at its `place`; their verdicts."""
    axes.axvline(0, color=INK, linewidth=0.6, linestyle=(0, (1, 2)))
    groups = rows.dropna(subset="difference").groupby("verdict")
    for verdict, group in groups:
        look = VERDICTS[str(verdict)]
        seeds = np.repeat(group["place"] + 0.33, group["seeds"].map(len))
        axes.hlines(group["place"], group["low"], group["high"], color=look["color"])
        axes.plot(
            np.concatenate(group["seeds"].to_list()), seeds, ".", color=look["color"], markersize=2
        )
        axes.plot(group["difference"], group["place"], linestyle="none", markersize=3, **look)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return {str(verdict) for verdict in groups.groups}


# Losses


@paper_style()
def losses(comparison: Comparison) -> Figure:
    """The validation loss against the tokens seen, and beside it the gap to the reference in the same seed.

    The training loss stands in where none was measured. A line is the mean over seeds, its band goes from the lowest to
    the highest seed. The legend begins with the lowest last loss.
    """
    frame, reference = (
        comparison.board.results.losses,
        next((one.reference for one in comparison.assessed), ""),
    )
    name = "validation_loss" if frame["validation_loss"].notna().any() else "train_loss"
    wide = frame.pivot_table(name, "step", ["arm", "pretraining_seed"])
    tokens = frame.groupby("step")["tokens"].mean()
    styles = arm_styles(comparison.board.arms, reference)
    arms = [
        str(arm) for arm in wide.ffill().iloc[-1].groupby(level="arm").mean().sort_values().index
    ]
    figure, grid = panels(2 if reference in wide else 1, 2.0)
    figure.set_figwidth(WIDE)
    for axes, less in zip(grid, ("", reference), strict=False):
        for arm in arms:
            curves = pd.DataFrame(wide[arm] - wide[less] if less else wide[arm]).dropna(how="all")
            x = tokens[curves.index]
            look = styles[arm] | ({"marker": ""} if len(curves) > CROWDED else {})
            axes.plot(x, curves.mean(axis=1), label=arm, **look)
            if len(arms) <= CROWDED:
                low, high = curves.min(axis=1), curves.max(axis=1)
                axes.fill_between(x, low, high, color=look["color"], alpha=BAND, linewidth=0)
        axes.set(
            xlabel="tokens seen",
            xlim=(0, None),
            ylabel="nats; below 0 is better" if less else "nats",
        )
        axes.set_title(f"Gap to {fitted(less)}" if less else MEASURES[name].title)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(
            lambda value, _: short(value, 6)
        )  # digits that tell ticks apart: 22.75M, 131B
    return legend_below(figure)


def result_figures(comparison: Comparison) -> dict[str, bytes]:
    """The pictures that stand beside the tables of committed results, by the names of their files."""
    contrasts = forest(comparison, [comparison.primary])
    contrasts.axes[0].axvspan(
        -0.05, 0.05, color=INK, alpha=0.1, linewidth=0
    )  # too small to matter, in nats
    figures = {"contrasts.svg": contrasts}
    if len(comparison.board.results.losses):
        figures["loss.svg"] = losses(comparison)
    return {name: drawn(figure, "svg") for name, figure in figures.items()}
