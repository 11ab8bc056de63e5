"""Every option of a verb reaches the function behind it, also if it is given twice."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from helpers.stored import Bench

import glue_bench as library
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import UserError
from glue_bench.sweep.engine import Engine

RUN = {
    "--data": ("hub", {"data": "hub"}),
    "--corpus": (("a.txt", "b.txt"), {"corpus": ["a.txt", "b.txt"]}),
    "--limit": ("9", {"limit": 9}),
    "--results": ("other", {"results": Path("other")}),
    "--only": (("arm=add", "seed=2"), {"only": ["arm=add", "seed=2"]}),
    "--workers": ("3", {"workers": 3}),
    "--address": ("head:6379", {"address": "head:6379"}),
    "--slurm": ("partition=gpu,minutes=7", {"slurm": {"partition": "gpu", "minutes": "7"}}),
    "--device": ("cuda", {"device": "cuda"}),
    "--precision": ("bf16", {"precision": "bf16"}),
    "--graph": ("off", {"graph": "off"}),
    "--track": (("wandb", "mlflow"), {"track": ["wandb", "mlflow"]}),
    "--plugin": (("a.py", "b.py"), {"plugins": [Path("a.py"), Path("b.py")]}),
    "--dry-run": ((), {"dry_run": True}),
}
"""By an option of `run` what is given, and what the function is asked for."""


def words_of(option: str, given) -> list[str]:
    if given == ():
        return [option]
    words = []
    for value in [given] if isinstance(given, str) else given:
        words += [option, value]
    return words


def options_of(run: Mock) -> dict:
    """Return the options of the call, without the console, and tuples as lists."""
    options = {}
    for name, value in run.call_args.kwargs.items():
        if name != "console":
            options[name] = list(value) if isinstance(value, tuple) else value
    return options


@pytest.mark.parametrize("option", RUN)
def test_an_option_of_a_run_is_passed_on_and_changes_nothing_else(glue_bench, monkeypatch, option):
    monkeypatch.setattr("glue_bench.api.run", run := Mock(side_effect=UserError("enough")))
    glue_bench("run", "mine.yaml")
    usual = options_of(run)
    given, expected = RUN[option]
    glue_bench("run", "mine.yaml", *words_of(option, given))
    assert options_of(run) == usual | expected


def test_two_arms_tasks_and_seeds_without_a_file_are_all_asked_for(glue_bench, monkeypatch):
    monkeypatch.setattr("glue_bench.api.run", run := Mock(side_effect=UserError("enough")))
    words = (
        "run --checkpoint org/model --arm add --arm none --task rte --task cola --seed 4 --seed 7"
    )
    glue_bench(*words.split(), "--limit", "8", "--data", "demo")
    expected = {
        "arms": ["add", "none"],
        "tasks": ["rte", "cola"],
        "seeds": [4, 7],
        "limit": 8,
        "data": "demo",
        "checkpoint": "org/model",
    }
    values = run.call_args.args[0]
    assert {name: values[name] for name in expected} == expected


def test_what_a_function_is_asked_for_reaches_the_sweep(tiny, monkeypatch):
    monkeypatch.setattr(
        "glue_bench.sweep.run.sweep", sweep := Mock(side_effect=UserError("enough"))
    )
    monkeypatch.setattr("glue_bench.sweep.request.check_before_work", lambda *_, **__: None)

    options = {
        "only": ["seed=1"],
        "dry_run": True,
        "workers": 2,
        "address": "a:1",
        "slurm": {"minutes": 3},
        "device": "cpu",
        "precision": "float32",
        "graph": "off",
        "results": "elsewhere",
    }

    with pytest.raises(UserError, match="enough"):
        library.run(tiny(), data="hub", limit=7, plugins=["a.py", "b.py"], **options)

    experiment = sweep.call_args.args[0]
    assert experiment.data == "hub"
    assert experiment.limit == 7
    assert experiment.plugins == ["a.py", "b.py"]

    engine = Engine(
        workers=options.pop("workers"), address=options.pop("address"), slurm=options.pop("slurm")
    )
    expected = options | {"engine": engine}
    assert sweep.call_args.kwargs == expected


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """Two arms, two rates and three seeds, whose table depends on each choice of the protocol."""
    bench = Bench(tmp_path_factory.mktemp("options") / "toy")
    for arm, shift in (("none", 0.0), ("add", 0.02)):
        for seed, (low, high) in enumerate([(0.60, 0.65), (0.60, 0.65), (0.63, 0.30)], start=1):
            bench.finish("rte", seed=seed, score=low + shift, arm=arm, rate=2e-5)
            bench.finish("rte", seed=seed, score=high + shift, arm=arm, rate=3e-5)
    return bench.plan()


@pytest.mark.parametrize(
    ("changes", "scores"),
    [
        ([], [63.00, 61.00]),
        (["rate=best-median"], [55.33, 53.33]),
        (["seeds=median"], [62.00, 60.00]),
        (["rate=best-median", "seeds=median"], [67.00, 65.00]),
    ],
)
def test_every_change_of_the_protocol_counts(glue_bench, stored, changes, scores):
    words = [word for change in changes for word in ("--protocol", change)]
    lines = glue_bench("leaderboard", stored, "--format", "csv", *words).out.splitlines()
    place = lines[0].split(",").index("rte")
    assert [float(line.split(",")[place]) for line in lines[1:3]] == scores


def test_two_experiments_are_exported_together_and_each_is_named(glue_bench, new_bench, tmp_path):
    folders = []
    for name in ("one", "two"):
        bench = new_bench(name)
        for task in TRAINABLE[:2]:
            bench.finish(task)
        folders.append(bench.plan(experiment=name))
    result = glue_bench("export", *folders, "-o", tmp_path / "both.zip")
    assert result.out.startswith("one, two: written to ")
    assert library.export(folders, tmp_path / "again.zip").experiments == ["one", "two"]
    logs = library.export(folders, tmp_path / "logs", format="eee", organization="my-lab")
    assert [name.split("/")[3] for name in logs["files"]] == ["one-add", "two-add"]


def test_the_arm_that_is_named_second_has_its_own_card(glue_bench, stored):
    assert (
        glue_bench("card", stored, "--arm", "add").out
        != glue_bench("card", stored, "--arm", "none").out
    )
    assert "# toy: add" in glue_bench("card", stored, "--arm", "add").out
