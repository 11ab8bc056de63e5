"""The last part of a report: where its runs were computed, and how to repeat them."""

import math
import re
from collections import Counter
from typing import Any

import yaml
from pandas import DataFrame

from glue_bench.board.compare import Comparison
from glue_bench.board.results import Results
from glue_bench.config import Experiment
from glue_bench.data.task import OWN
from glue_bench.data.tasks import find_task
from glue_bench.errors import format_duration
from glue_bench.pages.files import next_step
from glue_bench.pages.page import Column, Part, Table
from glue_bench.records.environment import Environment

RESULTS = "RESULTS"
"""The name of the folder of results in a report, which does not depend on where the folder is."""


def experiment_folder(results: Results) -> str:
    """Name the folder of an experiment as the commands of a report do."""
    return f"{RESULTS}/{results.experiment}"


def method_part(comparison: Comparison) -> Part:
    """Make the part of environments, commands and the experiment's file."""
    results = comparison.board.results
    experiment_file = f"{results.experiment}.yaml"
    folder = experiment_folder(results)
    options = " ".join(run_options(results))

    lines = [
        "# Save the experiment below as a file. "
        "Where its data, text and plugins are, only you know.",
        f"# {RESULTS} stands for the folder of results, "
        "which is `runs` unless --results names another.",
        f"glue-bench run {experiment_file} {options} --results {RESULTS}",
        f"glue-bench leaderboard {folder}",
        f"glue-bench statistics {folder}",
        f"glue-bench report {folder}",
        f"# next: {next_step(comparison, folder)}",
        "",
    ]

    experiment = Part(
        title=f"{experiment_file}, the experiment",
        listing=experiment_text(results.plan.experiment),
    )

    return Part(
        title="How it was made",
        tables=(environments_table(results),),
        listing="\n".join(lines),
        folded=(experiment,),
    )


def run_options(results: Results) -> list[str]:
    """Give the options of `run` that the experiment's file does not have."""
    plan = results.plan
    options = ["--data GLUE_FOLDER"]
    if results.data_source in ("demo", "hub"):
        options = [f"--data {results.data_source}"]
    elif all(find_task(task).benchmark == OWN for task in results.tasks.index):
        options = ["--data hub"]  # of which nothing is read
    pretraining = plan.experiment.pretraining
    if pretraining:
        options.append("--corpus demo" if pretraining.corpus == ["demo"] else "--corpus TEXT")
    if any(job.plugin for job in (*plan.cells, *plan.pretrainings)):
        options.append("--plugin FILE")
    precisions = results.cells.loc[results.cells["finished"], "precision"].unique()
    if len(precisions) == 1 and precisions[0].isalnum():
        options.append(f"--precision {precisions[0]}")
    return options


def environments_table(results: Results) -> Table:
    """Make the table of environments, a column for each in which runs were computed."""
    runs_by_kind = {"Fine-tuning": results.cells, "Pretraining": results.pretrainings}
    facts_by_column = {}
    seconds = 0.0
    for kind, runs in runs_by_kind.items():
        finished = runs[runs["finished"]]
        seconds += finished["seconds"].sum()
        counts = Counter(environment_facts(environment) for environment in finished["environment"])
        for number, (facts, count) in enumerate(sorted(counts.items()), 1):
            column = f"{kind} {number}" if len(counts) > 1 else kind
            facts_by_column[column] = {"runs": f"{count:,}", **dict(facts)}
    columns = {"fact": Column("Environment")}
    for column in facts_by_column:
        columns[column] = Column(column)
    return Table(
        frame=DataFrame(facts_by_column).rename_axis("fact").reset_index(),
        columns=columns,
        caption=f"The runs took {format_duration(seconds)}, added up over processes.",
    )


def environment_facts(environment: Environment) -> tuple[tuple[str, str], ...]:
    """Give the facts of an environment with their names; versions of packages are facts, too."""
    document = environment.document()
    packages = document.pop("packages", {})
    facts = []
    for name, fact in (document | packages).items():
        facts.append((name.replace("_", " "), str(fact)))
    return tuple(facts)


class QuotingDumper(yaml.SafeDumper):
    """A writer of YAML that quotes a text such as 1e3, which YAML 1.2 takes for a number."""


def _quote_like_numbers(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if re.match(r"[-+.]?[0-9]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


QuotingDumper.add_representer(str, _quote_like_numbers)


def experiment_text(experiment: Experiment) -> str:
    """Write an experiment as YAML, without the places of its data and text, and without folders.

    Of a path on a disk only the last name is left.
    """
    places: Any = {"data": True, "pretraining": {"corpus"}}
    config = experiment.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=places)
    text = yaml.dump(
        config, Dumper=QuotingDumper, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return re.sub(r"(?m)((?:: |- )['\"]?)[/~].*/", r"\1", text)
