"""The files of tables in a results folder, and the command that matters next."""

from collections.abc import Sequence
from pathlib import Path

from glue_bench.board.board import SCORE_COLUMNS, Board, averages_frame
from glue_bench.board.compare import Comparison
from glue_bench.board.leaderboard import make_leaderboard
from glue_bench.board.steps import steps_frame
from glue_bench.config import FINISHED
from glue_bench.data.tasks import find_task
from glue_bench.files import write_atomically
from glue_bench.pages.budget import budget_frame, drop_silent_columns, page_of_budgets, rates_frame
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.lags import seed_frames
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.render import csv_text, to_csv, to_markdown

WRITTEN_TABLES = (
    "leaderboard.md",
    "leaderboard.csv",
    "averages.csv",
    "scores.csv",
    "steps.csv",
    "statistics.md",
    "statistics.csv",
    "budget.md",
    "budget.csv",
    "losses.csv",
    "lags.csv",
    "lag_seeds.csv",
    "reached.csv",
    "ratios.csv",
    "ratio_seeds.csv",
    "rates.csv",
    "intrinsic.csv",
)
"""Every file that `write_tables` may write."""
ENOUGH_SEEDS = 3
"""The number of seeds from which on an arm shows how far its own runs spread."""


def write_tables(comparison: Comparison) -> list[Path]:
    """Write the tables into the experiment's folder, and return their paths.

    Files of an earlier plan that the experiment no longer has are removed: nothing else in the
    folder would contradict them.
    """
    folder = comparison.board.results.folder
    contents = table_files(comparison)
    for name, text in contents.items():
        write_atomically(folder / name, text.encode())
    for name in WRITTEN_TABLES:
        if name not in contents:
            (folder / name).unlink(missing_ok=True)
    return [folder / name for name in contents]


def table_files(comparison: Comparison) -> dict[str, str]:
    """Give the files of tables that an experiment has, as texts by name.

    The bytes depend only on the plan, the records, predictions and labels, so that a rerun changes
    no file.

    - Always: leaderboard.md, leaderboard.csv, scores.csv.
    - If arms can be compared: statistics.md, statistics.csv.
    - If the tasks allow a conventional average: averages.csv.
    - If arms are pretrained: budget.md, budget.csv and losses.csv, which hold measured speeds, and
      intrinsic.csv; reached.csv, lags.csv and ratios.csv, with the files of their single seeds, if
      validation losses were measured.
    - If learning rates were searched for: rates.csv.
    - If several checkpoints of a pretraining are fine-tuned: steps.csv.
    """
    board = comparison.board
    results = board.results
    page = leaderboard_page(make_leaderboard(comparison))
    contents = {
        "leaderboard.md": to_markdown(page),
        "leaderboard.csv": to_csv(page),
        "scores.csv": scores_csv(board),
    }

    if len(comparison.contrasts):
        statistics = statistics_page(comparison)
        contents["statistics.md"] = to_markdown(statistics)
        contents["statistics.csv"] = to_csv(statistics)

    budgets = budget_frame(results)
    rates = rates_frame(results)
    if budgets["stream"].notna().any():
        losses = drop_silent_columns(results.losses.drop(columns="pretraining_id"))
        contents["budget.md"] = to_markdown(page_of_budgets(results, budgets, rates))
        contents["budget.csv"] = csv_text(drop_silent_columns(budgets))
        contents["losses.csv"] = csv_text(losses, float_format="%.4f")

    frames_and_decimals = {
        "averages.csv": (averages_frame(board), 2),
        "steps.csv": (steps_frame(board), 2),
        "rates.csv": (rates, None),
        "intrinsic.csv": (results.measures.drop(columns="pretraining_id"), 5),
        "reached.csv": (comparison.reached, 2),
        "lags.csv": (comparison.lags, 3),
    }

    for name, frame in seed_frames(comparison).items():
        frames_and_decimals[name] = (frame, 3)
    for name, (frame, decimals) in frames_and_decimals.items():
        if len(frame):
            contents[name] = csv_text(frame, decimals)
    return contents


def scores_csv(board: Board) -> str:
    """Write every score of every run as CSV; the pretraining seed only where there are several."""
    names = list(SCORE_COLUMNS)
    if board.scores["pretraining_seed"].nunique() < 2:
        names.remove("pretraining_seed")
    # As objects, rates are written with all of their digits.
    return csv_text(board.scores[names].astype({"learning_rate": object}), 4)


def next_step(
    comparison: Comparison, folder: str, failed: Sequence[str] = (), *, has_only: bool = False
) -> str:
    """Choose the command that matters next: what is unfinished comes first, then what tells more.

    Args:
        comparison: The contrasts.
        folder: The folder of the experiment as a command names it.
        failed: The jobs that failed in the run before.
        has_only: Whether that run finished what its --only had chosen. The same command would run
            nothing.

    Returns:
        The command, with its reason as a comment of a shell.
    """
    board = comparison.board
    results = board.results

    if failed:
        return f"glue-bench status {folder}  # why runs have failed"
    if not board.cells["finished"].all():
        if has_only:
            return "the same glue-bench run without --only  # it goes on with what is missing"
        return "the same glue-bench run  # it goes on with what is missing"
    if results.experiment == "demo" and results.is_made_up:
        return "glue-bench init NAME --pretrain  # writes the demo's experiment, to change and run"

    few_seeds = seeds_advice(board)
    if len(comparison.contrasts):
        reason = "the intervals behind the marks"
        if few_seeds:
            reason += f"; {few_seeds} tell more"
        return f"glue-bench statistics {folder}  # {reason}"
    if few_seeds:
        return f"the same glue-bench run  # with {few_seeds}"

    if not any(find_task(task).benchmark == "GLUE" for task in results.tasks.index):
        return f"glue-bench card {folder}  # a model card with these scores"
    return f"glue-bench table NAME {folder}  # beside a paper's table; glue-bench table lists them"


def seeds_advice(board: Board) -> str:
    """Say which seeds to add so that each arm shows its spread; empty if there are enough."""
    if board.steps and board.cells["pretraining_seed"].nunique() < ENOUGH_SEEDS:
        return "seeds: [1, 2, 3] under pretraining"
    trained = board.table[board.table["origin"] != FINISHED]
    seeds = trained[[f"{column}_n" for column in board.columns]]
    if (seeds < ENOUGH_SEEDS).any(axis=None):
        return "--seed 1,2,3 (in a file seeds: [1, 2, 3])"
    return ""
