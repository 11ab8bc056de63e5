"""The positive control of a leaderboard: a column is evidence where `add` is above `none`."""

import numpy as np
import pytest
from helpers.read_pages import read_markdown
from helpers.stored import ROWS

from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.pages.leaderboard import leaderboard_page, screen_page
from glue_bench.pages.marks import LEADERBOARD_LEGEND, MARKS_IN_WORDS, UNCONTROLLED, explain_marks
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.render import to_markdown


def finish(bench, arm, seed, right) -> None:
    """Finish a run on RTE that is right on the first examples; all labels are 1."""
    cell = bench.expect("rte", seed=seed, arm=arm, rate=2e-5)
    bench.record(cell, score=right / ROWS)
    is_right = np.arange(ROWS) < right
    bench.predict(cell["cell_id"], {"validation": np.stack([~is_right, is_right], axis=1)})


def test_no_interval_is_wider_than_scores_can_differ(bench):
    """Each arm has two runs with opposite answers, so that hardly a degree of freedom is left."""
    labels = np.arange(ROWS) % 2
    for arm, answers in {"add": (0, 1), "untied": (1, 0)}.items():
        for seed, answer in enumerate(answers, 1):
            predicted = np.full(ROWS, answer)
            predicted[:1] = 1 - answer if arm == "untied" else answer
            cell = bench.expect("rte", seed=seed, arm=arm, rate=2e-5)
            bench.record(cell, score=float((predicted == labels).mean()))
            logits = np.stack([1 - predicted, predicted], axis=1)
            bench.predict(cell["cell_id"], {"validation": logits})
    bench.label("rte", {"validation": labels})
    page = to_markdown(leaderboard_page(open_leaderboard(bench.plan())))
    (untied,) = [row for row in read_markdown(page)[0].texts if row[0] == "untied"]
    assert untied[3].endswith("± 100.00")


def page_of(bench, right_of_arms) -> str:
    """Write the leaderboard of arms with three seeds and these numbers of right examples."""
    for arm, right in right_of_arms.items():
        for seed in (1, 2, 3):
            finish(bench, arm, seed, right + seed)
    bench.label("rte", {"validation": np.ones(ROWS, int)})
    return to_markdown(leaderboard_page(open_leaderboard(bench.plan())))


@pytest.mark.parametrize(("right", "is_explained"), [(ROWS - 4, False), (ROWS // 2, True)])
def test_a_terminal_explains_the_mark_only_where_it_stands(bench, right, is_explained):
    page_of(bench, {"add": right, "none": 0 if right > ROWS // 2 else right})
    lines = explain_marks(screen_page(open_leaderboard(bench.plan())).tables)
    assert (MARKS_IN_WORDS[UNCONTROLLED] in lines) == is_explained


def test_every_mark_of_the_legend_is_explained_in_a_terminal():
    signs = {key for key in LEADERBOARD_LEGEND if len(key) == 1} - {MISSING}
    assert signs <= set(MARKS_IN_WORDS)


def score_title(page) -> str:
    return read_markdown(page)[0].header[2]


def test_a_column_in_which_add_is_far_above_none_has_no_mark(bench):
    page = page_of(bench, {"add": ROWS - 4, "none": 0})
    assert score_title(page) == "RTE"


@pytest.mark.parametrize("gain", [0, -ROWS // 2])
def test_a_column_in_which_add_is_not_shown_above_none_is_marked(bench, gain):
    page = page_of(bench, {"add": ROWS // 2 + gain, "none": ROWS // 2})
    assert score_title(page) == f"RTE{UNCONTROLLED}"
    assert f"{UNCONTROLLED} `add` is not shown above `none`" in page


def test_without_an_encoder_without_positions_nothing_is_marked(bench):
    page = page_of(bench, {"add": ROWS // 2, "untied": ROWS // 2})
    assert score_title(page) == "RTE"
    assert f"RTE{UNCONTROLLED}" not in page
