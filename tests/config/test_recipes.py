"""Recipes: published settings that an experiment takes by name."""

import pytest

import glue_bench
from glue_bench.config import load_experiment
from glue_bench.config.recipes import checked_recipes, read_recipes
from glue_bench.errors import UserError

RECIPES = sorted(read_recipes())


def experiment(**changes):
    values = {
        "name": "x",
        "data": "demo",
        "checkpoint": "somewhere",
        "arms": ["native"],
        "tasks": ["rte", "mrpc", "mnli", "cola", "qnli", "qqp", "sst2", "stsb"],
    }
    return load_experiment({**values, **changes})


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_an_experiment_that_fits(name):
    assert experiment(recipe=name).recipe == name


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_a_source_that_can_be_opened(name):
    assert "https://" in checked_recipes()[name].source


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_settles_each_hyperparameter_itself(name):
    """No default of ours stands in for what the source says."""
    settled = set(read_recipes()[name]["finetuning"])
    needed = {
        "learning_rates",
        "epochs",
        "batch_size",
        "max_length",
        "warmup_ratio",
        "weight_decay",
        "adam_epsilon",
        "clip_norm",
    }
    assert needed <= settled


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_what_its_settings_are_when_they_are_written_out(name):
    recipe = read_recipes()[name]
    sections = {key: recipe[key] for key in ("seeds", "finetuning", "protocol") if key in recipe}
    assert experiment(recipe=name).model_copy(update={"recipe": None}) == experiment(**sections)


def test_the_settings_of_a_task_are_those_of_the_recipe():
    settings = experiment(recipe="modernbert").finetuning.hyperparameters("rte", 5e-5)
    assert settings.epochs == 3
    assert settings.batch_size == 64
    assert settings.weight_decay == 0.2


def test_a_key_of_the_file_wins_over_the_recipes_settings_of_every_task():
    finetuning = experiment(recipe="deberta", finetuning={"epochs": 1}).finetuning
    epochs = {finetuning.hyperparameters(task, 1e-5).epochs for task in ("mnli", "qqp", "rte")}
    assert epochs == {1}


def test_a_key_of_the_file_for_one_task_leaves_the_recipes_others():
    finetuning = experiment(
        recipe="roberta", finetuning={"tasks": {"rte": {"epochs": 2}}}
    ).finetuning
    assert finetuning.hyperparameters("rte", 2e-5).epochs == 2
    assert finetuning.hyperparameters("rte", 2e-5).batch_size == 16
    assert finetuning.hyperparameters("mrpc", 1e-5).epochs == 10


def test_rates_of_the_file_are_tried_on_every_task():
    finetuning = experiment(recipe="roberta", finetuning={"learning_rates": [1e-4]}).finetuning
    assert finetuning.rates("rte") == [1e-4]


def test_seeds_and_protocol_of_the_file_win():
    chosen = experiment(recipe="tupe", seeds=[7], protocol={"seeds": "mean"})
    assert chosen.seeds == [7]
    assert chosen.protocol.seeds == "mean"
    assert chosen.protocol.rate == "best-median"


def test_an_unknown_recipe_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="unknown recipe 'robert'; did you mean 'roberta'"):
        experiment(recipe="robert")


def test_a_recipe_that_starts_from_mnli_says_so_where_mnli_is_missing():
    with pytest.raises(UserError, match=r"add mnli, or set `finetuning: {from_mnli: \[\]}`"):
        experiment(recipe="modernbert", tasks=["rte"])


def test_recipes_are_listed_with_what_they_cannot_say():
    frame = glue_bench.recipes()
    assert list(frame.columns) == ["recipe", "title", "source", "differs"]
    assert sorted(frame.recipe) == RECIPES


def test_one_recipe_is_listed_alone():
    assert glue_bench.recipes("bert").recipe.tolist() == ["bert"]


def test_a_recipe_that_is_not_there_is_not_listed():
    with pytest.raises(UserError, match="unknown recipe 'brt'"):
        glue_bench.recipes("brt")


@pytest.mark.parametrize(("rate", "advice"), [(5, "5e-5"), (2, "2e-5")])
def test_a_rate_above_one_is_refused_with_the_one_that_was_meant(rate, advice):
    with pytest.raises(UserError, match=f"did you mean {advice}"):
        experiment(finetuning={"learning_rates": [rate]})


def test_a_rate_above_one_of_a_single_task_is_refused():
    with pytest.raises(UserError, match="did you mean 3e-5"):
        experiment(finetuning={"tasks": {"rte": {"learning_rates": [3]}}})


def test_a_plan_without_a_recipe_has_no_key_for_it():
    dumped = experiment(finetuning={"tasks": {"rte": {"epochs": 2}}}).model_dump()
    assert "recipe" not in dumped
    assert "weight_decay" not in dumped["finetuning"]["tasks"]["rte"]


def test_a_plan_with_a_recipe_names_it():
    assert experiment(recipe="bert").model_dump()["recipe"] == "bert"
