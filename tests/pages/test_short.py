"""The short leaderboard has what a table of a paper has: means, deviations, all metrics."""

import statistics

import pytest
from helpers.read_pages import read_markdown

from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.errors import UserError
from glue_bench.pages.render import render
from glue_bench.pages.short import short_page

ACCURACIES = {"add": (0.60, 0.62, 0.67), "none": (0.50, 0.52, 0.54)}


@pytest.fixture
def leaderboard(bench):
    """Three runs of two arms on a task with two metrics, and on a task with one metric."""
    for arm, accuracies in ACCURACIES.items():
        for seed, accuracy in enumerate(accuracies, 1):
            bench.finish(
                "mrpc", seed=seed, score={"accuracy": accuracy, "f1": accuracy + 0.1}, arm=arm
            )
            bench.finish("rte", seed=seed, score=accuracy, arm=arm)
    return open_leaderboard(bench.plan())


def table_of(leaderboard):
    (table,) = read_markdown(render(short_page(leaderboard)))
    return table


def expected_text(arm: str, added: float = 0.0) -> str:
    values = [100 * (accuracy + added) for accuracy in ACCURACIES[arm]]
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def test_headings_name_metrics_where_there_are_several(leaderboard):
    assert table_of(leaderboard).header == ["Arm", "Avg. of 2", "MRPC (acc. / F1)", "RTE"]


def test_cells_are_means_and_deviations_of_each_metric(leaderboard):
    rows = {row[0][0]: [text for text, _ in row[2:]] for row in table_of(leaderboard).rows}
    for arm in ACCURACIES:
        pair = f"{expected_text(arm)} / {expected_text(arm, 0.1)}"
        assert rows[arm] == [pair, expected_text(arm)]


def test_only_arms_are_rows_and_no_legend_follows(leaderboard):
    (table,) = short_page(leaderboard).tables
    assert [row[0].text for row in table.rows] == ["add", "none"]
    assert table.legend == ()


def test_the_caption_says_what_the_cells_are(leaderboard):
    (table,) = short_page(leaderboard).tables
    assert table.caption == (
        "Mean ± standard deviation over 3 runs on the validation set; "
        "accuracy unless a heading says otherwise."
    )


def test_a_mark_is_explained_in_the_caption(bench):
    bench.finish("rte", seed=1, score=0.5, collapsed=["validation"])
    bench.finish("sst2", seed=1, score=0.6, partial=True)
    bench.expect("sst2", seed=2)
    (table,) = short_page(open_leaderboard(bench.plan())).tables
    assert [cell.text for cell in table.rows[0]] == ["add", "55.0*", "60.0*", "50.0‡"]
    assert table.header[2] == "SST-2†"
    assert table.caption.endswith(
        "† a part of the rows, or other rows. ‡ a run gave one answer to everything. "
        "* fewer runs than planned."
    )


def test_latex_is_one_table_without_a_list(leaderboard):
    text = render(short_page(leaderboard, "latex"), "latex")
    assert text.count(r"\begin{table}") == 1
    assert r"\item" not in text


@pytest.mark.parametrize("format", ["csv", "json"])
def test_it_is_no_file_of_numbers(leaderboard, format):
    with pytest.raises(UserError, match=f"without it, {format} has every number"):
        short_page(leaderboard, format)
