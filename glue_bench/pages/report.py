"""An experiment as one HTML file to show, which needs no network: its parts and their order."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from glue_bench.board.board import Board
from glue_bench.board.compare import Comparison, score_columns
from glue_bench.board.results import Results
from glue_bench.config import Experiment
from glue_bench.files import ELSEWHERE, results_written_to, write_atomically
from glue_bench.pages.budget import budget_page
from glue_bench.pages.contrasts import contrasts_table, spread_tables
from glue_bench.pages.figures import forest, losses, save
from glue_bench.pages.files import next_step
from glue_bench.pages.inside import inside_part
from glue_bench.pages.leaderboard import arms_table, leaderboard_tables, screen_page, setup_table
from glue_bench.pages.page import Column, Drawing, Page, Part, Report, Table
from glue_bench.pages.papers import PAPERS, paper_page
from glue_bench.pages.render import to_html
from glue_bench.records.environment import Environment

FILE = "report.html"
RESULTS = "RESULTS"
"""What a report calls the folder of results: it is for others, and is the same wherever they lie."""
LOSSES = "Means over the seeds of pretraining; of few arms a band goes from the lowest to the highest seed."


def write_report(
    comparison: Comparison, output: str | Path | None, figures: str | Path | None
) -> Path:
    """Write the report of an experiment and perhaps its figures, as `glue_bench.report` describes it."""
    file = comparison.board.results.folder / FILE if output is None else Path(output).expanduser()
    made = make_report(comparison)
    with results_written_to(file.parent, ELSEWHERE):
        write_atomically(file, to_html(made).encode())
    if figures is not None:
        with results_written_to(
            folder := Path(figures).expanduser(), "choose another folder with --figures"
        ):
            for figure in (figure for part in made.parts for figure in part.figures):
                save(figure.figure, folder / figure.name)
    return file


def make_report(comparison: Comparison) -> Report:
    """The report of an experiment."""
    results, parts = comparison.board.results, list(parts_of(comparison))
    captions = [table.caption for table in parts[0].tables if table.caption]
    lead = captions[0] if len(captions) == 1 else ""
    if lead:  # what is said at the top is not said again above the table
        parts[0] = replace(
            parts[0], tables=tuple(replace(table, caption="") for table in parts[0].tables)
        )
    return Report(
        title=f"Report: {results.experiment}", banner=results.banner, lead=lead, parts=tuple(parts)
    )


def parts_of(comparison: Comparison) -> Iterator[Part]:
    """What the experiment has found, from the leaderboard, its facts folded, to the commands that made it."""
    results = comparison.board.results
    tables = leaderboard_tables(comparison, screen_page(comparison))
    setup = Part(title="Setup", tables=(setup_table(comparison),))
    arms = Part(title="Arms", tables=(replace(arms_table(comparison.board), title=""),))
    figures = _forest(comparison, "contrasts", "Contrasts", of_primary=True)
    yield Part(title="Leaderboard", figures=figures, tables=tuple(tables), folded=(setup, arms))
    if len(comparison.contrasts):
        contrasts = replace(contrasts_table(comparison, comparison.contrasts), caption="")
        spreads = spread_tables(comparison, comparison.contrasts)
        figures = _forest(comparison, "differences", "Other columns", of_primary=False)
        yield Part(title="Differences", figures=figures, tables=(contrasts, *spreads))
    if results.pretrainings["stream"].notna().any():
        known = results.losses[["train_loss", "validation_loss"]].notna().any(axis=None)
        curves = {"name": "loss", "title": "Loss by tokens", "caption": LOSSES}
        figures = (Drawing(**curves, figure=losses(comparison)),) if known else ()
        yield Part(title="Pretraining", figures=figures, tables=budget_page(results).tables)
    weights = set(results.pretrainings["weights"].dropna())
    if inside := inside_part(results.store.analysis, weights, f"{RESULTS}/{results.experiment}"):
        yield inside
    if not results.is_made_up:
        yield from papers_part(results)
    yield method_part(comparison)


def _forest(
    comparison: Comparison, name: str, title: str, *, of_primary: bool
) -> tuple[Drawing, ...]:
    """The forest of the primary column, or of the others, as far as a difference of two arms is known in them."""
    known = {*comparison.contrasts.dropna(subset="difference")["column"]}
    columns = [
        one
        for one in score_columns(comparison)
        if one in known and (one == comparison.primary) is of_primary
    ]
    return (Drawing(name=name, title=title, figure=forest(comparison, columns)),) if columns else ()


def papers_part(results: Results) -> Iterator[Part]:
    """Published rows with ours below them, the table with most of our arms open."""

    def arms(page: Page) -> int:
        return page.rows["arm"].replace("", None).nunique()

    boards: dict[Any, Board] = {}
    pages = [paper_page(table, results, boards) for table in PAPERS.values()]
    if pages := sorted(filter(arms, pages), key=arms, reverse=True):
        first, *others = pages
        shown = (replace(first.tables[0], title=first.title), *first.tables[1:])
        folded = tuple(Part(title=page.title, tables=page.tables) for page in others)
        yield Part(title="Published tables", tables=shown, folded=folded)


def method_part(comparison: Comparison) -> Part:
    """Where the runs were computed, and what to type for the same numbers, with the experiment's file."""
    results, plan = comparison.board.results, comparison.board.results.plan
    name = results.experiment
    folder = f"{RESULTS}/{results.experiment}"
    places = f" --data {results.data_source if results.data_source in ('demo', 'hub') else 'GLUE_FOLDER'}"
    if pretraining := plan.experiment.pretraining:
        places += " --corpus demo" if pretraining.corpus == ["demo"] else " --corpus TEXT"
    places += " --plugin FILE" * any(job.plugin for job in (*plan.cells, *plan.pretrainings))
    precisions = results.cells.loc[results.cells["finished"], "precision"].unique()
    if len(precisions) == 1 and precisions[0].isalnum():
        places += f" --precision {precisions[0]}"
    lines = [
        "# Save the experiment below as a file. Where its data, text and plugins are, only you know.",
        f"# {RESULTS} stands for the folder of results, which is `runs` unless --results names another.",
        f"glue-bench run {name}.yaml{places} --results {RESULTS}",
        *(f"glue-bench {verb} {folder}" for verb in ("leaderboard", "statistics", "report")),
        f"# next: {next_step(comparison, folder)}",
    ]
    experiment = Part(
        title=f"{name}.yaml, the experiment", listing=experiment_text(plan.experiment)
    )
    tables, listing = (environments_table(results),), "\n".join(lines) + "\n"
    return Part(title="How it was made", tables=tables, listing=listing, folded=(experiment,))


def environments_table(results: Results) -> Table:
    """A column for each environment in which fine-tunings or pretrainings were computed."""

    def facts(environment: Environment) -> tuple[tuple[str, str], ...]:
        document = environment.document()
        document |= document.pop("packages", {})
        return tuple((name.replace("_", " "), str(fact)) for name, fact in document.items())

    columns, seconds = dict[str, dict[str, str]](), 0.0
    for kind, frame in (("Fine-tuning", results.cells), ("Pretraining", results.pretrainings)):
        done = frame[frame["finished"]]
        counts = sorted(Counter(map(facts, done["environment"])).items())
        for place, (entries, count) in enumerate(counts, 1):
            columns[f"{kind} {place}" if len(counts) > 1 else kind] = {
                "runs": f"{count:,}",
                **dict(entries),
            }
        seconds += done["seconds"].sum()
    shown = {"fact": Column("Environment"), **{name: Column(name) for name in columns}}
    frame = pd.DataFrame(columns).rename_axis("fact").reset_index()
    hours = f"The runs took {seconds / 3600:,.1f} hours, added up over processes."
    return Table(frame=frame, columns=shown, caption=hours)


class QuotingDumper(yaml.SafeDumper):
    """A writer of YAML that quotes a text such as 1e3, which readers of YAML 1.2 take for a number."""


def _quote_like_numbers(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if re.match(r"[-+.]?[0-9]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


QuotingDumper.add_representer(str, _quote_like_numbers)


def experiment_text(experiment: Experiment) -> str:
    """The experiment as YAML; it lacks the places of data and text, and the folders of what lies on a disk."""
    places: Any = {"data": True, "pretraining": {"corpus"}}
    config = experiment.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=places)
    text = yaml.dump(
        config, Dumper=QuotingDumper, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return re.sub(r"(?m)((?:: |- )['\"]?)[/~].*/", r"\1", text)
