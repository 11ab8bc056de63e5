"""An experiment, or several together, as one HTML file to show, which needs no network: its parts and their order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pandas as pd
import yaml

from glue_bench.files import results_written_to, write_atomically
from glue_bench.records.value import Environment
from glue_bench.records.values import Plan
from glue_bench.tables.board import Board, steps_frame
from glue_bench.tables.budget import budget_page
from glue_bench.tables.compare import Comparison, score_columns
from glue_bench.tables.contrasts import statistics_page
from glue_bench.tables.drawing import Drawing, save
from glue_bench.tables.export import find, next_step
from glue_bench.tables.figures import forest, loss_by_parameters, losses, scores_by_steps
from glue_bench.tables.inside import inside_page, read_analysis
from glue_bench.tables.inside_figures import inside_figures
from glue_bench.tables.pages import leaderboard_page
from glue_bench.tables.papers import TABLES, paper_page, set_beside
from glue_bench.tables.results import Results
from glue_bench.tables.table import Column, Page, Table

FILE = "report.html"
LOSSES = "Means over the seeds of pretraining; of few arms a band goes from the lowest to the highest seed."
HOURS = "The runs took {hours:,.1f} hours, added up over processes."
DIGITS = 12  # of a digest that are shown


def report(
    path: str | Path | Sequence[str | Path], output: str | Path | None = None, figures: str | Path | None = None
) -> Path:
    """Write the report of the experiment in the folder `path`, or of several together; where it was written.

    Without `output` that is `report.html` in the experiment's folder, or of several experiments in the current one.
    Into the folder `figures` each figure is written as PDF, SVG and PNG, as wide as a column of a paper.

    Example:
        >>> glue_bench.report("runs/demo", "demo.html")  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in a folder, several cannot stand together, or a file cannot be written.
    """
    beside = Path(path) if isinstance(path, str | Path) else Path()
    file = beside / FILE if output is None else Path(output)
    made = make_report(find(path), () if isinstance(path, str | Path) else [find(each) for each in path])
    with results_written_to(file.parent, "choose another place with -o"):
        write_atomically(file, made.to_html().encode())
    if figures is not None:
        with results_written_to(Path(figures), "choose another folder with --figures"):
            for figure in (figure for part in made.parts for figure in part.figures):
                save(figure.figure, Path(figures) / figure.name)
    return file


def make_report(comparison: Comparison, each: Sequence[Comparison] = ()) -> Page:
    """The report of an experiment; of several together what they share first, then what `each` of them has."""
    results = comparison.board.results
    parts = [leaderboard_part(comparison)] if each else list(parts_of(comparison))
    for name, part in ((one.board.results.experiment, part) for one in each for part in parts_of(one)):
        figures = tuple(replace(figure, name=f"{name}-{figure.name}") for figure in part.figures)
        parts.append(replace(part, title=f"{name}: {part.title}", figures=figures))
    captions = [table.caption for table in parts[0].tables if table.caption]
    lead = captions[0] if len(captions) == 1 else ""
    if lead:  # what is said at the top is not said again above the table
        parts[0] = replace(parts[0], tables=tuple(replace(table, caption="") for table in parts[0].tables))
    return Page(title=f"Report: {results.experiment}", banner=results.banner, lead=lead, parts=tuple(parts))


def parts_of(comparison: Comparison) -> Iterator[Page]:
    """What one experiment has found, from the leaderboard to the commands that made it."""
    results, primary = comparison.board.results, comparison.primary
    yield leaderboard_part(comparison)
    if len(comparison.contrasts):
        others = [name for name in compared_columns(comparison) if name != primary]
        figures = (
            [Drawing(name="differences", title="Other columns", figure=forest(comparison, others))] if others else []
        )
        contrasts, *spreads = statistics_page(comparison).tables
        yield Page(title="Differences", figures=tuple(figures), tables=(replace(contrasts, caption=""), *spreads))
    if results.pretrainings["stream"].notna().any():
        yield Page(title="Pretraining", figures=tuple(loss_figures(comparison)), tables=budget_page(results).tables)
    yield from inside_part(results)
    yield from papers_part(results)
    yield method_part(comparison)


def leaderboard_part(comparison: Comparison) -> Page:
    """The contrasts that decide as a forest, and the tables of the leaderboard, its facts folded."""
    *tables, setup, arms = leaderboard_page(comparison).tables
    figures, steps = list[Drawing](), steps_frame(comparison.board)
    if comparison.primary in compared_columns(comparison):
        figures.append(Drawing(name="contrasts", title="Contrasts", figure=forest(comparison, [comparison.primary])))
    if len(steps):
        drawn_steps = scores_by_steps(comparison, [name for name in score_columns(comparison) if name in steps])
        figures.append(Drawing(name="steps", title="Scores by steps of pretraining", figure=drawn_steps))
    folded = Page(title="Setup", tables=(setup,)), Page(title="Arms", tables=(replace(arms, title=""),))
    return Page(title="Leaderboard", figures=tuple(figures), tables=tuple(tables), folded=folded)


def compared_columns(comparison: Comparison) -> list[str]:
    """The columns in which a difference of two arms is known, in the order of a page."""
    known = {*comparison.contrasts.dropna(subset="difference")["column"]}
    return [name for name in score_columns(comparison) if name in known]


def loss_figures(comparison: Comparison) -> Iterator[Drawing]:
    """Loss against tokens and against parameters, where they were measured."""
    results = comparison.board.results
    if results.losses[["train_loss", "validation_loss"]].notna().any(axis=None):
        yield Drawing(name="loss", title="Loss by tokens", figure=losses(comparison), caption=LOSSES)
    if results.pretrainings["validation_loss"].notna().any() and results.arms["parameters"].notna().all():
        yield Drawing(name="parameters", title="Loss by parameters", figure=loss_by_parameters(comparison))


def inside_part(results: Results) -> Iterator[Page]:
    """What `analyse` has left in the folder `analysis` of the very weights of the arms; else nothing.

    Raises:
        UserError: a file of it cannot be read.
    """
    weights = set(results.pretrainings["weights"].dropna())
    analysis = read_analysis(results.folder / "analysis", weights) if weights else None
    if analysis is not None:
        yield replace(inside_page(analysis), figures=tuple(inside_figures(analysis)))


def papers_part(results: Results) -> Iterator[Page]:
    """Published rows with ours below them, the table with most of our arms open; none beside made-up data."""
    boards: dict[Any, Board] = {}
    made = [] if "demo" in results.data_source else [set_beside(table, results, boards) for table in TABLES.values()]
    arms = {one.published.title: one.cells["arm"].replace("", None).nunique() for one in made}
    made = sorted((one for one in made if arms[one.published.title]), key=lambda one: -arms[one.published.title])
    if made:
        first, *others = map(paper_page, made)
        shown = (replace(first.tables[0], title=first.title), *first.tables[1:])
        yield Page(title="Published tables", tables=shown, folded=tuple(others))


def method_part(comparison: Comparison) -> Page:
    """Where the runs were computed, and what to type for the same numbers, with the experiment's file."""
    results, plan = comparison.board.results, comparison.board.results.plan
    name, folder = results.experiment, f"runs/{results.experiment}"
    places = f" --data {results.data_source if results.data_source in ('demo', 'hub') else 'GLUE_FOLDER'}"
    places += " --corpus TEXT" * (plan.experiment.pretraining is not None)
    places += " --plugin FILE" * any(job.plugin for job in (*plan.cells, *plan.pretrainings))
    lines = [
        "# Save the experiment below as a file. Where its data, text and plugins are, only you know.",
        f"glue-bench run {name}.yaml{places}",
        *(f"glue-bench {verb} {folder}" for verb in ("leaderboard", "statistics", "report")),
        f"# next: {next_step(comparison, folder)}".replace("`", ""),
    ]
    experiment = Page(title=f"{name}.yaml, the experiment", listing=experiment_text(plan))
    tables, listing = (environments_table(results),), "\n".join(lines) + "\n"
    return Page(title="How it was made", tables=tables, listing=listing, folded=(experiment,))


def environments_table(results: Results) -> Table:
    """A column for each environment in which fine-tunings or pretrainings were computed."""

    def shown(environment: Environment) -> Iterator[tuple[str, str]]:
        commit = (environment.git_commit or "")[:DIGITS]
        facts = dict(environment) | environment.packages | {"git_commit": commit, "packages": None, "glue_bench": None}
        for name, fact in ({"glue-bench": environment.glue_bench} | facts).items():
            if fact not in (None, ""):
                yield name, str(fact)

    columns, seconds = dict[str, dict[str, str]](), 0.0
    for kind, frame in (("Fine-tuning", results.cells), ("Pretraining", results.pretrainings)):
        done = frame[frame["finished"]]
        counts = sorted(Counter(tuple(shown(each)) for each in done["environment"]).items())
        for place, (facts, count) in enumerate(counts, 1):
            columns[f"{kind} {place}" if len(counts) > 1 else kind] = {"runs": f"{count:,}", **dict(facts)}
        seconds += done["seconds"].sum()
    frame = pd.DataFrame(columns).rename_axis("fact").reset_index() if columns else pd.DataFrame(columns=["fact"])
    return Table(
        frame=frame.assign(fact=frame["fact"].str.replace("_", " ")),
        columns={"fact": Column("Environment"), **{name: Column(name) for name in columns}},
        caption=HOURS.format(hours=seconds / 3600),
    )


def experiment_text(plan: Plan) -> str:
    """The experiment as YAML, without what is empty; it lacks the places of data and text, which no plan has."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: each
                for key, each in zip(value, map(filled, value.values()), strict=True)
                if each not in (None, [], {})
            }
        if isinstance(value, list):
            return list(map(filled, value))
        # Where a person keeps a checkpoint is no one's business.
        return PurePath(value).name if isinstance(value, str) and value.startswith(("/", "~")) else value

    config = plan.experiment.model_dump(mode="json", by_alias=True, exclude={"data": True, "pretraining": {"corpus"}})
    return yaml.safe_dump(filled(config), sort_keys=False, allow_unicode=True, width=100)
