"""Published GLUE tables: the rows as printed, our arms below those that they are the counterparts of, and what differs.

What is printed stands in papers.yaml, with how the numbers came about and which arm of ours stands beside a row.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, Literal

import pandas as pd
import yaml

from glue_bench.board.board import (
    AVERAGES,
    RUN_KEYS,
    Average,
    Board,
    aggregate,
    aggregate_over_seeds,
    average,
    best_rates,
    make_board,
    part_values,
)
from glue_bench.board.results import Results, read_results
from glue_bench.config import SCRATCH, Protocol
from glue_bench.data.measures import AVERAGE, MEASURES
from glue_bench.data.tasks import COLUMNS, TASKS, titles
from glue_bench.errors import unknown
from glue_bench.pages.numbers import MISSING, number, short
from glue_bench.pages.page import Column, Page, Table, facts_table, with_legend

CELL_COLUMNS = (
    "model",
    "arm",
    "variant",
    "origin",
    "steps",
    "column",
    "published",
    "ours",
    "seeds",
    "difference",
)
PAIR_COLUMNS = {
    name: name.capitalize()
    for name in ("model", "arm", "parameters", "steps", "tokens", "seeds", "rates")
}
PAIR_COLUMNS |= {"arm": "Ours", "start": "Ours start from", "note": "Why there is none"}
LEGEND = {
    "scores": "Scores, times 100: Matthews correlation for CoLA, Pearson correlation for STS-B, accuracy elsewhere, "
    "unless the column names another metric.",
    "bold": "**Bold**: the best value that the paper prints in a column.",
    "ours": "ours: an arm of the experiment, on the validation set, by the metrics, the average and the statistic over "
    "seeds of the paper; in brackets ours less theirs, which is not tested.",
    "†": "† a part of the official rows, so that ours and theirs are not of the same data.",
    "differences": "† stands also over columns of tasks whose rows are not the official ones.",
    MISSING: "– no score of ours.",  # noqa: RUF001
}
THEIRS_OURS = ("Theirs / ours; ? is not stated.",)


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """A printed row, as papers.yaml explains it: without a `variant` none of ours is like it."""

    label: str
    printed: Mapping[str, str]
    variant: str = ""
    parameters: float = math.nan
    steps: int | None = None
    share: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    segments: str | None = None

    def takes(self, variant: str, options: Mapping[str, Any]) -> bool:
        """Whether an arm is this model, sizes aside; the order of a list is no difference."""
        theirs, ours = ({k: sorted(v) if isinstance(v, list | tuple) else v for k, v in each.items()}
                     for each in (self.options, options))  # fmt: skip
        segments = ours.pop("segments", "input")
        return (
            variant == self.variant
            and self.segments in (None, segments)
            and ours.items() <= theirs.items()
        )


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published table, as papers.yaml explains it; what is None the source does not say.

    `split` is "dev" or "test". `statistic` is the one over seeds, `epoch` the one of each run of ours beside it.
    """

    title: str
    source: str
    split: str
    protocol: str
    columns: tuple[str, ...]
    rows: tuple[PrintedRow, ...]
    statistic: Literal["mean", "median"] = "mean"
    epoch: Literal["last", "best"] = "last"
    seeds: int | None = None
    rates: int | None = None
    tokens: int | None = None
    convention: str = ""
    notes: tuple[str, ...] = ()

    @property
    def singly(self) -> Average:
        """Each column that has a score of ours for itself; as an average, their mean."""
        parts = {name: (score,) for name in self.columns if (score := score_of(name))}
        return Average(f"mean of the {len(parts)} columns", parts)

    @property
    def average(self) -> Average:
        """The convention of the printed average."""
        return AVERAGES[self.convention] if self.convention else self.singly


def score_of(column: str) -> tuple[str, str, str] | None:
    """(task, split, metric) of ours; None of the average and of what is not GLUE."""
    if column in COLUMNS:
        task, split = COLUMNS[column]
        return task, split, TASKS[task].metrics[0]
    task, _, metric = column.partition("_")
    return (task, "validation", metric) if task in TASKS and metric in TASKS[task].metrics else None


def published_table(rows: Mapping[str, Any], columns: str, **facts: Any) -> Published:
    """A table of papers.yaml: `parameters` and `steps` beside `rows` are those of every row with a counterpart."""
    names, made = tuple(columns.split()), []
    alike = {name: facts.pop(name) for name in ("parameters", "steps") if name in facts}
    for label, row in rows.items():
        printed = dict(zip(names, row.pop("scores").split(), strict=True))
        made.append(
            PrintedRow(label=label, printed=printed, **(alike if "variant" in row else {}) | row)
        )
    return Published(columns=names, rows=tuple(made), **facts)


PAPERS: dict[str, Published] = {
    name: published_table(**facts)
    for name, facts in yaml.safe_load(
        (files(__package__) / "papers.yaml").read_text(encoding="utf-8")
    ).items()
}
"""By their names on the command line."""


def named_page(name: str, path: str | Path | None = None) -> Page:
    """The `paper_page` of a table, alone or beside an experiment; raises UserError where one of them does not exist."""
    if name not in PAPERS:
        raise unknown("table", name, PAPERS)
    return paper_page(PAPERS[name], None if path is None else read_results(path))


def paper_page(
    published: Published, results: Results | None = None, made: dict[Any, Board] | None = None
) -> Page:
    """The printed rows, ours below those that have an arm of the experiment, and in what the two differ.

    Its `rows` (CELL_COLUMNS) have each printed value with each arm of ours that stands beside it, or with none:
    `ours` is 0 to 100, NaN where missing; `difference` is ours less theirs. `made` keeps boards for the next table.
    """
    cells, pairs = _set_beside(
        published, _boards(published, results, {} if made is None else made) if results else {}
    )
    facts, tables = (
        [("Average", published.average.rule if AVERAGE in published.columns else "")],
        list[Table](),
    )
    if results:
        facts.append(("Experiment", results.experiment))
        facts.append(
            ("Reported", f"{published.statistic} over seeds; {published.epoch} epoch; validation")
        )
        facts.append(("Data", "; ".join([results.data_source, *_unofficial(results)])))
        used = {
            name: Column(title) for name, title in PAIR_COLUMNS.items() if (pairs[name] != "").any()
        }
        tables.append(Table(frame=pairs, columns=used, title="Theirs and ours", legend=THEIRS_OURS))
    banner = results.banner if results else ""
    tables = [_scores(published, results, cells), *tables, facts_table(facts)]
    return Page(title=published.title, banner=banner, tables=tuple(tables), data=cells)


def _unofficial(results: Results) -> list[str]:
    """Which tasks have not exactly the official rows, and how."""
    altered = results.altered_tasks
    reduced = tuple(task for task in results.partial_tasks if task not in altered)
    texts = []
    if reduced:
        texts.append(f"a part of {titles(reduced)}")
    if altered:
        texts.append(f"other rows than the official ones of {titles(altered)}")
    return texts


def _boards(published: Published, results: Results, made: dict[Any, Board]) -> dict[float, Board]:
    """The boards after the shares of all steps at which rows were fine-tuned, where the experiment has such cells."""
    last, boards = max(results.all_steps, default=None), dict[float, Board]()
    for share in {1.0, *(row.share for row in published.rows)}:
        steps = last if share == 1 else round(share * (last or 0))
        if share == 1 or steps in results.all_steps:
            key = published.epoch, steps
            boards[share] = made[key] = made.get(key) or make_board(
                results, Protocol(epoch=published.epoch), steps
            )
    return boards


def _set_beside(
    published: Published, boards: Mapping[float, Board]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The data of a page; and PAIR_COLUMNS, texts: in what a row and an arm differ, or why it has no counterpart."""
    arms, rows, pairs = list[dict[Any, Any]](), list[dict[str, Any]](), list[dict[str, str]]()
    if whole := boards.get(1.0):
        ran = whole.cells[
            whole.cells["finished"] | (not whole.cells["finished"].any())
        ]  # before any has run, all arms
        arms = whole.results.arms.loc[ran["arm"].unique()].to_dict("records")
    values = {share: our_values(published, board) for share, board in boards.items()}
    for row in published.rows:
        board = boards.get(row.share)
        fitting = [arm for arm in arms if _nearest(arm, row, published) is row]
        if board is None or not fitting:
            why = f"no run of {row.variant}" if row.variant else "no variant of ours"
            why = f"no fine-tuned checkpoint after {row.share:.0%} of the steps" if fitting else why
            pairs.append(dict.fromkeys(PAIR_COLUMNS, "") | {"model": row.label, "note": why})
            fitting = [{"arm": "", "variant": "", "origin": ""}]
        else:
            pairs += [_pair(published, row, arm, board, values[row.share]) for arm in fitting]
        printed = [
            {"model": row.label, "column": column, "published": text}
            for column, text in row.printed.items()
        ]
        steps = board.steps if board and fitting[0]["arm"] else None
        ours = values.get(row.share, {})
        none = {"ours": math.nan, "seeds": 0}
        rows += [arm | {"steps": steps} | each | ours.get((arm["arm"], each["column"]), none)
                 for arm in fitting for each in printed]  # fmt: skip
    cells = pd.DataFrame(rows, columns=list(CELL_COLUMNS)).astype(
        {"seeds": "int64", "steps": "Int64"}
    )
    return cells.assign(difference=cells["ours"] - cells["published"].astype(float)), pd.DataFrame(
        pairs
    )


def our_values(published: Published, board: Board) -> dict[Any, dict[str, Any]]:
    """By arm and column `ours` and `seeds`, under the table's metrics, average and statistic.

    The rate is that with the best statistic over seeds of the table's own metrics of a task.
    """
    wanted = [score for (score,) in published.singly.parts.values()]
    places = pd.DataFrame(wanted, columns=["task", "split", "metric"]).drop_duplicates()
    scores = board.scores.merge(places, on=["task", "split", "metric"])
    runs = aggregate(scores, RUN_KEYS)["mean"].rename("value").reset_index()
    scores = scores.merge(best_rates(runs, published.statistic))
    parts = part_values(scores, published.singly)
    values: dict[Any, dict[Any, float]] = aggregate_over_seeds(
        parts, ["arm", "part"], published.statistic
    ).to_dict("index")
    if AVERAGE in published.columns:
        whole = average(scores, published.average, published.statistic)
        values |= {(arm, AVERAGE): row for arm, row in whole.to_dict("index").items()}
    return {
        key: {"ours": row[published.statistic], "seeds": int(row["n"])}
        for key, row in values.items()
    }


def _nearest(arm: Mapping[str, Any], row: PrintedRow, published: Published) -> PrintedRow | None:
    """Of the rows that an arm could stand beside, at this one's share of steps, the nearest in size."""
    rows = [
        each
        for each in published.rows
        if each.takes(arm["variant"], arm["options"]) and each.share == row.share
    ]
    known = 0 if pd.isna(arm["parameters"]) else arm["parameters"]
    return min(
        rows,
        key=lambda each: abs(math.log(known / each.parameters)) if known else 0.0,
        default=None,
    )


def _pair(
    published: Published, row: PrintedRow, arm: Mapping[str, Any], board: Board, values: Any
) -> dict[str, str]:
    """In what a printed row and an arm differ, each as a text: theirs / ours."""

    def two(theirs: Any, ours: Any, shown: Callable[[Any], str] = str) -> str:
        return " / ".join("?" if pd.isna(value) else shown(value) for value in (theirs, ours))

    cells = board.cells[board.cells["arm"] == arm["arm"]]
    runs = max(
        (values[arm["arm"], name]["seeds"] for name in row.printed if (arm["arm"], name) in values),
        default=0,
    )
    pretrainings, pretraining = (
        cells["pretraining_seed"].nunique(),
        board.results.plan.experiment.pretraining,
    )
    sizes = (
        (row.steps, published.tokens),
        (board.steps, pretraining.batch_tokens if pretraining else None),
    )
    theirs, ours = (steps * size if steps and size else None for steps, size in sizes)
    fresh = arm["checkpoint"] == SCRATCH or (pretraining and pretraining.start == SCRATCH)
    start = "fresh weights" if fresh else PurePath(arm["checkpoint"]).name
    return {
        "model": row.label,
        "arm": arm["arm"],
        "parameters": two(row.parameters, arm["parameters"], short),
        "steps": two(row.steps, board.steps, "{:,}".format),
        "tokens": two(theirs, ours, short),
        "seeds": two(published.seeds, runs)
        + (f", of {pretrainings} pretrainings" if pretrainings > 1 else ""),
        "rates": two(published.rates, cells.groupby("task")["learning_rate"].nunique().max()),
        "start": start
        if arm["origin"] in ("pretrained", "scratch")
        else f"{start}, {arm['origin']}",
        "note": "",
    }


def _scores(published: Published, results: Results | None, cells: pd.DataFrame) -> Table:
    """The printed rows, and ours below them; beside an experiment those alone that have an arm of it."""
    partial = results.partial_tasks if results else ()
    tasks = {name: {score[0]} for name, (score,) in published.singly.parts.items()}
    tasks[AVERAGE] = {task for part in published.average.parts.values() for task, _, _ in part}
    marked = [name for name in published.columns if tasks.get(name, set()) & {*partial}]
    rows = list[dict[str, str]]()
    for row in published.rows:
        of_row = cells[(cells["model"] == row.label) & (cells["arm"] != "")]
        rows += [{"model": row.label, **row.printed}] if results is None or len(of_row) else []
        for arm, each in of_row.groupby("arm", sort=False):
            known = each.dropna(subset="ours").to_dict("records")
            texts = {
                cell["column"]: f"{number(cell['ours'])} ({cell['difference']:+z.2f})"
                for cell in known
            }
            rows.append(
                {"model": f"ours: {arm}", **dict.fromkeys(published.columns, MISSING), **texts}
            )
    frame = pd.DataFrame(rows, columns=["model", *published.columns])
    best = {
        name: max((row.printed[name] for row in published.rows), key=float)
        for name in published.columns
    }
    bold = frame.eq(pd.Series({"model": "", **best}))
    scores = {
        name: Column(_title(name) + "†" * (name in marked), show=str) for name in published.columns
    }
    table = Table(
        frame=frame,
        columns={"model": Column("Model")} | scores,
        caption=f"{published.source}; the {published.split} set; {published.protocol}.",
        bold=bold,
    )
    notes = {"scores", *published.notes}
    if (cells["arm"] != "").any():
        notes.add("ours")
    if marked:
        notes.add("†")
    altered = {*results.altered_tasks} if results else set()
    if any(tasks[name] & altered for name in marked):
        notes.add("differences")
    if (frame == MISSING).to_numpy().any():
        notes.add(MISSING)
    return with_legend([table], LEGEND | {note: note for note in published.notes}, notes)[0]


def _title(column: str) -> str:
    """As the leaderboard writes it, a second metric behind; what is no GLUE task by its own name."""
    score = score_of(column)
    if score is None:
        return "Avg." if column == AVERAGE else column
    metric = {"f1": " F1", "spearmanr": " Spearman"}.get(score[2], "")
    return MEASURES[column if column in COLUMNS else score[0]].title + metric


def list_page() -> Page:
    """The published tables by name."""
    names = {
        "table": "Table",
        "title": "What it is",
        "split": "Set",
        "rows": "Rows",
        "source": "Source",
    }
    rows = [
        (name, table.title, table.split, len(table.rows), table.source)
        for name, table in PAPERS.items()
    ]
    columns = {name: Column(title, 0 if name == "rows" else None) for name, title in names.items()}
    return Page(
        title="Published tables",
        tables=(Table(frame=pd.DataFrame(rows, columns=list(names)), columns=columns),),
    )
