"""The outputs of finished classifiers, matched with the classes of a task.

Nothing here imports torch, so that a checkpoint in a folder is refused before that takes seconds.
"""

from collections.abc import Sequence
from pathlib import Path

from glue_bench.config import Experiment
from glue_bench.data.label_names import are_numbered, labels_of_task, places_of_classes
from glue_bench.data.task import Task
from glue_bench.data.tasks import find_task
from glue_bench.errors import UserError, quoted
from glue_bench.files import parse_json, read_file
from glue_bench.remote import is_url

LABELS_OPTION = "--labels, or `labels` of its arm"
CLASSIFIER = "ForSequenceClassification"


def check_checkpoints(experiment: Experiment) -> None:
    """Refuse a folder of a checkpoint that is absent, and outputs that are no classes of a task.

    Only folders of this machine are looked at. Whatever else is odd in them is refused when they
    are read. Raises UserError for the first fault.
    """
    for arm in experiment.arms:
        for task in experiment.tasks:
            name = arm.checkpoint_of(task)
            refuse_absent(name)
            outputs = _named_outputs(local_path(name)) if arm.is_finished else ()
            if outputs:
                match_outputs(name, outputs, find_task(task), arm.labels)


def refuse_absent(name: str) -> None:
    """Raise UserError for a place of a checkpoint that is no id of the hub, and is not there."""
    path = local_path(name)
    if is_url(name) or path.exists():
        return
    if path.suffix == ".pt":
        raise UserError(f"no checkpoint file '{name}'")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        advice = "give a folder with config.json and weights, or a hub id"
        raise UserError(f"no checkpoint folder '{name}'; {advice}")


def local_path(name: str) -> Path:
    """Return the place of a name on this machine. Raises UserError for the home of no user."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        user = Path(name).parts[0]
        raise UserError(f"'{name}': there is no user {user}; write the folder out") from error


def _named_outputs(folder: Path) -> tuple[str, ...]:
    """Return the names of a classifier's outputs in its config.json; empty if they are unknown."""
    try:
        settings = parse_json(read_file(folder / "config.json"))
        names = settings["id2label"]
        outputs = tuple(str(names[str(place)]) for place in range(len(names)))
        is_classifier = settings["architectures"][0].endswith(CLASSIFIER)
        is_whole = settings.get("num_labels", len(outputs)) == len(outputs)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ()
    return outputs if is_classifier and is_whole else ()


def match_outputs(
    name: str, outputs: Sequence[str], task: Task, given: Sequence[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Find the output of each class of a task.

    Returns:
        The places of the classes among the outputs, and the names by which they were found.
    """
    listing = ", ".join(quoted(output) for output in outputs)
    classes = ", ".join(task.labels)

    fault = ""
    if task.is_regression and len(outputs) > 1:
        fault = f"has {len(outputs)} outputs ({listing}), but {task.title} is one number"
    elif not task.is_regression and len(outputs) == 1:
        fault = f"has one output, a number, but {task.title} has the classes {classes}"
    elif not task.is_regression and len(outputs) != len(task.labels):
        has = f"has {len(outputs)} outputs ({listing})"
        fault = f"{has}, but {task.title} has {len(task.labels)} classes ({classes})"
    if fault:
        raise UserError(f"checkpoint '{name}' {fault}; leave out the checkpoint or the task")

    if task.is_regression:
        return (0,), ()
    places = places_of_classes(outputs, task.labels)
    if places is not None:
        return places, tuple(outputs)

    names = labels_of_task(given or (), task.labels)
    places = places_of_classes(names, task.labels)
    if places is not None:
        return places, tuple(names)

    kind = "numbers" if are_numbered(outputs) else "names"
    asked = f"{task.title} asks for {classes}"
    advice = f"say which output is which: {LABELS_OPTION}, such as {','.join(task.labels)}"
    raise UserError(
        f"checkpoint '{name}' {kind} its outputs {listing}, and {asked}; {advice} if they have "
        "this order"
    )
