"""Encoders of one origin and one shape are a block, and only the arms of a block are ranked."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.simulated import REGIMES, fill_drawn, simulate
from helpers.stored import SHAPE

from glue_bench import leaderboard
from glue_bench.board.board import BLOCK_COLUMNS
from glue_bench.board.compare import Comparison, open_comparison
from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.data.measures import AVERAGE, MEASURES
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.ranking import is_best
from glue_bench.pages.render import to_markdown
from glue_bench.pages.seeds_needed import difference_page
from glue_bench.stats.power import Costs, power_frame

LARGE_SHAPE = SHAPE | {"hidden_size": 64, "embedding_size": 64}
SHAPE_TEXTS = [
    "2 layers, hidden size 8, 2 heads, intermediate size 16, vocabulary 100",
    "2 layers, hidden size 64, 2 heads, intermediate size 16, vocabulary 100",
]
BLOCKS = [{"small", "other-small"}, {"large", "other-large"}]
"""The arms of the two blocks of `two_shapes`."""


@pytest.fixture
def two_shapes(bench) -> Comparison:
    """Compare four arms of two shapes, which have predictions of SST-2 and RTE."""
    accuracies = {"small": 0.6, "other-small": 0.65, "large": 0.9, "other-large": 0.92}
    generator = np.random.default_rng(3)
    regime = REGIMES["mostly examples"]
    for runs in simulate(generator, columns=["sst2", "rte"], accuracies=accuracies, regime=regime):
        fill_drawn(bench, runs)
    for arm in ("large", "other-large"):
        bench.arms[arm] |= {"shape": LARGE_SHAPE}
    return open_comparison(bench.plan())


def names_by_block(frame, names) -> list[set[str]]:
    """Return for each block the arms in the columns `names` of a frame."""
    blocks = []
    for _, block in frame.groupby(BLOCK_COLUMNS, sort=False):
        blocks.append(set(block[names].to_numpy().ravel()))
    return blocks


def test_the_board_has_a_block_for_each_shape(two_shapes):
    assert names_by_block(two_shapes.board.table, ["arm"]) == BLOCKS


def test_no_contrast_compares_arms_of_two_shapes(two_shapes):
    contrasts = two_shapes.contrasts_of("reference")
    assert names_by_block(contrasts, ["arm", "reference"]) == BLOCKS


def test_p_is_corrected_for_the_contrasts_of_a_block(two_shapes):
    contrasts = two_shapes.contrasts_of("reference")
    assert set(contrasts["family"]) == {1}  # a block has two arms, and one contrast with it


def test_each_block_has_its_own_number_of_seeds_needed(two_shapes):
    costs = Costs(finetuning=1.0, pretraining=1.0)
    frame = power_frame(two_shapes.assessed, difference=1.0, power=0.8, costs=costs)
    columns = frame.groupby("reference")["column"].agg(set)
    assert columns.tolist() == [{"sst2", "rte", AVERAGE}] * 2


@pytest.mark.parametrize(
    "make_page",
    [statistics_page, partial(difference_page, difference=1.0, power=0.8)],
    ids=["statistics", "difference"],
)
def test_every_page_has_a_title_for_each_shape(two_shapes, make_page):
    titles = [table.title for table in make_page(two_shapes).tables if table.title]
    for shape in SHAPE_TEXTS:
        assert f"retrained, {shape}" in " ".join(titles)
    assert len(set(titles)) == len(titles)


def finish_two_arms(bench, change: dict[str, int]) -> Path:
    """Finish a run of an arm, and a better one of an arm whose shape has a change."""
    bench.finish("rte", score=0.5, arm="first")
    bench.finish("rte", score=0.6, arm="second")
    bench.arms["second"] |= {"shape": SHAPE | change}
    return bench.plan()


@pytest.mark.parametrize("size", SHAPE)
def test_arms_that_differ_in_a_size_of_the_shape_are_in_two_blocks(bench, size):
    table = leaderboard(finish_two_arms(bench, {size: SHAPE[size] // 2}))
    assert table["shape"].nunique() == 2


def test_arms_that_differ_in_tables_wider_than_the_encoder_are_in_one_block(bench):
    folder = finish_two_arms(bench, {"embedding_size": 2 * SHAPE["hidden_size"]})
    assert leaderboard(folder)["shape"].nunique() == 1


def test_the_best_of_several_arms_is_the_winner(bench):
    table = leaderboard(finish_two_arms(bench, {}))
    is_winner = is_best(table["rte"], MEASURES["rte"])
    assert table["arm"][is_winner].tolist() == ["second"]


def test_an_arm_alone_is_no_winner(bench):
    bench.finish("rte", score=0.5)
    scores = leaderboard(bench.plan())["rte"]
    assert is_best(scores, MEASURES["rte"]).tolist() == [False]


def test_blocks_of_one_origin_stand_together_and_are_ranked_separately(bench):
    """Arms with capital letters have another shape. `f` has no average and is last in its block."""
    bench.finish("rte", seed=1, score=0.5, arm="a")
    bench.finish("rte", seed=1, score=0.9, arm="B")
    bench.finish("rte", seed=1, score=0.6, arm="c")
    bench.finish("rte", seed=1, score=0.8, arm="D", origin="grafted")
    bench.finish("rte", seed=1, score=0.4, arm="e", origin="scratch")
    bench.expect("rte", seed=1, arm="f")
    for arm in ("B", "D"):
        bench.arms[arm] |= {"shape": LARGE_SHAPE}
    expected = ["c", "a", "f", "B", "D", "e"]
    assert leaderboard(bench.plan())["arm"].tolist() == expected


def test_tables_name_what_an_arm_started_from(bench):
    """The folders of a person are private."""
    starts = {
        "a": ("scratch", "fresh weights of this shape"),
        "b": ("org/model", "org/model@main"),
        "c": ("/home/me/secret/one", "one"),
        "d": ("~/two", "two"),
        "e": ("../models/three", "three"),
    }
    arms = []
    for arm, (checkpoint, _) in starts.items():
        cell = bench.expect(arm=arm)
        cell["steps"] = 8000
        revision = "main" if arm == "b" else None
        arms.append({"name": arm, "checkpoint": checkpoint, "revision": revision})
    table = leaderboard(bench.plan(config={"arms": arms})).set_index("arm")
    for arm, (_, name) in starts.items():
        assert table["start"][arm] == f"{name}, then 8,000 steps of pretraining"


@pytest.mark.parametrize(
    ("place", "first", "second"),
    [
        ("org/{}", "org/one", "org/two"),
        ("/folder-of-{}/model", f"model ({'1' * 12})", f"model ({'2' * 12})"),
    ],
    ids=["by their names", "by the beginning of their digests"],
)
def test_two_checkpoints_are_told_apart(bench, place, first, second):
    digests = {"one": "1" * 64, "two": "2" * 64}
    arms = []
    for arm, name in {"a": "one", "b": "two", "c": "two"}.items():
        cell = bench.finish("rte", arm=arm)
        cell["checkpoint"] = digests[name]
        arms.append({"name": arm, "checkpoint": place.format(name)})
    page = leaderboard_page(open_leaderboard(bench.plan(config={"arms": arms})))
    assert f"pretrained: {first} (a); pretrained: {second} (b, c)" in to_markdown(page)
