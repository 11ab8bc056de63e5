"""The figures of an analysis, each drawn from a tidy frame alone, so that a report can redraw them later."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from glue_bench.errors import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_formats(given: str) -> list[str]:
    """The formats of figures that a text such as `svg,png` names; none of `none`.

    Raises:
        UserError: a format that there is not.
    """
    from glue_bench.reporting.figures.save import FORMATS

    formats = [] if given == "none" else given.split(",")
    for format in formats:
        if format not in FORMATS:
            raise unknown("format of figures", format, [*FORMATS, "none"])
    return formats


def write_figures(frames: Mapping[str, pd.DataFrame], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every figure that the frames have numbers for, in each of the formats; the paths written."""
    from glue_bench.reporting.figures.save import save

    return [path for name, draw in figures_of(frames) for path in save(draw(), folder / name, formats)]


def figures_of(frames: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, Callable[[], "Figure"]]]:
    """Each figure's name and how it is drawn; panels of terms apart for each checkpoint."""
    from glue_bench.reporting.figures import decoding, tables, terms

    of_all = {
        "positions_cosine": tables.position_cosines,
        "subspace_curve": tables.share_curves,
        "spectrum": tables.spectra,
        "dimensions": tables.dimension_deviations,
        "decoding": decoding.decoding_by_layer,
    }
    for name, draw in of_all.items():
        if name in frames:
            yield name, partial(draw, frames[name])
    if "terms_share" in frames:
        yield "terms_share", partial(terms.term_shares, frames["terms_share"], frames.get("terms_baseline"))
    for name, panels in (("terms", terms.term_panels), ("terms_heads", terms.term_panels_by_head)):
        several = name in frames and frames[name]["checkpoint"].nunique() > 1
        for label, mine in frames[name].groupby("checkpoint", sort=False) if name in frames else ():
            for value in ("rms", "mean"):
                stem = f"{name}_{value}" + (f"_{file_name(str(label))}" if several else "")
                yield stem, partial(panels, mine, value)


def file_name(label: str) -> str:
    """A checkpoint's label as a part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in label)
