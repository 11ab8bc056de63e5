"""A leaderboard in every format, the same numbers to two decimals in all of them, and as files in its folder."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from glue_bench.files import write_atomically
from glue_bench.reporting.budget_page import budget_page
from glue_bench.reporting.findings import Findings, verdict
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.leaderboard_page import leaderboard_page
from glue_bench.reporting.notes import leaderboard_notes
from glue_bench.reporting.statistics_page import P_DECIMALS, contrast_frames, in_one, statistics_page
from glue_bench.tables.arms import FACTS
from glue_bench.tables.averages import AVERAGE
from glue_bench.tables.board import SCORE_COLUMNS, open_board, steps_frame
from glue_bench.tables.budget import budget_frame, told
from glue_bench.tables.compare import compare
from glue_bench.tables.numbers import csv_text, frame_csv, json_text, number, plain_rows
from glue_bench.values import BLOCK

TABLES = (
    *("leaderboard.md", "leaderboard.csv", "averages.csv", "scores.csv", "steps.csv"),
    *("statistics.md", "statistics.csv", "budget.md", "budget.csv", "losses.csv", "rates.csv", "intrinsic.csv"),
)
"""Every file that `write_tables` may write."""
OF_CONTRASTS = ["difference", "low", "high", "verdict", "smallest"]
Paths = str | Path | Sequence[str | Path]


def render(path: Paths, format: str = "markdown", findings: Findings | None = None) -> str:
    """The leaderboard of the experiment in the folder `path`, or of several together, in one of FORMATS.

    `findings` are those of `find`, where they are known already.

    Raises:
        UserError: the format is unknown, or as `open_board`.
    """
    findings = findings or find(path)
    if format == "csv":
        return to_csv(findings)
    if format == "json":
        return to_json(findings)
    return render_page(leaderboard_page(findings), format)


def find(path: Paths, protocol: Iterable[str] = (), *, runs: bool = False) -> Findings:
    """A leaderboard and its verdicts, which several experiments together have none of. Raises as `open_board`.

    `protocol` are KEY=VALUE that change the experiment's own. With `runs` a page shows every run below its arm.
    """
    return Findings(comparison=compare(open_board(path, protocol)), runs=runs)


def write_tables(findings: Findings) -> list[Path]:
    """Write `tables` into the experiment's folder, and remove those that it no longer has; the paths written."""
    folder, contents = findings.results.folder, tables(findings)
    for name, text in contents.items():
        write_atomically(folder / name, text.encode())
    for name in set(TABLES) - contents.keys():  # of an earlier plan: nothing in the folder would contradict them
        (folder / name).unlink(missing_ok=True)
    return [folder / name for name in contents]


def tables(findings: Findings) -> dict[str, str]:
    """The files of TABLES that an experiment has, by name: leaderboard.md, leaderboard.csv and scores.csv always.

    The bytes depend only on the plan, the records' scores and processors, predictions and labels, so that a rerun
    changes no file.
    Where arms can be compared also statistics.md and statistics.csv; where they are pretrained also budget.md,
    budget.csv and losses.csv, which hold measured speeds, and intrinsic.csv; where their learning rate is searched for
    also rates.csv; where several checkpoints of the pretraining are fine-tuned also steps.csv; where the tasks allow a
    conventional average also averages.csv; where texts with shuffled words were scored scores.csv has these, too.
    """
    board, results = findings.board, findings.results
    shuffled = ["shuffled"] * bool(board.scores["shuffled"].notna().any())
    scores = board.scores[[*SCORE_COLUMNS, *shuffled]]
    if scores["pretraining_seed"].nunique() < 2:
        scores = scores.drop(columns="pretraining_seed")
    scores = scores.assign(**{name: scores[name].map(lambda value: number(value, 4)) for name in ("value", *shuffled)})
    contents = {
        "leaderboard.md": render_page(leaderboard_page(findings)),
        "leaderboard.csv": to_csv(findings),
        "scores.csv": csv_text(scores),
    }
    for name, frame in (("averages.csv", findings.averages), ("steps.csv", steps_frame(board))):
        if len(frame):
            contents[name] = frame_csv(frame)
    if frames := contrast_frames(findings.comparison):
        contents["statistics.md"] = render_page(statistics_page(findings.comparison))
        contents["statistics.csv"] = frame_csv(in_one(frames), P_DECIMALS)
    budgets, rates = budget_frame(results), findings.rates
    if budgets["stream"].notna().any():
        contents["budget.md"] = render_page(budget_page(budgets, results.experiment, rates))
        contents["budget.csv"] = csv_text(told(budgets).drop(columns="recipe"))
        losses = told(results.losses.drop(columns="pretraining_id"))
        contents["losses.csv"] = csv_text(losses, float_format="%.4f")
    if len(rates):
        contents["rates.csv"] = csv_text(rates)
    if len(results.measures):
        contents["intrinsic.csv"] = frame_csv(results.measures.drop(columns="pretraining_id"), 5)
    return contents


def to_csv(findings: Findings) -> str:
    """The leaderboard's table as CSV, with `data_source` and `partial_tasks` (separated by `;`) before FACTS.

    After them `reference`, and for the average and each column `<col>_` and OF_CONTRASTS, and `<col>_majority`.
    """
    return frame_csv(wide(findings))


def wide(findings: Findings) -> pd.DataFrame:
    """One row per arm, as `to_csv` has it."""
    board, contrasts = findings.board, findings.contrasts
    partial = ";".join(board.results.partial_tasks)
    table = findings.table.drop(columns=FACTS).assign(data_source=board.results.data_source, partial_tasks=partial)
    table = table.join(findings.table[FACTS])
    keys = [*BLOCK, "arm"]
    table = table.merge(contrasts[[*keys, "reference"]].drop_duplicates(), on=keys, how="left")
    for column in (AVERAGE, *board.columns, *findings.measures):
        mine = contrasts.loc[contrasts["column"] == column, [*keys, *OF_CONTRASTS]]
        names = {name: f"{column}_{name}" for name in OF_CONTRASTS}
        table = table.merge(mine.rename(columns=names), on=keys, how="left")
        table[f"{column}_majority"] = findings.constants.get(column, math.nan)
    return table


def to_json(findings: Findings) -> str:
    """As JSON: experiment, data_source, partial_tasks, verdict, notes, rows, averages; null where missing."""
    results = findings.results
    document = {
        "experiment": results.experiment,
        "data_source": results.data_source,
        "partial_tasks": list(results.partial_tasks),
        "verdict": verdict(findings),
        "notes": leaderboard_notes(findings),
        "rows": plain_rows(wide(findings)),
        "averages": plain_rows(findings.averages),
    }
    return json_text(document)
