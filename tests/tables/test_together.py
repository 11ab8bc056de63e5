"""Several experiments in one leaderboard: what is alike stands side by side, what is not is left out in one line."""

from types import MappingProxyType

import pytest

from glue_bench.errors import UserError
from glue_bench.tables.board import leaderboard
from glue_bench.tables.export import find
from glue_bench.tables.pages import leaderboard_page


@pytest.fixture
def two(new_bench):
    """Two experiments with an arm `add` each, and `none` in the second, of whose runs of RTE something may differ."""

    def make(of_rte=MappingProxyType({}), **plan):
        first, second = new_bench("one"), new_bench("two")
        for bench, value in ((first, 0.5), (second, 0.7)):
            for task in ("rte", "cola"):
                bench.record(bench.expect(task), value, **(of_rte if (bench, task) == (second, "rte") else {}))
        second.record(second.expect("rte", arm="none"), 0.9, **of_rte)
        return [first.plan(experiment="one"), second.plan(experiment="two", **plan)]

    return make


def test_arms_stand_side_by_side_under_names_of_their_own_by_the_first_protocol(two):
    folders = two(config={"protocol": {"seeds": "median"}})
    assert leaderboard(folders).set_index("arm")["rte"].to_dict() == pytest.approx(
        {"one/add": 50, "two/add": 70, "none": 90}
    )
    assert "mean over seeds" in leaderboard_page(find(folders)).to_markdown()


@pytest.mark.parametrize(
    "change",
    [{"data": {"digest": "other"}}, {"hyperparameters": {"epochs": 4}}, {"mnli": "add-mnli-lr2e-05-s1"}],
    ids=["data", "settings", "from mnli"],
)
def test_a_task_that_is_not_alike_is_left_out_and_the_rest_is_printed(two, change):
    folders = two(change)
    frame, text = leaderboard(folders), leaderboard_page(find(folders)).to_markdown()
    assert "rte" not in frame
    assert sorted(frame["cola"].dropna()) == pytest.approx([50, 70])
    assert "RTE: other data or settings of fine-tuning" in text


def test_what_cannot_stand_together_is_one_line(new_bench):
    folders = []
    for name in ("one", "two"):
        bench = new_bench(name)
        bench.record(bench.expect("rte"), data={"digest": name})
        folders.append(bench.plan(experiment=name))
    for given, message in ((folders, "no task with the same data"), (folders[:1] * 2, "have one name")):
        with pytest.raises(UserError, match=message):
            leaderboard(given)
