"""The files of tables in a results folder, and the command that matters next."""

from collections.abc import Sequence
from pathlib import Path

from glue_bench.board.board import SCORE_COLUMNS, averages_frame, steps_frame
from glue_bench.board.compare import Comparison
from glue_bench.files import write_atomically
from glue_bench.pages.budget import budget_frame, budget_page, informative, rates_frame
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.render import csv_text, to_csv, to_markdown

TABLES = ("leaderboard.md", "leaderboard.csv", "averages.csv", "scores.csv", "steps.csv", "statistics.md",
          "statistics.csv", "budget.md", "budget.csv", "losses.csv", "rates.csv", "intrinsic.csv")  # fmt: skip
"""Every file that `write_tables` may write."""
ENOUGH_SEEDS = 3
"""From so many seeds on an arm shows how far its own runs spread."""


def write_tables(comparison: Comparison) -> list[Path]:
    """Write `tables` into the experiment's folder, and remove those that it no longer has; the paths written."""
    folder, contents = comparison.board.results.folder, tables(comparison)
    for name, text in contents.items():
        write_atomically(folder / name, text.encode())
    for name in (
        set(TABLES) - contents.keys()
    ):  # of an earlier plan: nothing in the folder would contradict them
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
    page, budgets = leaderboard_page(comparison), budget_frame(results)
    one_seed = board.scores["pretraining_seed"].nunique() < 2
    names = [name for name in SCORE_COLUMNS if not (one_seed and name == "pretraining_seed")]
    contents = {"leaderboard.md": to_markdown(page), "leaderboard.csv": to_csv(page)}
    contents |= {"scores.csv": csv_text(board.scores[names].astype({"learning_rate": object}), 4)}
    if len(comparison.contrasts):
        statistics = statistics_page(comparison)
        contents |= {"statistics.md": to_markdown(statistics), "statistics.csv": to_csv(statistics)}
    if budgets["stream"].notna().any():
        contents |= {
            "budget.md": to_markdown(budget_page(results)),
            "budget.csv": csv_text(informative(budgets)),
        }
        losses = informative(results.losses.drop(columns="pretraining_id"))
        contents |= {"losses.csv": csv_text(losses, float_format="%.4f")}
    more = (
        ("averages.csv", averages_frame(board), 2),
        ("steps.csv", steps_frame(board), 2),
        ("rates.csv", rates_frame(results), None),
        ("intrinsic.csv", results.measures.drop(columns="pretraining_id"), 5),
    )
    return contents | {name: csv_text(frame, exact) for name, frame, exact in more if len(frame)}


def next_step(
    comparison: Comparison, folder: str, failed: Sequence[str] = (), *, has_only: bool = False
) -> str:
    """A command, and why as a comment of a shell: what is unfinished comes first, then what would tell more.

    After a run that `has_only` finished what its --only had chosen, the same command would run nothing.
    """
    board = comparison.board
    if failed:
        return f"glue-bench status {folder}  # why runs have failed"
    if has_only and not board.cells["finished"].all():
        return "the same glue-bench run without --only  # it goes on with what is missing"
    if not board.cells["finished"].all():
        return "the same glue-bench run  # it goes on with what is missing"
    if board.results.experiment == "demo" and board.results.is_made_up:
        return "glue-bench init NAME  # writes an experiment file, to change and run"
    of_pretraining = bool(board.steps) and board.cells["pretraining_seed"].nunique() < ENOUGH_SEEDS
    few = of_pretraining or (
        board.table[[f"{column}_n" for column in board.columns]] < ENOUGH_SEEDS
    ).any(axis=None)
    more = f"seeds: [1, 2, 3] {'under pretraining' if of_pretraining else 'in the experiment'}"
    if len(comparison.contrasts):
        return f"glue-bench statistics {folder}  # the intervals behind the marks{f'; {more} tell more' if few else ''}"
    if few:
        return f"the same glue-bench run  # with {more}"
    return f"glue-bench table NAME {folder}  # beside a paper's table; glue-bench table lists them"
