"""The positive control of a leaderboard: a column is evidence where `add` is above `none`."""

import numpy as np
import pytest
from helpers.read_pages import read_markdown
from helpers.stored import ROWS

from glue_bench.board.compare import open_comparison
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.marks import UNCONTROLLED
from glue_bench.pages.render import to_markdown


def finish(bench, arm, seed, right) -> None:
    """Finish a run on RTE that is right on the first examples; all labels are 1."""
    cell = bench.expect("rte", seed, arm=arm, rate=2e-5)
    bench.record(cell, right / ROWS)
    is_right = np.arange(ROWS) < right
    bench.predict(cell["cell_id"], {"validation": np.stack([~is_right, is_right], axis=1)})


def page_of(bench, right_of_arms) -> str:
    """Write the leaderboard of three seeds an arm, by the number of right examples of an arm."""
    for arm, right in right_of_arms.items():
        for seed in (1, 2, 3):
            finish(bench, arm, seed, right + seed)
    bench.label("rte", {"validation": np.ones(ROWS, int)})
    return to_markdown(leaderboard_page(open_comparison(bench.plan())))


def score_title(page) -> str:
    return read_markdown(page)[0].header[2]


def test_a_column_in_which_add_is_far_above_none_has_no_mark(bench):
    page = page_of(bench, {"add": ROWS - 4, "none": 0})
    assert score_title(page) == "RTE"


@pytest.mark.parametrize("gain", [0, -ROWS // 2])
def test_a_column_in_which_add_is_not_shown_above_none_is_marked(bench, gain):
    page = page_of(bench, {"add": ROWS // 2 + gain, "none": ROWS // 2})
    assert score_title(page) == f"RTE{UNCONTROLLED}"
    assert f"{UNCONTROLLED} `add` is not shown above `none` here" in page


def test_without_an_encoder_without_positions_nothing_is_marked(bench):
    page = page_of(bench, {"add": ROWS // 2, "untied": ROWS // 2})
    assert score_title(page) == "RTE"
    assert f"RTE{UNCONTROLLED}" not in page
