"""An experiment, or several together, as a report: which parts there are, and in which order."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from glue_bench.reporting.budget_page import budget_page
from glue_bench.reporting.export import Paths, find
from glue_bench.reporting.findings import Findings, verdict
from glue_bench.reporting.grid import PageSection
from glue_bench.reporting.leaderboard_page import STEPS_MEAN, leaderboard_page, steps_grid
from glue_bench.reporting.notes import banner
from glue_bench.reporting.report.drawings import (
    contrast_figures,
    cost_figures,
    difference_figures,
    loss_figures,
    steps_figures,
)
from glue_bench.reporting.report.method import commands_part, data_part, environment_part, protocol_part
from glue_bench.reporting.report.parts import Part, Report, part_of
from glue_bench.reporting.statistics_page import contrast_frames, statistics_page
from glue_bench.tables.board import Board, steps_frame
from glue_bench.tables.budget import budget_frame

DIFFERENCES = (
    "A panel for each column. A point is the difference of two means over seeds, a line its 95% interval; the "
    "intervals of a panel hold for all of its arms together."
)
COSTS = "A point is an arm, its bar one standard deviation over seeds; the stairs join arms that no cheaper one beats."


def build_report(path: Paths, findings: Findings | None = None) -> Report:
    """The report of the experiment in the folder `path`, or of several together: what they share first, then each.

    `findings` are those of `find`, where they are known already.

    Raises:
        UserError: as `find`.
    """
    findings = findings or find(path)
    if isinstance(path, str | Path):
        parts = list(experiment_parts(findings))
    else:
        parts = [leaderboard_part(findings)]
        for mine in map(find, path):
            name = mine.results.experiment
            parts += [replace(part, title=f"{name}: {part.title}") for part in experiment_parts(mine)]
    return Report(
        title=f"Report: {findings.results.experiment}",
        banner=banner(findings.results),
        lead=verdict(findings),
        text=extent(findings.board),
        parts=tuple(parts),
    )


def experiment_parts(findings: Findings) -> Iterator[Part]:
    """What one experiment has found, from the leaderboard to the commands that made it."""
    yield leaderboard_part(findings)
    yield from differences_part(findings)
    yield from pretraining_part(findings)
    yield from steps_part(findings)
    yield protocol_part(findings)
    yield data_part(findings.board)
    yield environment_part(findings.results)
    yield commands_part(findings)


def leaderboard_part(findings: Findings) -> Part:
    """The tables of the leaderboard's page, and its notes in sight: they say what the marks mean."""
    page = leaderboard_page(findings)
    return Part(title="Leaderboard", sections=page.sections, notes=page.notes)


def differences_part(findings: Findings) -> Iterator[Part]:
    """Forest plots, and the tables of the statistics' page behind a fold; nothing where no arm can be compared."""
    if not contrast_frames(findings.comparison):
        return
    page = statistics_page(findings.comparison)
    tables = Part(title="Tables of these differences, and what varies", sections=page.sections, notes=page.notes)
    figures = (*contrast_figures(findings), *difference_figures(findings))
    yield Part(title="Differences from the reference", text=DIFFERENCES, figures=figures, folded=(tables,))


def pretraining_part(findings: Findings) -> Iterator[Part]:
    """Loss curves and budgets where arms are pretrained; cost against score where two arms have both."""
    budgets = budget_frame(findings.results)
    if budgets["stream"].notna().any():
        part = part_of(budget_page(budgets, findings.results.experiment, findings.rates), "Pretraining")
        yield replace(part, figures=tuple(loss_figures(findings, budgets)))
    if figures := tuple(cost_figures(findings, budgets)):
        yield Part(title="Cost against score", text=COSTS, figures=figures)


def steps_part(findings: Findings) -> Iterator[Part]:
    """Scores against steps of pretraining, where several checkpoints are fine-tuned."""
    steps = steps_frame(findings.board)
    if len(steps):
        section = PageSection(title="", grid=steps_grid(findings, steps))
        figures = tuple(steps_figures(findings, steps))
        yield Part(title="Against steps of pretraining", text=STEPS_MEAN, figures=figures, sections=(section,))


def extent(board: Board) -> str:
    """How much of the experiment there is."""
    cells = board.cells
    finished, numbers = cells[cells["finished"]], []
    seeds = "fine-tuning seed" if cells["pretraining_seed"].notna().any() else "seed"
    names = {"arm": "arm", "task": "task", "pretraining_seed": "pretraining seed", "seed": seeds}
    for key, name in names.items():
        planned, run = cells[key].nunique(), finished[key].nunique()
        part = f"{run} of " if 0 < run < planned else ""
        numbers += [f"{part}{planned:,} {name}{'s' * (planned > 1)}"] * bool(planned)
    return (
        f"Fine-tuned: {', '.join(numbers)}; {len(finished):,} of {len(cells):,} planned fine-tuning runs are finished."
    )
