"""Several experiments in one leaderboard: alike side by side, unlike left out or said."""

from types import MappingProxyType

import pytest
from stored import DATA, digest

from glue_bench.errors import UserError
from glue_bench.tables.board import leaderboard
from glue_bench.tables.export import find
from glue_bench.tables.pages import leaderboard_page


def render(folders) -> str:
    return leaderboard_page(find(folders)).to_markdown()


@pytest.fixture
def two(new_bench):
    """Two experiments with an arm `add` each, and `none` in the second, of whose runs of RTE something may differ."""

    def make(of_rte=MappingProxyType({}), one=MappingProxyType({}), **plan):
        first, second = new_bench("one"), new_bench("two")
        for bench, value in ((first, 0.5), (second, 0.7)):
            for task in ("rte", "cola"):
                bench.record(bench.expect(task), value, **(of_rte if (bench, task) == (second, "rte") else {}))
        second.record(second.expect("rte", arm="none"), 0.9, **of_rte)
        return [first.plan(experiment="one", **one), second.plan(experiment="two", **plan)]

    return make


OTHER = {"data": {"digest": "other"}}


def test_arms_stand_side_by_side_under_names_of_their_own(two):
    frame = leaderboard(two()).set_index("arm")
    assert frame["rte"].to_dict() == pytest.approx({"one/add": 50, "two/add": 70, "none": 90})


def test_a_task_of_other_data_is_left_out_and_the_rest_is_printed(two):
    folders = two(OTHER)
    frame = leaderboard(folders)
    assert "rte" not in frame
    assert sorted(frame["cola"].dropna()) == pytest.approx([50, 70])
    assert f"RTE is left out: its data differ (one: {DATA[:12]}, two: {digest('other')[:12]})." in render(folders)


def test_no_task_in_common_is_one_line(new_bench):
    folders = []
    for name in ("one", "two"):
        bench = new_bench(name)
        bench.record(bench.expect("rte"), data={"digest": name})
        folders.append(bench.plan(experiment=name))
    with pytest.raises(UserError, match="no task with the same data"):
        render(folders)


def test_other_settings_of_fine_tuning_are_said(two):
    text = render(two({"hyperparameters": {"epochs": 4}}))
    assert "RTE: fine-tuned with another epochs (one: 3, two: 4)." in text
    assert "learning_rate" not in text


@pytest.mark.parametrize("shares", [(0.1, 0.2), (0.1, None), (0.1, 0.1)], ids=str)
def test_what_was_held_out_is_said_of_each_or_of_all_once(two, shares):
    one, other = ({"config": {"finetuning": {"held_out_share": share}}} for share in shares)
    text = render(two(one=one, **other))
    said = f"Held out of each train set: one: {shares[0]}; two: {shares[1] or 'nothing'}."
    alike = shares[0] == shares[1]
    assert (said in text, "0.1 of train held out" in text) == (not alike, alike)


def test_the_tasks_that_start_from_mnli_are_said_of_each(two):
    folders = two({"mnli": "add-mnli-lr2e-05-s1"})
    assert "From the arm's own MNLI run: one: nothing; two: RTE." in render(folders)


def test_another_protocol_is_said_and_the_first_is_used(two):
    text = render(two(config={"protocol": {"seeds": "median"}}))
    assert "two declares another protocol; all are shown by the one above." in text
    assert "mean over seeds" in text


def test_one_experiment_twice_is_refused(two):
    with pytest.raises(UserError, match="two of the experiments have one name"):
        leaderboard([two()[0]] * 2)
