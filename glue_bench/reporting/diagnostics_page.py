"""The scores on the diagnostic set as a page: a table of the categories, then one table per category."""

from collections.abc import Iterator

import pandas as pd

from glue_bench.reporting.formats import render_with
from glue_bench.reporting.grid import Grid, GridCell, Page, PageSection
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION
from glue_bench.tables.diagnostics import Scored
from glue_bench.tables.numbers import MISSING, number

ONE_LABEL = "°"
NOTES = (
    "R3, the Matthews correlation for three classes, x100: mean ± sample standard deviation over seeds at the rate "
    "reported for MNLI, after the last epoch. Fewer than three runs have none.",
    "A pair may show several phenomena, and counts in each of them.",
)


def render_diagnostics(scored: Scored, format: str) -> str:
    """The page of `diagnostics_page` in one of FORMATS; as CSV or JSON the frame alone."""
    return render_with(diagnostics_page(scored), scored.frame, format)


def diagnostics_page(scored: Scored) -> Page:
    """A section for the categories, then one per category for its phenomena; one column per arm."""
    frame = scored.frame
    whole = frame[frame["phenomenon"] == ""]
    sections = [PageSection(title="Categories", grid=_grid(whole, "category"))]
    for category in (name for name in whole["category"].unique() if name):
        mine = frame[(frame["category"] == category) & (frame["phenomenon"] != "")]
        sections.append(PageSection(title=category, grid=_grid(mine, "phenomenon")))
    return Page(
        title=f"Diagnostic set: {scored.board.results.experiment}",
        sections=tuple(sections),
        banner="Made-up data: scores mean nothing." if "demo" in scored.board.results.data_source else "",
        notes=(*NOTES, *_notes(scored)),
    )


def _grid(frame: pd.DataFrame, name: str) -> Grid:
    arms = tuple(frame["arm"].unique())
    rows: list[tuple[GridCell | str, ...]] = []
    for place, group in frame.groupby(name, sort=False):
        scores = {}
        for row in group.to_dict("records"):
            deviation = number(row["std"]) if row["n"] >= LEAST_FOR_DEVIATION else ""
            scores[row["arm"]] = (number(row["mean"]) or MISSING) + (f" ± {deviation}" if deviation else "")
        marks = ONE_LABEL if (group["labels"] == 1).any() else ""
        examples = str(group["examples"].iloc[0])
        rows.append((str(place) or "All", examples, *(GridCell(scores[arm], marks=marks) for arm in arms)))
    return Grid.of((name.capitalize(), "Pairs", *arms), rows)


def _notes(scored: Scored) -> Iterator[str]:
    seeds = scored.frame.groupby("arm", sort=False)["n"].first()
    yield "Seeds: " + ", ".join(f"{arm} {count}" for arm, count in seeds.items()) + "."
    if (scored.frame["labels"] == 1).any():
        yield f"{ONE_LABEL} All pairs have one label, so that R3 is undefined and counts as 0."
    if scored.without:
        yield f"{len(scored.without)} finished runs of MNLI predicted no AX and are left out."
    if "mnli" in scored.board.results.partial_tasks:
        yield "Models were trained on a part of MNLI: figures do not compare with published ones."
    if not scored.verified:
        yield (
            "Labels and predictions agree in their number only: the sentences are not, letter for letter, those that "
            "were predicted, and no diagnostic.tsv beside the labels vouches for their order."
        )
