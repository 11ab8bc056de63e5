"""The experiment that one line describes: checkpoints, tasks, seeds and a few settings."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glue_bench.config.experiment import FINISHED, MAX_NAME, NATIVE
from glue_bench.config.settings import Finetuning
from glue_bench.errors import UserError

SETTINGS = ("epochs", "batch_size", "max_length")
"""Settings of fine-tuning that have an option of their own and take one value."""
HAS_PLACE = re.compile(r"\{(task|TASK)\}").search
"""Finds the place of the task in the name of a checkpoint."""


def describe_line(
    checkpoints: Sequence[str],
    *,
    arms: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the content of the experiment file that a line of options means.

    One checkpoint stands for all arms. Several checkpoints are arms of their own, one for each
    variant, named after the checkpoint.

    Args:
        checkpoints: Hub ids or folders.
        arms: Variants; without one the checkpoint's own model.
        settings: Values by their dotted key in the file, such as `finetuning.warmup_ratio`.
        options: `name`, `data`, `tasks`, `seeds`, `limit` and `recipe` as the file has them, and
            `learning_rates`, `epochs`, `batch_size` and `max_length` of its `finetuning`. A value
            that is empty or None is left out.

    Raises:
        UserError: no checkpoint, a checkpoint that is given twice, two checkpoints whose arms would
            have one name, or a dotted key that leads into a plain value.
    """
    if not checkpoints:
        raise UserError("a line without a file needs a checkpoint: --checkpoint NAME")

    variants = list(arms) or [NATIVE]
    titles = _arm_titles(checkpoints)
    values: dict[str, Any] = {
        "name": options.get("name") or _experiment_name(checkpoints, titles),
        "data": options.get("data") or "hub",
    }

    if len(checkpoints) == 1:
        values["arms"] = variants
        values["checkpoint"] = checkpoints[0]
    else:
        values["arms"] = _arms(checkpoints, titles, variants)

    for key in ("tasks", "seeds", "limit", "recipe"):
        if options.get(key):
            values[key] = options[key]
    values["finetuning"] = _finetuning(options)
    for key, value in (settings or {}).items():
        _set(values, key, value)
    return values


def describe_evaluation(
    checkpoints: Sequence[str],
    *,
    tasks: Sequence[str],
    labels: Sequence[str] = (),
    predicts_test: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Return the content of the experiment file that scores finished classifiers.

    Args:
        checkpoints: Hub ids or folders, each of which is an arm; `{task}` and `{TASK}` in them
            stand for the task.
        tasks: Names of tasks; without one all, if the checkpoints have a place for the task.
        labels: The classes of the outputs, in order, of checkpoints that do not name them.
        predicts_test: Whether test splits are predicted, too.
        options: `name`, `data`, `limit`, `max_length`, `batch_size` and `tokenizer`. A value that
            is empty or None is left out.

    Raises:
        UserError: no task, a checkpoint that is given twice, or two checkpoints whose arms would
            have one name.
    """
    has_places = all(HAS_PLACE(checkpoint) for checkpoint in checkpoints)
    if not tasks and not has_places:
        raise UserError(
            "give the tasks that the checkpoints were fine-tuned on: --task TASK; all of GLUE goes "
            "without, where {task} or {TASK} in the names of the checkpoints stands for the task"
        )

    places = [_without_task(checkpoint) for checkpoint in checkpoints]
    titles = _arm_titles(places)

    arms = []
    for checkpoint, title in zip(checkpoints, titles, strict=True):
        arm: dict[str, Any] = {"name": title, "variant": FINISHED, "checkpoint": checkpoint}
        if options.get("tokenizer"):
            arm["tokenizer"] = options["tokenizer"]
        if labels:
            arm["labels"] = list(labels)
        arms.append(arm)

    values: dict[str, Any] = {
        "name": options.get("name") or _experiment_name(places, titles),
        "data": options.get("data") or "hub",
        "arms": arms,
    }
    if tasks:
        values["tasks"] = list(tasks)
    if options.get("limit"):
        values["limit"] = options["limit"]

    section: dict[str, Any] = {}
    if options.get("max_length"):
        section["max_length"] = options["max_length"]
    if options.get("batch_size"):
        section["evaluation_batch_size"] = options["batch_size"]
    if predicts_test:
        section["predict"] = ["validation", "test"]
    if section:
        values["finetuning"] = section
    return values


def _without_task(checkpoint: str) -> str:
    """Return a checkpoint's name without the place of the task, and without `model` at its end.

    A folder of that name is what a run of glue-bench keeps in the folder of a cell.
    """
    name = re.sub(r"[-_.]?\{(task|TASK)\}", "", checkpoint)
    path = Path(name)
    return str(path.parent) if path.name == "model" and path.parent.name else name


def _arms(
    checkpoints: Sequence[str], titles: Sequence[str], variants: Sequence[str]
) -> list[dict[str, Any]]:
    """Return an arm for each checkpoint and variant."""
    arms = []
    for checkpoint, title in zip(checkpoints, titles, strict=True):
        for variant in variants:
            name = title if len(variants) == 1 else f"{title[: MAX_NAME - 40]}-{variant}"
            arms.append({"name": name, "variant": variant, "checkpoint": checkpoint})
    return arms


def _finetuning(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `finetuning`, with the default rates if no recipe has others."""
    section: dict[str, Any] = {}
    if options.get("learning_rates"):
        section["learning_rates"] = options["learning_rates"]
    elif not options.get("recipe"):
        section["learning_rates"] = Finetuning().learning_rates
    for key in SETTINGS:
        if options.get(key) is not None:
            section[key] = options[key]
    return section


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value with a dotted key. Raises UserError where the key leads into a plain value."""
    *sections, last = key.split(".")
    section = values
    for name in sections:
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            raise UserError(f"--set {key}: `{name}` is a plain value, in which there is no key")
    section[last] = value


def _last_two_parts(checkpoint: str) -> list[str]:
    """Return the last two parts of a checkpoint's name, of a folder those of its full path."""
    path = Path(checkpoint)
    if path.is_dir():
        path = path.resolve()
    parts = [re.sub(r"[^A-Za-z0-9_.-]+", "", part).lstrip("_.-") for part in path.parts[-2:]]
    return [part for part in parts if part]


def _arm_titles(checkpoints: Sequence[str]) -> list[str]:
    """Return a name for each checkpoint: its last part, or its last two if the last is not enough.

    Raises UserError if a checkpoint is given twice or two of them still have one name.
    """
    all_parts = [_last_two_parts(checkpoint) or ["checkpoint"] for checkpoint in checkpoints]
    last_parts = Counter(parts[-1] for parts in all_parts)
    titles = []
    for parts in all_parts:
        title = parts[-1] if last_parts[parts[-1]] == 1 else "-".join(parts)
        titles.append(title[:MAX_NAME])
    for title, count in Counter(titles).items():
        if count > 1:
            same = []
            for checkpoint, checkpoint_title in zip(checkpoints, titles, strict=True):
                if checkpoint_title == title:
                    same.append(checkpoint)
            raise UserError(
                f"two checkpoints have the name '{title}': {', '.join(same)}; "
                "give each once, or write a file in which each arm has a name of its own "
                "(glue-bench init NAME)"
            )
    return titles


def _experiment_name(checkpoints: Sequence[str], titles: Sequence[str]) -> str:
    """Return a name for the experiment: one checkpoint's last two parts, or the names of all."""
    name = (
        "-".join(_last_two_parts(checkpoints[0])) if len(checkpoints) == 1 else "-and-".join(titles)
    )
    return name[:MAX_NAME].rstrip("_.-") or "experiment"
