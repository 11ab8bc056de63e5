"""The experiment that one line describes, and the file that says the same."""

import pytest

import glue_bench
from glue_bench.config import load_experiment
from glue_bench.errors import UserError


def test_one_checkpoint_is_run_as_it_is():
    described = glue_bench.describe("org/model", tasks=["rte"])
    assert described["arms"] == ["native"]
    assert described["checkpoint"] == "org/model"


def test_several_checkpoints_are_arms_with_their_names():
    described = glue_bench.describe(["org/one", "org/two"], tasks=["rte"])
    arms = load_experiment(described).arms
    assert [(arm.name, arm.variant, arm.checkpoint) for arm in arms] == [
        ("one", "native", "org/one"),
        ("two", "native", "org/two"),
    ]


def test_each_checkpoint_is_an_arm_of_each_variant():
    described = glue_bench.describe(["org/one", "org/two"], arms=["native", "add"])
    names = [arm["name"] for arm in described["arms"]]
    assert names == ["one-native", "one-add", "two-native", "two-add"]


def test_checkpoints_of_one_last_name_are_told_apart_by_the_one_before():
    described = glue_bench.describe(["first/model", "second/model"])
    assert [arm["name"] for arm in described["arms"]] == ["first-model", "second-model"]


def test_a_checkpoint_that_is_given_twice_is_refused():
    with pytest.raises(UserError, match="two checkpoints have the name 'a-b': a/b, a/b"):
        glue_bench.describe(["a/b", "a/b"])


def test_each_option_is_the_key_of_the_file_with_its_name():
    described = glue_bench.describe(
        "org/model",
        tasks=["rte", "mrpc"],
        seeds=[1, 2],
        learning_rates=[2e-5, 5e-5],
        epochs=3,
        batch_size=16,
        max_length=64,
        data="demo",
        limit=20,
        name="mine",
    )

    expected = {
        "name": "mine",
        "data": "demo",
        "arms": ["native"],
        "checkpoint": "org/model",
        "tasks": ["rte", "mrpc"],
        "seeds": [1, 2],
        "limit": 20,
        "finetuning": {
            "learning_rates": [2e-5, 5e-5],
            "epochs": 3,
            "batch_size": 16,
            "max_length": 64,
        },
    }

    assert described == expected


def test_a_recipes_rates_are_not_hidden_by_the_defaults():
    described = glue_bench.describe("org/model", tasks=["cola"], recipe="roberta")
    assert load_experiment(described).finetuning.rates("cola") == [1e-5]


def test_settings_reach_any_other_key():
    settings = {"finetuning.warmup_ratio": 0.2, "protocol.seeds": "median", "tokenizer": "org/t"}
    loaded = load_experiment(glue_bench.describe("org/model", settings=settings))
    assert loaded.finetuning.warmup_ratio == 0.2
    assert loaded.protocol.seeds == "median"
    assert loaded.arms[0].tokenizer == "org/t"


def test_a_key_in_a_plain_value_is_refused():
    with pytest.raises(UserError, match="`name` is a plain value"):
        glue_bench.describe("org/model", settings={"name.first": "x"})


def test_a_line_without_a_checkpoint_is_refused():
    with pytest.raises(UserError, match="needs a checkpoint"):
        glue_bench.describe([])
