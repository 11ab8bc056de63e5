"""What a verb does a function does, and each says how it is called."""

from pathlib import Path

import pytest
from stored import bench

import glue_bench
from glue_bench.errors import UserError

__all__ = ["bench"]


@pytest.fixture
def finished(bench):
    """Two arms with predictions on RTE, and a cell that is missing."""
    for arm, accuracy in (("add", 0.6), ("untied", 0.9)):
        bench.finish_predicted("rte", arm, accuracy)
    bench.expect("rte", 4, arm="untied")
    return bench.plan()


@pytest.mark.usefixtures("small_demo")
def test_a_plan_has_a_row_for_each_cell(tiny, tmp_path):
    frame = glue_bench.plan(tiny(seeds=[1, 2]), results=tmp_path)
    assert frame[["arm", "task", "seed"]].head(2).to_numpy().tolist() == [["add", "cola", 1], ["none", "cola", 1]]
    assert (len(frame), set(frame["state"])) == (8, {"missing"})
    assert not list(tmp_path.iterdir())


def test_a_leaderboard_is_a_table_in_a_notebook(finished):
    shown = glue_bench.leaderboard(finished)._repr_html_()
    assert "<table" in shown
    assert "untied" in shown


@pytest.mark.parametrize("given", ["mine.txt", Path("mine.txt"), ["mine.txt"]])
def test_one_text_or_plugin_needs_no_list(tiny, tmp_path, given):
    pretrained = tiny(pretraining={"corpus": "demo", "steps": 1, "length": 32})
    for options, experiment in ({"corpus": given}, pretrained), ({"plugins": given}, tiny()):
        with pytest.raises(UserError, match=r"mine\.txt"):
            glue_bench.plan(experiment, results=tmp_path, **options)
