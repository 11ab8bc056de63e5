"""Recipes: published settings of fine-tuning, by name, which an experiment file can take."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from glue_bench.config.experiment import Protocol
from glue_bench.config.plain_yaml import parse_yaml
from glue_bench.config.section import Section
from glue_bench.config.settings import Finetuning, Seeds, TaskSettings
from glue_bench.errors import unknown

RECIPES_FILE = Path(__file__).with_name("recipes.yaml")


class Recipe(Section):
    """Published settings with their source, and what of them an experiment file cannot say."""

    title: str
    source: str
    seeds: Seeds | None = None
    finetuning: Finetuning
    protocol: Protocol = Protocol()
    differs: list[str] = Field([])


@cache
def read_recipes() -> dict[str, dict[str, Any]]:
    """Read the recipes by name, as plain values of the file."""
    recipes: dict[str, dict[str, Any]] = parse_yaml(RECIPES_FILE.read_bytes(), RECIPES_FILE.name)
    return recipes


def with_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an experiment file with those of the `recipe` that it names.

    The file's own keys win. A key of its `finetuning` also wins over the recipe's settings of a
    task, so that `epochs: 3` in the file is three epochs on every task.

    Raises:
        UserError: there is no such recipe.
    """
    name = values.get("recipe")
    if name is None:
        return dict(values)
    recipe = find_recipe(str(name))
    merged = dict(values)
    if "seeds" in recipe:
        merged.setdefault("seeds", recipe["seeds"])
    merged["protocol"] = _merge(recipe.get("protocol", {}), values.get("protocol", {}))
    merged["finetuning"] = _merge_finetuning(recipe["finetuning"], values.get("finetuning", {}))
    return merged


def _merge(published: Mapping[str, Any], given: Any) -> Any:
    """Return both mappings in one, in which the given keys win."""
    if not isinstance(given, Mapping):
        return given  # a mistake, which the experiment's own check reports
    return {**published, **given}


def _merge_finetuning(published: Mapping[str, Any], given: Any) -> Any:
    """Return the published settings with the given ones, for all tasks and for single ones."""
    if not isinstance(given, Mapping):
        return given
    merged = {**published, **given}
    overridden = set(given) & set(TaskSettings.model_fields)
    given_tasks = given.get("tasks", {})
    if not isinstance(given_tasks, Mapping):
        return merged
    tasks: dict[str, Any] = {}
    for task, settings in published.get("tasks", {}).items():
        kept = {key: value for key, value in settings.items() if key not in overridden}
        if kept:
            tasks[task] = kept
    for task, settings in given_tasks.items():
        tasks[task] = _merge(tasks.get(task, {}), settings)
    merged["tasks"] = tasks
    return merged


def find_recipe(name: str) -> dict[str, Any]:
    """Return the plain values of a recipe. Raises UserError if there is no such recipe."""
    recipes = read_recipes()
    if name not in recipes:
        raise unknown("recipe", name, recipes)
    return recipes[name]


def checked_recipes(name: str | None = None) -> dict[str, Recipe]:
    """Return the recipe of this name, or all of them, checked."""
    names = list(read_recipes()) if name is None else [name]
    return {title: Recipe.model_validate(find_recipe(title)) for title in names}


def recipe_yaml(name: str) -> str:
    """Write one recipe as YAML. Raises UserError if there is no such recipe."""
    import yaml

    text: str = yaml.safe_dump(find_recipe(name), sort_keys=False, allow_unicode=True, width=100)
    return text
