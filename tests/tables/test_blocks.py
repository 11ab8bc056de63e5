"""What stands in one block may be ranked together: encoders of one origin and one shape, and all of it is said."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from read_pages import read_markdown
from rich.console import Console
from simulated import REGIMES, fill_drawn, simulate
from stored import SHAPE, cell_with, plan_with

from glue_bench.stats.power import power_frame
from glue_bench.tables.arms import arms_frame, with_starts
from glue_bench.tables.board import leaderboard, open_board
from glue_bench.tables.compare import compare
from glue_bench.tables.contrasts import difference_page, statistics_page
from glue_bench.tables.export import find
from glue_bench.tables.pages import best_of, leaderboard_page, screen_page
from glue_bench.values import BLOCK

LARGE = SHAPE | {"hidden_size": 64, "embedding_size": 64}
SMALL_TEXT = "2 layers, hidden size 8, 2 heads, intermediate size 16, vocabulary 100"
LARGE_TEXT = "2 layers, hidden size 64, 2 heads, intermediate size 16, vocabulary 100"


def terminal(path, width=100) -> str:
    console = Console(width=width, record=True, file=StringIO(), force_terminal=True)
    screen_page(find(path)).show(console, "page.md")
    return console.export_text()


def render(path) -> str:
    return leaderboard_page(find(path)).to_markdown()


def two_sizes(bench):
    """Two small arms and two large ones, all pretrained, on disk with predictions and gold labels."""
    rates = {"small": 0.6, "other-small": 0.65, "large": 0.9, "other-large": 0.92}
    columns, regime = ["sst2", "rte"], REGIMES["mostly examples"]
    for outcomes in simulate(np.random.default_rng(3), columns=columns, rates=rates, regime=regime):
        fill_drawn(bench, outcomes)
    for arm in ("large", "other-large"):
        bench.arms[arm] |= {"shape": LARGE}
    return bench.plan()


def arms_of(frame: pd.DataFrame) -> list[set[str]]:
    """Which arms a frame puts together."""
    names = [name for name in ("arm", "reference") if name in frame]
    return [set(block[names].to_numpy().ravel()) for _, block in frame.groupby(BLOCK, sort=False)]


BOTH = [{"small", "other-small"}, {"large", "other-large"}]


def test_no_table_ranks_encoders_of_two_shapes_together(bench):
    board = open_board(two_sizes(bench))
    statistics = compare(board)
    assert arms_of(board.table) == arms_of(statistics.of("reference")) == BOTH
    assert set(statistics.of("reference")["family"]) == {1}  # each block corrects for its own arms
    blocks = [table for _, table in board.table.groupby(BLOCK, sort=False)]
    assert all(len(best_of(block, ["sst2"])["sst2"]) == 1 for block in blocks)
    power = power_frame(statistics.assessed, 1.0)
    assert power.groupby(BLOCK, sort=False).size().to_dict() == {
        ("pretrained", SMALL_TEXT): 3,
        ("pretrained", LARGE_TEXT): 3,
    }
    for page in (statistics_page(statistics), difference_page(statistics, 1.0)):
        titles = [table.title for table in page.tables if table.title]
        assert all(f"retrained, {shape}" in " ".join(titles) for shape in (SMALL_TEXT, LARGE_TEXT))
        assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("size", "value", "blocks"),
    [*((size, SHAPE[size] // 2, 2) for size in SHAPE), ("embedding_size", 2 * SHAPE["hidden_size"], 1)],
)
def test_every_size_of_the_shape_parts_blocks_but_tables_wider_than_them_do_not(bench, size, value, blocks):
    bench.finish("rte", 1, 0.5, arm="one")
    bench.finish("rte", 1, 0.6, arm="two")
    bench.arms["two"] |= {"shape": SHAPE | {size: value}}
    table = leaderboard(bench.plan())
    assert table["shape"].nunique() == blocks
    assert best_of(table[-1:], ["rte"]) == {"rte": frozenset()}


def test_blocks_of_one_origin_stand_together_and_are_ranked_apart(bench):
    for arm, value, origin in (("a", 0.5, "pretrained"), ("B", 0.9, "pretrained"), ("c", 0.6, "pretrained"),
                               ("D", 0.8, "grafted"), ("e", 0.4, "scratch")):  # fmt: skip
        bench.finish("rte", 1, value, arm=arm, origin=origin)
    for arm in ("B", "D"):
        bench.arms[arm] |= {"shape": LARGE}
    assert leaderboard(bench.plan())["arm"].tolist() == ["c", "a", "B", "D", "e"]


def test_two_experiments_of_two_shapes_are_named_blocks(new_bench):
    paths = []
    for name, shape, checkpoint in (("first", SHAPE, "scratch"), ("second", LARGE, "org/large-model")):
        bench = new_bench(name)
        bench.finish("rte", 1, 0.5, arm="add")
        bench.finish("rte", 1, 0.6, arm=f"{name}-arm")
        for arm in bench.arms:
            bench.arms[arm] |= {"shape": shape}
        arms = [{"name": arm, "checkpoint": checkpoint} for arm in bench.arms]
        paths.append(bench.plan(experiment=name, config={"arms": arms}))
    screen, text = " ".join(terminal(paths).split()), render(paths)
    assert all(words in screen for words in (SMALL_TEXT, LARGE_TEXT, "first/add", "second/add"))
    assert all(words in text for words in (SMALL_TEXT, LARGE_TEXT, "fresh weights of this shape", "org/large-model"))
    tables = read_markdown(text)[:2]
    assert [[row[0][0] for row in table.rows] for table in tables] == [
        ["first-arm", "first/add"],
        ["second-arm", "second/add"],
    ]
    bold = [[value for value, is_bold in row if is_bold] for table in tables for row in table.rows]
    assert bold == [["60.00"], [], ["60.00"], []]


# What an arm started from


@pytest.mark.parametrize(
    ("checkpoint", "revision", "steps", "start"),
    [
        ("scratch", None, None, "fresh weights of this shape"),
        ("scratch", None, 8000, "fresh weights of this shape, then 8,000 steps of pretraining"),
        ("org/model", None, None, "org/model"),
        ("org/model", "main", 20, "org/model@main, then 20 steps of pretraining"),
        ("/home/me/secret/model", None, None, "model"),
        ("~/model", None, None, "model"),
        ("../models/model", None, None, "model"),
    ],
)
def test_tables_name_what_an_arm_started_from(checkpoint, revision, steps, start):
    """A person's folders are no one's business."""
    configured = {"name": "a", "checkpoint": checkpoint, "revision": revision}
    plan = plan_with(cell_with(arm="a"), config={"arms": [configured]})
    assert with_starts(arms_frame(plan), steps)["start"]["a"] == start


def test_arms_of_a_block_that_started_from_different_checkpoints_are_told_apart(bench):
    for arm in "abc":
        bench.finish("rte", 1, arm=arm)
    arms = [{"name": arm, "checkpoint": "org/one" if arm == "a" else "org/two"} for arm in "abc"]
    assert "pretrained: org/one (a); pretrained: org/two (b, c)" in render(bench.plan(config={"arms": arms}))


def test_checkpoints_of_one_name_and_different_contents_are_told_apart(bench):
    for arm in "abc":
        bench.finish("rte", 1, arm=arm)
        bench.cells[-1]["checkpoint"] = ("1" if arm == "a" else "2") * 64
    arms = [{"name": arm, "checkpoint": f"/folder-of-{arm}/model"} for arm in "abc"]
    text = render(bench.plan(config={"arms": arms}))
    assert f"pretrained: model ({'1' * 12}) (a); pretrained: model ({'2' * 12}) (b, c)" in text


def test_the_terminal_cuts_no_number(bench):
    """Marks make cells wider, and a long name leaves little room."""
    for arm in ("an-arm-with-a-long-name", "b"):
        for task in ("cola", "sst2", "mrpc", "stsb", "qnli", "rte"):
            bench.finish(task, 1, 0.5, arm=arm, collapsed=["validation"])
            bench.expect(task, 2, arm=arm)
    text = terminal(bench.plan(), width=60)
    assert "…" not in text
    assert (text.count("50.00‡*"), text.count("50.00")) == (2 * 1, 2 * 2)
    assert "More columns (5): page.md" in text
