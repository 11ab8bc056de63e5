"""Experiments to begin with: the demo, and the template of an experiment file."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glue_bench.config.experiment import NAME_PATTERN
from glue_bench.config.own_task import is_task_file
from glue_bench.errors import UserError, quoted
from glue_bench.files import results_written_to, write_atomically

SHIPPED = Path(__file__).parent / "experiments"
DEMO_FILE = SHIPPED / "demo.yaml"


TEMPLATE_FILE = SHIPPED / "template.yaml"
PRETRAINING_HEAD = """\
# The demo's experiment. Change one thing of it: an arm, an option, the steps, the text.
# Check it without running it: glue-bench run {name}.yaml --dry-run
# docs/reference/experiment.md of glue-bench explains every key, `glue-bench variants` each variant.
name: {name}
"""
"""What an experiment with pretraining begins with, in place of the demo's own comment and name."""


def template_text(name: str, *, is_pretrained: bool) -> str:
    """Write an annotated experiment: of a published checkpoint, or the demo's pretraining."""
    if not is_pretrained:
        return TEMPLATE_FILE.read_text(encoding="utf-8").format(name=name)
    _, settings = DEMO_FILE.read_text(encoding="utf-8").split("name: demo\n")
    return PRETRAINING_HEAD.format(name=name) + settings


def write_template_file(name: str, *, is_pretrained: bool = False) -> Path:
    """Write an annotated experiment to the file NAME.yaml in the current folder; return the file.

    Args:
        name: The name of the experiment.
        is_pretrained: Whether its arms are pretrained, as those of the demo.

    Raises:
        UserError: the text is no name of an experiment, the file is there already, or the disk is
            full.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(
            f"{quoted(name)} is no name of an experiment: "
            "at most 100 letters, digits, '_', '.' and '-'"
        )
    path = Path(f"{name}.yaml")
    text = template_text(name, is_pretrained=is_pretrained)
    if path.exists():
        raise UserError(f"'{path}' is there already; nothing is overwritten")
    with results_written_to(path.absolute().parent, "run this in another folder"):
        write_atomically(path, text.encode())
    return path


def _path_from(folder: Path, task: Any) -> Any:
    """Return the name of a task, of a file with a task as its path from a folder."""
    if not is_task_file(task) or Path(task).is_absolute():
        return task
    return os.path.relpath(task, folder)


def write_experiment_file(values: Mapping[str, Any], path: Path) -> None:
    """Write an experiment to a file that is not there yet.

    Raises UserError for a file that is there already, or a disk that is full.
    """
    import yaml

    if path.exists():
        raise UserError(f"'{path}' is there already; nothing is overwritten")
    written_values = dict(values)
    if "tasks" in values:
        written_values["tasks"] = [_path_from(path.parent, task) for task in values["tasks"]]
    text = yaml.safe_dump(written_values, sort_keys=False, allow_unicode=True)
    with results_written_to(path.absolute().parent, "give the file another place"):
        write_atomically(path, text.encode())
