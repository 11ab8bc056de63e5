"""Outside the plan: what an experiment no longer asks for changes nothing but the count of what
was left out.
"""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import tiny_runs
from helpers.folder import (
    FUNCTIONS,
    READERS,
    VERBS,
    Folder,
    as_text,
    call_verb,
    prune,
    read,
    written_text,
)

import glue_bench
from glue_bench.cli import app

SEE_ALL = {"verify"}  # asked about all that is stored, as is a bundle (`export` without a format)
NO_READERS = {"describe", "recipes", "demo", "init", "data", "variants", "convert", "load_plugins"}
OPTIONS = {"power", "diagnostics"}  # readers that are an option of another verb
LEFT_OUT = re.compile(
    r"; (\d+) records left out"
    r"| ?(\d+) records are not of this plan[^.]*left out\."
    r"|finished cells .* leaves out: .*\n"
)
"""In the table of facts, in a report, and before a run."""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory) -> Path:
    """An experiment with what earlier plans have left: arms, options, rates, seeds, steps,
    pretrainings, failures.
    """
    folder = Folder(tmp_path_factory.mktemp("crowded") / "toy")

    for arm, right in (("add", 0.8), ("untied", 0.6)):
        for seed in (1, 2):
            folder.pretrain(arm, seed=seed)
        for rate in (1e-3, 2e-3):
            folder.pretrain(arm, seed=0, rate=rate, search=True, loss=5.0)
        for task in ("mnli", "rte"):
            for seed, pretraining_seed in ((1, 1), (2, 1), (1, 2), (2, 2)):
                folder.run(arm, task, seed=seed, pretraining_seed=pretraining_seed, right=right)

    folder.run("add", "rte", seed=3, recorded=False)
    folder.fail("untied", "rte", seed=3)

    earlier = {"planned": False, "right": 0.99}
    elsewhere = {
        "environment": {"processor": "another", "device": "cpu", "threads": 8},
        "seconds": 9e5,
    }

    folder.run("four-term", "rte", **earlier)
    folder.run("untied", "mnli", seed=5, **earlier)
    folder.run(
        "add", "rte", seed=9, options={"init": "random"}, parameters=9**9, **elsewhere, **earlier
    )
    folder.run("untied", "rte", rate=5e-3, **elsewhere, **earlier)
    folder.run("add", "rte", steps=4, collapsed=("validation",), **earlier)
    folder.run("untied", "rte", seed=7, pretraining_seed=3, data="other", **earlier)
    folder.fail("four-term", "mnli", seed=1, planned=False)
    folder.pretrain("add", seed=3, rate=2e-3, seconds=9e6, planned=False)
    folder.pretrain("four-term", seed=1, planned=False)
    folder.pretrain("untied", seed=0, rate=9e-3, search=True, loss=1.0, planned=False)

    return folder.plan()


def test_the_readers_are_all_that_there_are():
    asked = {command.name or command.callback.__name__ for command in app.registered_commands}
    asked |= {name for name in glue_bench.__all__ if name[0].islower()}
    expected = (
        {*VERBS, *FUNCTIONS, "run", "evaluate", "plan", "analyse"} | SEE_ALL | NO_READERS
    ) - OPTIONS
    assert asked == expected


@pytest.fixture(scope="module")
def pruned(crowded, tmp_path_factory) -> Path:
    """The same experiment without them."""
    return prune(Path(shutil.copytree(crowded, tmp_path_factory.mktemp("pruned_") / "toy")))


@pytest.mark.parametrize("name", READERS)
def test_what_is_outside_the_plan_changes_no_reader(name, pruned, crowded, tmp_path):
    without = read(name, pruned, tmp_path / "without")
    beside = read(name, crowded, tmp_path / "beside")
    assert LEFT_OUT.sub("", beside) == LEFT_OUT.sub("", without)


def test_what_was_left_out_is_counted(crowded, tmp_path):
    counted = {
        count or count_of_other
        for count, count_of_other in LEFT_OUT.findall(
            read("leaderboard", crowded, tmp_path / "out")
        )
    }
    assert counted == {"6"}


# Of a real run


def test_what_is_outside_the_plan_changes_nothing_of_a_run(tmp_path):
    """Of a run whose plan was once wider: without and with what is left of it."""
    pruned = tmp_path / "pruned"
    place = tmp_path / "wide"
    printed = []

    tiny_runs.run(
        tiny_runs.experiment(arms=["add", "none"], finetuning={"learning_rates": [1e-3, 2e-3]}),
        place,
    )
    tiny_runs.run(tiny_runs.experiment(), place)
    (place / "tiny.yaml").write_text(yaml.safe_dump(tiny_runs.experiment()))
    shutil.copytree(place, pruned)
    prune(pruned / "tiny")

    for results in (pruned, place):
        config = results / "tiny.yaml"
        folder = results / "tiny"
        texts = [
            call_verb("run", config, "--results", results),
            written_text(folder, "*.md", "*.csv"),
        ]
        texts.append(as_text(glue_bench.plan(config, results=results)))
        texts.append(
            call_verb(
                "analyse", folder, "--only", "order", "--sequences", 8, "-o", results / "inside"
            )
        )
        printed.append(
            [re.sub(rf"\d\d:\d\d:\d\d|{results}|{LEFT_OUT.pattern}", "", text) for text in texts]
        )

    assert printed[0] == printed[1]
