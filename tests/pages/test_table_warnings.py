"""A warning stands above a table if its runs can tell no arms apart, and above no other table."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from helpers.stored import Bench, fill
from rich.console import Console

from glue_bench.board.compare import Comparison, open_comparison
from glue_bench.board.leaderboard import make_leaderboard, open_leaderboard
from glue_bench.pages.leaderboard import leaderboard_page, screen_page
from glue_bench.pages.page import Page
from glue_bench.pages.render import PAGE_FORMATS, render, to_html
from glue_bench.pages.report import make_report
from glue_bench.pages.screen import print_page
from glue_bench.pages.table_warnings import (
    FINISHED_ONE_ANSWER,
    FINISHED_TOO_EASY,
    NO_ORDER,
    ONE_ANSWER,
    TOO_EASY,
)

ROOT = Path(__file__).parents[2]
FINISHED = {"variant": "finished", "origin": "finished", "rate": 0.0}
LEADERBOARDS = sorted(ROOT.glob("results/*/leaderboard.md"))
WARNING = "**Warning.**"
ON_RTE = ONE_ANSWER.format(columns="RTE")


def warnings_at(path: Path) -> list[str]:
    """Return the warnings of all tables of a leaderboard."""
    warnings: list[str] = []
    for table in screen_page(open_leaderboard(path)).tables:
        warnings += table.warnings
    return warnings


def swaps(bench, **shares) -> None:
    """Add a pretraining of each arm that prefers this share of the texts to swapped ones."""
    for arm, share in shares.items():
        sums = {"swap_1": np.stack([np.full(50, 100 * share), np.full(50, 100.0)])}
        bench.pretrain(arm, seed=1, sums=sums)


@pytest.mark.parametrize("path", LEADERBOARDS, ids=lambda path: path.parent.name)
def test_no_committed_result_has_a_warning(path):
    """Committed tables are what the package writes: see tests/promises/test_results.py."""
    assert WARNING not in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"add": 1.0, "untied": 0.995, "none": 0.5}, [TOO_EASY]),
        ({"add": 1.0, "untied": 0.97}, []),
        ({"add": 1.0, "none": 0.5}, []),
    ],
    ids=["all arms but the floor", "one arm lower", "a single arm beside the floor"],
)
def test_tasks_are_too_easy_if_all_arms_with_positions_have_nearly_all_right(
    bench, scores, expected
):
    for task in ("rte", "sst2"):
        for arm, score in scores.items():
            bench.finish(task, seed=1, score=score, arm=arm)
    assert warnings_at(bench.plan()) == expected


def test_tasks_are_not_too_easy_if_one_of_them_is_not(bench):
    for arm in ("add", "untied"):
        bench.finish("rte", seed=1, score=1.0, arm=arm)
        bench.finish("sst2", seed=1, score=0.9, arm=arm)
    assert warnings_at(bench.plan()) == []


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"add": 0.53, "untied": 0.48, "none": 0.5}, [NO_ORDER]),
        ({"add": 0.53, "untied": 0.7, "none": 0.5}, []),
        ({"none": 0.5}, []),
    ],
    ids=["all at chance", "one arm above", "no arm with positions"],
)
def test_no_arm_beats_chance_on_the_swap_test(bench, shares, expected):
    fill(bench, arms=dict.fromkeys(shares, 0.7))
    swaps(bench, **shares)
    assert warnings_at(bench.plan()) == expected


@pytest.mark.parametrize(
    ("collapsed_runs", "expected"), [(4, [ON_RTE]), (3, [])], ids=["all runs", "all but one"]
)
def test_one_answer_in_every_run_of_a_column(bench, collapsed_runs, expected):
    places = [("add", 1), ("add", 2), ("untied", 1), ("untied", 2)]
    for number, (arm, seed) in enumerate(places):
        collapsed = ["validation"] if number < collapsed_runs else []
        bench.finish("rte", seed=seed, score=0.5, arm=arm, collapsed=collapsed)
        bench.finish("sst2", seed=seed, score=0.8, arm=arm)
    assert warnings_at(bench.plan()) == expected


@pytest.fixture
def add_finished(bench):
    """A function that adds two finished classifiers on RTE with a score, and opens their page."""

    def add(value, collapsed=()):
        arms = []
        for name in ("first", "second"):
            bench.finish("rte", seed=0, score=value, arm=name, collapsed=collapsed, **FINISHED)
            arms.append({"name": name, "variant": "finished", "checkpoint": f"org/{name}"})
        return bench.plan(config={"arms": arms})

    return add


def test_one_answer_of_finished_classifiers_is_not_mended_by_training(add_finished):
    folder = add_finished(0.5, ["validation"])
    assert warnings_at(folder) == [FINISHED_ONE_ANSWER.format(columns="RTE")]


def test_tasks_too_easy_for_finished_classifiers_are_not_mended_by_training(add_finished):
    assert warnings_at(add_finished(1.0)) == [FINISHED_TOO_EASY]


def test_one_answer_on_wnli_is_usual(bench):
    bench.finish("wnli", seed=1, score=0.56, collapsed=["validation"])
    bench.finish("rte", seed=1, score=0.6)
    assert warnings_at(bench.plan()) == []


@pytest.fixture(scope="module")
def too_easy(tmp_path_factory) -> Comparison:
    """Runs that answered everything correctly."""
    bench = Bench(tmp_path_factory.mktemp("too_easy") / "toy")
    for arm in ("add", "untied"):
        bench.finish("rte", seed=1, score=1.0, arm=arm)
    return open_comparison(bench.plan())


@pytest.fixture(scope="module")
def page(too_easy) -> Page:
    """Their leaderboard."""
    return leaderboard_page(make_leaderboard(too_easy))


@pytest.mark.parametrize("format", sorted(set(PAGE_FORMATS) - {"csv"}))
def test_a_warning_is_in_each_format_that_has_sentences(page, format):
    assert TOO_EASY[:30] in render(page, format)


def test_a_warning_is_called_one_in_markdown(page):
    assert WARNING in render(page, "markdown")


def test_a_warning_is_in_the_report_and_above_the_table(too_easy):
    text = to_html(make_report(too_easy))
    assert text.count(TOO_EASY[:30]) == 1
    assert text.index(TOO_EASY[:30]) < text.index("<table>")


def test_a_warning_is_in_the_terminal_above_the_table(too_easy):
    file = StringIO()
    print_page(screen_page(make_leaderboard(too_easy)), Console(file=file, width=400))
    (line,) = [line for line in file.getvalue().splitlines() if line.startswith("Warning: ")]
    assert line == "Warning: " + TOO_EASY.replace("`", "")
