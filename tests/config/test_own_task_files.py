"""A user's own tasks are defined in an experiment file, or in files that it names."""

import json

import pytest
import yaml

from glue_bench.config import load_experiment
from glue_bench.config.shipped import write_experiment_file
from glue_bench.data.tasks import find_task
from glue_bench.errors import UserError

TASK = {
    "name": "Reviews",
    "files": {"train": "train.csv", "validation": "dev.csv"},
    "texts": "text",
    "labels": ["negative", "positive"],
}
EXPERIMENT = {"name": "x", "data": "demo", "arms": ["add"], "checkpoint": "scratch"}


def load(*tasks, **changes):
    """Read the experiment with these tasks; each is a name, a file or a mapping."""
    return load_experiment(EXPERIMENT | {"tasks": [*tasks]} | changes)


def task_with(**changes) -> dict:
    """Return TASK with changed keys, without those that are None."""
    values = TASK | changes
    return {key: value for key, value in values.items() if value is not None}


def test_an_own_task_stands_beside_names_of_tasks_and_has_settings():
    settings = {"reviews": {"epochs": 3}}
    experiment = load("RTE", TASK, finetuning={"tasks": settings})
    assert experiment.tasks == ["rte", "reviews"]
    assert experiment.finetuning.hyperparameters("reviews", 1e-5).epochs == 3
    assert find_task("Reviews").labels == ("negative", "positive")


def test_paths_are_relative_to_the_file_that_names_them(write):
    folder = write({"tasks/reviews.yaml": yaml.safe_dump(TASK)})
    experiment = EXPERIMENT | {"tasks": ["tasks/reviews.yaml", task_with(name="Two")]}
    (folder / "x.yaml").write_text(yaml.safe_dump(experiment))
    places = [task.files["train"] for task in load_experiment(folder / "x.yaml").own_tasks]
    expected = [str(folder / "tasks/train.csv"), str(folder / "train.csv")]
    assert places == expected


def test_an_experiment_with_own_tasks_alone_needs_no_data():
    values = {key: value for key, value in EXPERIMENT.items() if key != "data"}
    assert load_experiment(values | {"tasks": [TASK]}).data == "hub"
    with pytest.raises(UserError, match="missing key 'data'"):
        load_experiment(values | {"tasks": ["rte", TASK]})


def test_an_experiment_that_is_dumped_and_loaded_is_the_same():
    experiment = load("rte", TASK)
    dumped = json.loads(json.dumps(experiment.model_dump(mode="json", by_alias=True)))
    assert load_experiment(dumped) == experiment


def test_the_default_metrics_are_those_of_classes_or_of_a_regression():
    load(TASK, task_with(name="Scores", labels="regression"))
    assert find_task("reviews").metrics == ("accuracy",)
    assert find_task("scores").metrics == ("pearson", "spearmanr")


def test_an_experiment_written_into_another_folder_finds_the_task_files(write, monkeypatch):
    folder = write(
        {"reviews.yaml": yaml.safe_dump(TASK), "deep/keep": ""}
    )  # writes the folder deep
    monkeypatch.chdir(folder)
    write_experiment_file(EXPERIMENT | {"tasks": ["reviews.yaml", "rte"]}, folder / "deep/x.yaml")
    (task,) = load_experiment(folder / "deep/x.yaml").own_tasks
    assert (folder / "deep").joinpath(task.files["train"]).resolve() == folder / "train.csv"


MISTAKES = {
    "GLUE's name": ({"name": "rte"}, "name 'rte' is that of GLUE's own RTE"),
    "GLUE's name spelt otherwise": ({"name": "SST-2"}, "is that of GLUE's own SST-2"),
    "a column's name": ({"name": "mnli_m"}, "is that of a column of tables"),
    "no name": ({"name": "my task"}, "name: 'my task' has other characters than letters, digits"),
    "an unknown metric": ({"metrics": ["acuracy"]}, "unknown metric 'acuracy'; did you mean"),
    "Matthews of scores": (
        {"labels": "regression", "metrics": ["matthews_correlation"]},
        "metric matthews_correlation needs classes; a regression takes pearson or spearmanr",
    ),
    "Pearson of classes": ({"metrics": ["pearson"]}, "metric pearson needs scores"),
    "F1 of three": (
        {"labels": ["a", "b", "c"], "metrics": ["accuracy", "f1"]},
        "metric f1 needs two classes; use macro_f1 for more",
    ),
    "a main metric without intervals": ({"metrics": ["macro_f1"]}, "cannot be the first"),
    "one class": ({"labels": ["a"]}, "name at least two classes"),
    "a class twice": ({"labels": ["a", "a"]}, "labels must differ"),
    "labels with a point": ({"labels": [0.5, 1.5]}, "0.5 is no class"),
    "no labels": ({"labels": None}, "missing key 'labels'; list the classes in order"),
    "no files": ({"files": None}, "give either `files`"),
    "one file": ({"files": "a.csv"}, "files: name the file of each split, such as {train:"),
    "no train": ({"files": {"validation": "a.csv"}}, "no train split"),
    "no validation": ({"files": {"train": "a.csv"}}, "set validation_share: 0.1"),
    "both": ({"validation_share": 0.1}, "leave it or `validation` out"),
    "another split": ({"files": {"dev": "a.csv"}}, "files.dev"),
    "three texts": ({"texts": ["a", "b", "c"]}, "texts: list should have at most 2 items"),
    "one text twice": ({"texts": ["a", "a"]}, "given twice: a"),
    "an unknown key": ({"metric": ["f1"]}, "unknown key 'metric'; did you mean 'metrics'?"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_names_the_task_and_the_place(case):
    changes, message = MISTAKES[case]
    with pytest.raises(UserError) as caught:
        load(task_with(**changes))
    assert message in str(caught.value)
    assert str(caught.value).startswith("experiment: task ")


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(UserError, match="given twice: reviews"):
        load(TASK, task_with(name="reviews"))


def test_a_task_of_another_experiment_is_not_known_by_its_name():
    load(task_with(name="elsewhere"))
    with pytest.raises(UserError, match=r"unknown task 'elsewhere'.*--task FILE\.yaml"):
        load("elsewhere")


def test_a_missing_task_file_is_named():
    with pytest.raises(UserError, match=r"cannot read task file 'no\.yaml': No such file"):
        load("no.yaml")


def test_a_task_file_holds_a_mapping(write):
    folder = write({"task.yaml": "- 1\n"})
    with pytest.raises(UserError, match=r"task\.yaml: a task is a mapping with keys name, files"):
        load(str(folder / "task.yaml"))
