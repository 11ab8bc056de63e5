"""Several experiments in one leaderboard: alike side by side, unlike left out or said."""

import json

import pytest

from glue_bench.errors import UserError
from glue_bench.tables.board import leaderboard
from glue_bench.tables.export import find
from glue_bench.tables.pages import leaderboard_page


def render(folders) -> str:
    return leaderboard_page(find(folders)).to_markdown()


@pytest.fixture
def two(new_bench):
    """Two experiments with an arm `add` each, and `none` in the second, whose records a function may change."""

    def make(change=str, **plan):
        first, second = new_bench("one"), new_bench("two")
        for bench, value in ((first, 0.5), (second, 0.7)):
            for task in ("rte", "cola"):
                bench.finish(task, 1, value, arm="add")
        second.finish("rte", 1, 0.9, arm="none")
        for path in (second.path / "records").iterdir():
            record = json.loads(path.read_text())
            change(record)
            path.write_text(json.dumps(record))
        return [first.plan(experiment="one"), second.plan(experiment="two", **plan)]

    return make


def of_rte(**changes):
    def change(record):
        if record["cell"]["task"] == "rte":
            record.update(changes)

    return change


def declare(folder, **config):
    """Change what the plan says of the experiment's settings."""
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"config": config}))


def test_arms_stand_side_by_side_under_names_of_their_own(two):
    frame = leaderboard(two()).set_index("arm")
    assert frame["rte"].to_dict() == pytest.approx({"one/add": 50, "two/add": 70, "none": 90})


def test_a_task_of_other_data_is_left_out_and_the_rest_is_printed(two):
    folders = two(of_rte(data={"source": "tsv", "digest": "other", "partial": False}))
    frame = leaderboard(folders)
    assert "rte" not in frame
    assert sorted(frame["cola"].dropna()) == pytest.approx([50, 70])
    assert "RTE is left out: its data differ (one: d, two: other)." in render(folders)


def test_no_task_in_common_is_one_line(two):
    with pytest.raises(UserError, match="no task with the same data"):
        render(two(lambda record: record.update(data={"source": "tsv", "digest": "other", "partial": False})))


def test_other_settings_of_fine_tuning_are_said(two):
    text = render(two(of_rte(hyperparameters={"learning_rate": 1e-5, "epochs": 3})))
    assert "RTE: fine-tuned with another epochs (one: None, two: 3)." in text
    assert "learning_rate" not in text


@pytest.mark.parametrize("shares", [(0.1, 0.2), (0.1, None), (None, 0.2)], ids=str)
def test_what_was_held_out_is_said_of_each(two, shares):
    folders = two()
    for folder, share in zip(folders, shares, strict=True):
        declare(folder, finetuning={"held_out_share": share})
    text = render(folders)
    first, second = (share or "nothing" for share in shares)
    assert f"Held out of each train set: one: {first}; two: {second}." in text
    assert "of train held out" not in text


def test_what_was_held_out_of_all_is_said_once(two):
    folders = two()
    for folder in folders:
        declare(folder, finetuning={"held_out_share": 0.1})
    text = render(folders)
    assert "0.1 of train held out" in text
    assert "Held out of each train set" not in text


def test_the_tasks_that_start_from_mnli_are_said_of_each(two):
    folders = two()
    path = folders[1] / "plan.json"
    plan = json.loads(path.read_text())
    for cell in plan["cells"]:
        cell.update({"from_mnli": "two-mnli"} if cell["task"] == "rte" else {})
    path.write_text(json.dumps(plan))
    assert "From the arm's own MNLI run: one: nothing; two: RTE." in render(folders)


def test_another_protocol_is_said_and_the_first_is_used(two):
    text = render(two(config={"protocol": {"seeds": "median"}}))
    assert "two declares another protocol; all are shown by the one above." in text
    assert "mean over seeds" in text


def test_one_experiment_twice_is_refused(two):
    with pytest.raises(UserError, match="two of the experiments have one name"):
        leaderboard([two()[0]] * 2)
