"""The parts of a report that say how its numbers were made: protocol, data, environment, commands."""

from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import yaml

from glue_bench.data.tasks import TASKS
from glue_bench.records.plan import Plan
from glue_bench.records.record import Environment
from glue_bench.reporting.findings import Findings
from glue_bench.reporting.grid import Grid, PageSection
from glue_bench.reporting.notes import METRICS, protocol_notes
from glue_bench.reporting.report.parts import Part
from glue_bench.tables.board import Board
from glue_bench.tables.export import next_step
from glue_bench.tables.numbers import MISSING
from glue_bench.tables.results import Results

SOURCES = {
    "tsv": "GLUE in the classic TSV layout",
    "hub": "nyu-mll/glue of the Hugging Face hub",
    "demo": "the embedded demo data, which are made up",
}
DIGITS = 12
"""So much of a digest is shown."""
_KEYS = {"start": "from"}
"""What keys of an experiment's file are called in a plan."""


def protocol_part(findings: Findings) -> Part:
    """How runs become scores, and what they were trained with."""
    board, plan = findings.board, findings.results.plan
    settings = {TASKS[str(task)].title: each for task, each in findings.results.tasks["settings"].items() if each}
    rates = {
        TASKS[str(task)].title: {"learning_rate": ", ".join(f"{rate:g}" for rate in sorted(set(mine)))}
        for task, mine in board.cells.groupby("task", sort=False)["learning_rate"]
    }
    every = {task: settings.get(task, {}) | rates[task] for task in rates if task in settings or not settings}
    sections = told_apart("Task", every, "Fine-tuning") + _chosen_rates(findings)
    if pretraining := plan.config.get("pretraining"):
        sections += (PageSection(title="Pretraining", text=f"{_said(pretraining)}."),)
    return Part(title="Protocol", text=" ".join(protocol_notes(board)), sections=sections)


def data_part(board: Board) -> Part:
    """One row per task: its metric, how many rows GLUE has, and the digest of the content that was read."""
    rows, results = [], board.results
    for task in dict.fromkeys(board.cells["task"]):
        metric, splits = TASKS[task].metrics[0], TASKS[task].splits
        sizes = [sum(s.rows for name, s in splits.items() if name.startswith(kind)) for kind in ("train", "validation")]
        share = "a part" if task in results.partial_tasks else "all"
        numbers = (f"{size:,}" for size in sizes)
        digest = results.tasks["digest"][task][:DIGITS] or MISSING
        rows.append((TASKS[task].title, METRICS[metric], *numbers, share, digest))
    header = ("Task", "Metric", "Train rows", "Validation rows", "Here", "SHA-256")
    grid = Grid.of(header, rows, texts=(0, 1, 4, 5))
    source = ", ".join(SOURCES.get(kind, kind) for kind in results.data_source.split(", "))
    text = f"Read from {source}. Numbers of rows are GLUE's own; the digest is of the content that was read."
    return Part(title="Data", text=text, sections=(PageSection(title="", grid=grid),))


def environment_part(results: Results) -> Part:
    """Where the runs were computed: what all of them share in a sentence, what differs in a table."""
    frames = {"Fine-tuning runs": results.cells, "Pretrainings": results.pretrainings}
    done = {kind: frame[frame["finished"]] for kind, frame in frames.items()}
    kinds = {kind: list(frame["environment"]) for kind, frame in done.items() if len(frame) or kind != "Pretrainings"}
    made = {kind: Counter(_environment(each) for each in mine) for kind, mine in kinds.items()}
    rows = {
        f"{kind}, {i}" if len(counts) > 1 else kind: {"runs": f"{count:,}", **dict(facts)}
        for kind, counts in made.items()
        for i, (facts, count) in enumerate(sorted(counts.items()), 1)
    }
    seconds = sum(frame["seconds"].sum() for frame in done.values())
    text = f"The runs took {seconds / 3600:,.1f} hours, added up over processes."
    return Part(title="Environment", text=text, sections=told_apart("Where", rows))


def commands_part(findings: Findings) -> Part:
    """What to type for the same numbers, with the experiment's file, and what to type next."""
    plan, name = findings.results.plan, findings.results.experiment
    folder, kind = f"results/{name}", findings.results.data_source
    data = kind if kind in ("demo", "hub") else "GLUE_FOLDER"
    corpus = " --corpus TEXT" * bool(plan.config.get("pretraining"))
    lines = (
        f"glue-bench run {name}.yaml --data {data}{corpus}",
        *(f"glue-bench {verb} {folder}" for verb in ("leaderboard", "statistics", "report")),
    )
    experiment = Part(title=f"{name}.yaml, the experiment", listing=experiment_text(plan))
    return Part(
        title="Commands",
        text=f"Next: {next_step(findings.comparison, folder)}.",
        listing="\n".join(lines) + "\n",
        folded=(experiment,) if plan.config else (),
    )


def experiment_text(plan: Plan) -> str:
    """The experiment as YAML, without what is empty; it lacks the places of data and text, which no plan has."""
    config = dict(plan.config)
    if pretraining := config.get("pretraining"):
        config["pretraining"] = {_KEYS.get(key, key): value for key, value in pretraining.items()}
    return yaml.safe_dump(_filled(config), sort_keys=False, allow_unicode=True, width=100)


def told_apart(name: str, rows: Mapping[str, Mapping[str, Any]], title: str = "") -> tuple[PageSection, ...]:
    """A section: in a sentence what all rows have in common, in a table what differs; none without rows."""
    if not rows:
        return ()
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    differ = [key for key in keys if len({str(row.get(key)) for row in rows.values()}) > 1]
    common = {key: next(iter(rows.values()))[key] for key in keys if key not in differ}
    cells = [(each, *(str(row.get(key, MISSING)) for key in differ)) for each, row in rows.items()]
    header = (name, *(_words(key).capitalize() for key in differ))
    grid = Grid.of(header, cells, texts=range(len(header))) if differ else None
    return (PageSection(title=title, text=f"The same for all: {_said(common)}." * bool(common), grid=grid),)


def _chosen_rates(findings: Findings) -> tuple[PageSection, ...]:
    """Which rate is reported of each arm and task, where several were run."""
    rates = findings.board.rates
    if findings.board.cells.groupby("task")["learning_rate"].nunique().max() < 2 or rates.empty:
        return ()
    chosen: dict[str, dict[str, str]] = {arm: {} for arm in rates["arm"]}
    for row in rates.to_dict("records"):
        chosen[row["arm"]][TASKS[row["task"]].title] = f"{row['learning_rate']:g}"
    return told_apart("Arm", chosen, "Chosen learning rates")


def _environment(environment: Environment) -> tuple[tuple[str, str], ...]:
    """What of an environment is shown, as pairs."""
    facts: dict[str, Any] = {"glue-bench": environment.glue_bench, **dict(environment), **environment.packages}
    facts["git_commit"] = (environment.git_commit or "")[:DIGITS]
    left_out = ("glue_bench", "packages")
    return tuple((key, str(value)) for key, value in facts.items() if value not in (None, "") and key not in left_out)


def _said(facts: Mapping[str, Any]) -> str:
    """Settings in a sentence, without those that are off; a number that is 0 is a setting."""
    said = {key: value for key, value in facts.items() if value not in (None, [], {}) and value is not False}
    return ", ".join(f"{_words(key)} {value}" for key, value in said.items())


def _words(key: str) -> str:
    return key.replace("_", " ")


def _filled(value: Any) -> Any:
    """Plain values without what is empty."""
    if isinstance(value, Mapping):
        filled = {key: _filled(each) for key, each in value.items()}
        return {key: each for key, each in filled.items() if each not in (None, [], {})}
    if isinstance(value, list | tuple):
        return [_filled(each) for each in value]
    # Where a person keeps a checkpoint is no one's business.
    return PurePath(value).name if isinstance(value, str) and value.startswith(("/", "~")) else value
