"""What stands in one block may be ranked together: encoders of one origin and one shape, and all of it is said."""

import numpy as np
import pytest
from helpers.simulated import REGIMES, fill_drawn, simulate
from helpers.stored import SHAPE

from glue_bench import leaderboard
from glue_bench.board.board import BLOCK_COLUMNS, open_board
from glue_bench.board.compare import compare, open_comparison
from glue_bench.data.measures import MEASURES
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.ranking import is_best
from glue_bench.pages.render import to_markdown
from glue_bench.pages.seeds_needed import difference_page
from glue_bench.stats.power import Costs, power_frame

LARGE = SHAPE | {"hidden_size": 64, "embedding_size": 64}
TEXTS = [
    f"2 layers, hidden size {size}, 2 heads, intermediate size 16, vocabulary 100"
    for size in (8, 64)
]


def test_no_table_ranks_encoders_of_two_shapes_together(bench):
    rates = {"small": 0.6, "other-small": 0.65, "large": 0.9, "other-large": 0.92}
    columns, regime = ["sst2", "rte"], REGIMES["mostly examples"]
    for outcomes in simulate(np.random.default_rng(3), columns=columns, rates=rates, regime=regime):
        fill_drawn(bench, outcomes)
    for arm in ("large", "other-large"):
        bench.arms[arm] |= {"shape": LARGE}
    board = open_board(bench.plan())
    found = compare(board)
    for frame, names in (
        (board.table, ["arm"]),
        (found.contrasts_of("reference"), ["arm", "reference"]),
    ):
        blocks = [
            set(block[names].to_numpy().ravel())
            for _, block in frame.groupby(BLOCK_COLUMNS, sort=False)
        ]
        assert blocks == [{"small", "other-small"}, {"large", "other-large"}]
    assert set(found.contrasts_of("reference")["family"]) == {
        1
    }  # each block corrects for its own arms
    assert power_frame(found.assessed, 1.0, 0.8, Costs(1.0, 1.0)).groupby(
        "reference"
    ).size().tolist() == [3, 3]
    for page in (statistics_page(found), difference_page(found, 1.0, 0.8)):
        titles = [table.title for table in page.tables if table.title]
        assert all(f"retrained, {shape}" in " ".join(titles) for shape in TEXTS)
        assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("size", "value", "blocks"),
    [
        *((size, SHAPE[size] // 2, 2) for size in SHAPE),
        ("embedding_size", 2 * SHAPE["hidden_size"], 1),
    ],
)
def test_every_size_of_the_shape_parts_blocks_but_tables_wider_than_them_do_not(
    bench, size, value, blocks
):
    bench.finish("rte", 1, 0.5, arm="one")
    bench.finish("rte", 1, 0.6, arm="two")
    bench.arms["two"] |= {"shape": SHAPE | {size: value}}
    table = leaderboard(bench.plan())
    assert table["shape"].nunique() == blocks
    assert table["arm"][is_best(table["rte"], MEASURES["rte"])].tolist() == ["two"]
    assert is_best(table["rte"][-1:], MEASURES["rte"]).tolist() == [
        False
    ]  # an arm alone is no winner


def test_blocks_of_one_origin_stand_together_and_are_ranked_apart(bench):
    for arm, value, origin in (("a", 0.5, "pretrained"), ("B", 0.9, "pretrained"), ("c", 0.6, "pretrained"),
                               ("D", 0.8, "grafted"), ("e", 0.4, "scratch")):  # fmt: skip
        bench.finish("rte", 1, value, arm=arm, origin=origin)
    bench.expect("rte", 1, arm="f")  # without an average it is last
    for arm in ("B", "D"):
        bench.arms[arm] |= {"shape": LARGE}
    assert leaderboard(bench.plan())["arm"].tolist() == ["c", "a", "f", "B", "D", "e"]


def test_tables_name_what_an_arm_started_from(bench):
    """A person's folders are no one's business."""
    starts = {
        "a": "scratch",
        "b": "org/model",
        "c": "/home/me/secret/one",
        "d": "~/two",
        "e": "../models/three",
    }
    for arm in starts:
        bench.expect(arm=arm)
        bench.cells[-1]["steps"] = 8000
    arms = [{"name": arm, "checkpoint": start, "revision": "main" if arm == "b" else None}
            for arm, start in starts.items()]  # fmt: skip
    shown = leaderboard(bench.plan(config={"arms": arms})).set_index("arm")["start"][[*starts]]
    named = ("fresh weights of this shape", "org/model@main", "one", "two", "three")
    assert shown.tolist() == [f"{name}, then 8,000 steps of pretraining" for name in named]


@pytest.mark.parametrize("place", ["org/{}", "/folder-of-{}/model"], ids=["names", "contents"])
def test_other_checkpoints_are_told_apart_also_those_of_one_name(bench, place):
    for arm in "abc":
        bench.finish("rte", 1, arm=arm)
        bench.cells[-1]["checkpoint"] = ("1" if arm == "a" else "2") * 64
    arms = [
        {"name": arm, "checkpoint": place.format("one" if arm == "a" else "two")} for arm in "abc"
    ]
    text = to_markdown(leaderboard_page(open_comparison(bench.plan(config={"arms": arms}))))
    one, two = (
        ("org/one", "org/two")
        if place == "org/{}"
        else (f"model ({'1' * 12})", f"model ({'2' * 12})")
    )
    assert f"pretrained: {one} (a); pretrained: {two} (b, c)" in text
