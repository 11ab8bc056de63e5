"""The forests of a comparison of anyone's systems."""

from typing import Any

import numpy as np
from pandas import DataFrame

from glue_bench.board.versus import Versus
from glue_bench.pages.figures import ForestPanel, draw_panels
from glue_bench.pages.page import Drawing
from glue_bench.pages.versus import column_decimals, column_titles
from glue_bench.stats.estimates import ColumnEstimate

MAX_PANELS = 8
"""The most columns of the second figure; more would be too small to read."""


def versus_figures(versus: Versus) -> tuple[Drawing, ...]:
    """Draw the differences of the first column, and those of a few other columns side by side.

    The first column is the average, if there is one. Systems are in its order, the best on top.
    """
    first, *others = versus.group.estimates
    first_rows = forest_rows(versus, first)
    figure = draw_panels([forest_panel(versus, first)], first_rows)
    drawings = [Drawing(name="contrasts", title="Differences", figure=figure)]
    if 0 < len(others) <= MAX_PANELS:
        forest = [forest_panel(versus, estimate) for estimate in others]
        figure = draw_panels(forest, first_rows)
        drawings.append(Drawing(name="differences", title="Other columns", figure=figure))
    return tuple(drawings)


def forest_panel(versus: Versus, estimate: ColumnEstimate) -> ForestPanel:
    """Give the panel of a column."""
    is_points = estimate.limits[1] < float("inf")
    return ForestPanel(
        title=column_titles(versus)[estimate.column],
        unit="points" if is_points else "difference",
        lowest_is_best=estimate.lowest_is_best,
        decimals=column_decimals(versus, estimate),
        rows=forest_rows(versus, estimate),
    )


def forest_rows(versus: Versus, estimate: ColumnEstimate) -> DataFrame:
    """Give the contrasts of a column as a forest takes them, the best system on top."""
    rows = versus.contrasts[versus.contrasts["column"] == estimate.column]
    rows = rows.sort_values("difference", ascending=estimate.lowest_is_best, kind="stable")
    seeds: list[Any] = []
    for row in rows.to_dict("records"):
        differences = np.zeros(0)
        if not row["why"] and not estimate.single_runs:
            differences = estimate.differences(row["arm"], row["reference"])
        seeds.append(differences)
    return rows.assign(planned=False, seeds=seeds).set_index(["arm", "reference"])
