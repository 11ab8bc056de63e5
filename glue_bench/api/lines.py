"""Experiments that one call or one line describes, and recipes for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glue_bench.api.experiments import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from glue_bench.config.load import Names
    from glue_bench.sweep.run import Summary


def describe(
    checkpoint: str | Sequence[str],
    *,
    arms: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: Sequence[int] = (),
    learning_rates: Sequence[float] = (),
    epochs: int | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    recipe: str | None = None,
    data: str = "hub",
    limit: int | None = None,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Describe the usual experiment in one line: fine-tune checkpoints on tasks of GLUE.

    The result is the content of an experiment file, which `run` and `plan` take.

    Args:
        checkpoint: A hub id or a folder, or several, each of which is an arm.
        arms: Variants; without one the checkpoint's own model.
        tasks: Names of tasks; without one all of GLUE.
        seeds: Seeds of fine-tuning; without one 1 to 5, or the recipe's.
        learning_rates: The rates that are tried.
        epochs: Passes over the training rows.
        batch_size: Rows of one update.
        max_length: Tokens of the longest row; longer ones are cut.
        recipe: The name of published settings, which the options above change.
        data: The source of GLUE: hub, demo, a folder or its URL.
        limit: Use this many rows of each split, which is no benchmark.
        name: The experiment's name; by default made from the checkpoints.
        settings: Other values by their dotted key in the file, such as `finetuning.warmup_ratio`.

    Returns:
        The content of the experiment file.

    Example:
        >>> experiment = glue_bench.describe("bert-base-cased", tasks=["rte"], recipe="bert")
        >>> glue_bench.run(experiment)  # doctest: +SKIP

    Raises:
        UserError: two checkpoints of one name, or a dotted key that leads into a plain value.
    """
    from glue_bench.config.line import describe_line

    checkpoints = [checkpoint] if isinstance(checkpoint, str) else list(checkpoint)
    return dict(
        describe_line(
            checkpoints,
            arms=arms,
            settings=settings,
            tasks=list(tasks),
            seeds=list(seeds),
            learning_rates=list(learning_rates),
            epochs=epochs,
            batch_size=batch_size,
            max_length=max_length,
            recipe=recipe,
            data=data,
            limit=limit,
            name=name,
        )
    )


def evaluate(
    checkpoint: str | Sequence[str],
    *,
    tasks: Sequence[str] = (),
    labels: Sequence[str] = (),
    predicts_test: bool = False,
    max_length: int | None = None,
    batch_size: int | None = None,
    tokenizer: str | None = None,
    data: str = "hub",
    limit: int | None = None,
    name: str | None = None,
    **options: Any,
) -> Summary:
    """Score classifiers that were fine-tuned elsewhere, and write tables with paired verdicts.

    Any model that transformers reads as a sequence classifier is scored as it is. Its outputs are
    matched with the classes of a task by their names. Results are those of an experiment, each
    checkpoint an arm of the origin `finished`; the same call goes on where it was interrupted.

    Args:
        checkpoint: A hub id or a folder, or several, each of which is an arm. `{task}` (`sst2`) or
            `{TASK}` (`SST-2`) in it stands for the task.
        tasks: Names of tasks; all of GLUE without one, if the checkpoints have a place for it.
        labels: The classes of the outputs in order, where a checkpoint does not name them.
        predicts_test: Also predict test splits, for `submit`.
        max_length: Tokens of the longest row; longer ones are cut.
        batch_size: The most rows that are computed at once.
        tokenizer: A tokenizer in place of the checkpoints' own.
        data: The source of GLUE: hub, demo, a folder or its URL.
        limit: Use this many rows of each split, which is no benchmark.
        name: The name of the results; by default made from the checkpoints.
        options: `results`, `plugins`, `dry_run`, `device`, `precision` and others of `run`.

    Returns:
        As `run`: `glue_bench.leaderboard(summary.folder)` has the scores.

    Example:
        >>> names = ["roberta-large-mnli", "microsoft/deberta-base-mnli"]
        >>> summary = glue_bench.evaluate(names, tasks=["mnli"])  # doctest: +SKIP

    Raises:
        UserError: bad input, before any score is computed: no trained head, another number of
            outputs than classes, outputs without names and no `labels`.
    """
    experiment = describe_evaluation(
        [checkpoint] if isinstance(checkpoint, str) else checkpoint,
        tasks=tasks,
        labels=labels,
        predicts_test=predicts_test,
        max_length=max_length,
        batch_size=batch_size,
        tokenizer=tokenizer,
        data=data,
        limit=limit,
        name=name,
    )
    return run(experiment, **options)


def recipes(name: str | None = None) -> pd.DataFrame:
    """List the published settings that an experiment can take by name, or the one called `name`.

    Returns:
        One row per recipe: `recipe`, `title`, `source`, and `differs`, what of the source an
        experiment file cannot say.

    Example:
        >>> glue_bench.recipes().set_index("recipe")["source"]  # doctest: +SKIP

    Raises:
        UserError: there is no recipe of this name.
    """
    import pandas as pd

    from glue_bench.config.recipes import checked_recipes

    rows = []
    for title, recipe in checked_recipes(name).items():
        row = {
            "recipe": title,
            "title": recipe.title,
            "source": recipe.source,
            "differs": " ".join(recipe.differs),
        }
        rows.append(row)
    return pd.DataFrame(rows)


# For the command line


def describe_evaluation(checkpoints: Sequence[str], **options: Any) -> dict[str, Any]:
    """Describe the experiment that `evaluate` runs, as the content of an experiment file."""
    from glue_bench.config import line

    return dict(line.describe_evaluation(checkpoints, **options))


def recipe_text(name: str) -> str:
    """Write one recipe as YAML, as the file of recipes has it."""
    from glue_bench.config.recipes import recipe_yaml

    return str(recipe_yaml(name))


def parse_settings(texts: Names) -> dict[str, Any]:
    """Read values of an experiment file by their dotted keys, from KEY=VALUE."""
    from glue_bench.config.load import parse_dotted_keys

    return dict(parse_dotted_keys(texts))


def write_experiment(values: Mapping[str, Any], path: Path) -> None:
    """Check an experiment and write its file.

    Raises:
        UserError: the experiment is not valid, the file is there already, or it cannot be written.
    """
    from glue_bench.config.load import load_experiment
    from glue_bench.config.shipped import write_experiment_file

    load_experiment(values)
    write_experiment_file(values, path)
