"""The files of a results folder, and the command that matters next."""

from collections.abc import Sequence
from pathlib import Path

from glue_bench.data.tasks import TRAINABLE
from glue_bench.files import write_atomically
from glue_bench.tables.board import SCORE_COLUMNS, averages, open_board, steps_frame
from glue_bench.tables.budget import budget_frame, budget_page, rates_frame, told
from glue_bench.tables.compare import Comparison, compare
from glue_bench.tables.contrasts import statistics_page
from glue_bench.tables.facts import marked_tasks
from glue_bench.tables.numbers import csv_text, frame_csv, number
from glue_bench.tables.pages import leaderboard_page

TABLES = (
    *("leaderboard.md", "leaderboard.csv", "averages.csv", "scores.csv", "steps.csv"),
    *("statistics.md", "statistics.csv", "budget.md", "budget.csv", "losses.csv", "rates.csv", "intrinsic.csv"),
)
"""Every file that `write_tables` may write."""
SEEDS = 3
"""From so many seeds on an arm shows how far its own runs spread."""


def find(paths: str | Path | Sequence[str | Path], protocol: Sequence[str] = ()) -> Comparison:
    """The comparison of an experiment, or of several together, by its protocol or one changed by KEY=VALUE.

    Raises:
        UserError: as `open_board`.
    """
    return compare(open_board(paths, protocol))


def write_tables(comparison: Comparison) -> list[Path]:
    """Write `tables` into the experiment's folder, and remove those that it no longer has; the paths written."""
    folder, contents = comparison.board.results.folder, tables(comparison)
    for name, text in contents.items():
        write_atomically(folder / name, text.encode())
    for name in set(TABLES) - contents.keys():  # of an earlier plan: nothing in the folder would contradict them
        (folder / name).unlink(missing_ok=True)
    return [folder / name for name in contents]


def tables(comparison: Comparison) -> dict[str, str]:
    """The files of TABLES that an experiment has, by name: leaderboard.md, leaderboard.csv and scores.csv always.

    The bytes depend only on the plan, the records, predictions and labels, so that a rerun changes no file. Where arms
    can be compared also statistics.md and .csv; where they are pretrained budget.md and .csv, and losses.csv, which
    hold measured speeds, and intrinsic.csv; where their learning rate is searched for rates.csv; where several
    checkpoints of the pretraining are fine-tuned steps.csv; where the tasks allow a conventional average averages.csv.
    """
    board, results = comparison.board, comparison.board.results
    leaderboard, budgets = leaderboard_page(comparison), budget_frame(results)
    one_seed = board.scores["pretraining_seed"].nunique() < 2
    names = [name for name in SCORE_COLUMNS if not (one_seed and name == "pretraining_seed")]
    scores = board.scores.assign(value=board.scores["value"].map(lambda value: number(value, 4)))
    contents = {"leaderboard.md": leaderboard.to_markdown(), "leaderboard.csv": leaderboard.to_csv()}
    contents |= {"scores.csv": csv_text(scores[names])}
    if len(comparison.contrasts):
        statistics = statistics_page(comparison)
        contents |= {"statistics.md": statistics.to_markdown(), "statistics.csv": statistics.to_csv()}
    if budgets["stream"].notna().any():
        contents |= {"budget.md": budget_page(results).to_markdown(), "budget.csv": csv_text(told(budgets))}
        losses = told(results.losses.drop(columns="pretraining_id"))
        contents |= {"losses.csv": csv_text(losses, float_format="%.4f")}
    steps, conventions, rates, measures = steps_frame(board), averages(board), rates_frame(results), results.measures
    contents |= {"averages.csv": frame_csv(conventions)} if len(conventions) else {}
    contents |= {"steps.csv": frame_csv(steps)} if len(steps) else {}
    contents |= {"rates.csv": csv_text(rates)} if len(rates) else {}
    measured = {"intrinsic.csv": frame_csv(measures.drop(columns="pretraining_id"), 5)} if len(measures) else {}
    return contents | measured


def next_step(comparison: Comparison, folder: str, failed: Sequence[str] = ()) -> str:
    """A command, and why: what is unfinished comes first, then what would tell more, then what can be handed in."""
    board, contrasts = comparison.board, comparison.of("reference", "conversion")
    if failed:
        return f"`glue-bench status {folder}` (why runs have failed)"
    if not board.cells["finished"].all():
        return "the same `glue-bench run`, which goes on with what is missing"
    if "demo" in board.results.data_source:
        return "`glue-bench run --checkpoint NAME --task rte` (any encoder of the hub)"
    if board.table["arm"].nunique() == 1:
        return f"`glue-bench table NAME {folder}` (beside a paper's table; `glue-bench table` lists them)"
    if board.steps and board.cells["pretraining_seed"].nunique() == 1:
        return "`seeds: [1, 2, 3]` under `pretraining`, and the same `glue-bench run`"
    if min(count for counts in board.planned.values() for count in counts.values()) < SEEDS:
        return "`seeds: [1, 2, 3]` in the experiment, and the same `glue-bench run`"
    if not (contrasts.loc[contrasts["column"] == comparison.primary, "verdict"] != "").any():
        return f"`glue-bench statistics {folder} --difference 1` (how many seeds a point takes)"
    if {*TRAINABLE} <= {*board.cells["task"]} and not marked_tasks(board):
        best = board.table["arm"].iloc[0]
        return f"`glue-bench submit {folder} --arm {best} -o {best}.zip` (for GLUE's test server)"
    return f"`glue-bench statistics {folder}` (the intervals behind the marks)"
