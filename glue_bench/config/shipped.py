"""Experiments to begin with: those that are shipped, and the one that options of `glue-bench run` stand for."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glue_bench.config.experiment import MOST_NAME, NAME, NATIVE
from glue_bench.config.settings import Finetuning
from glue_bench.errors import UserError, quoted
from glue_bench.files import results_written_to, write_atomically

SHIPPED = Path(__file__).parent / "experiments"
DEMO = SHIPPED / "demo.yaml"


def write_template_file(name: str) -> Path:
    """Write an annotated experiment to the file NAME.yaml in the present folder; the file is returned.

    Raises UserError for what is no name of an experiment, a file that is there already, or a disk that is full.
    """
    if not re.fullmatch(NAME, name):
        raise UserError(
            f"{quoted(name)} is no name of an experiment: at most 100 letters, digits, '_', '.' and '-'"
        )
    path = Path(f"{name}.yaml")
    text = (SHIPPED / "template.yaml").read_text(encoding="utf-8").format(name=name)
    if path.exists():
        raise UserError(f"'{path}' is there already; nothing is overwritten")
    with results_written_to(path.absolute().parent, "run this in another folder"):
        write_atomically(path, text.encode())
    return path


def experiment_of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Make the experiment that options describe, named after its `checkpoint` and the folder that this lies in."""
    checkpoint = Path(options["checkpoint"])
    if checkpoint.is_dir():
        checkpoint = checkpoint.resolve()
    name = re.sub(r"[^A-Za-z0-9_.-]+", "", "-".join(checkpoint.parts[-2:])).lstrip("_.-")
    values: dict[str, Any] = {
        "name": name[:MOST_NAME] or "experiment",
        "data": "hub",
        "arms": [NATIVE],
    }
    values.update((key, value) for key, value in options.items() if value)
    values["finetuning"] = {"learning_rates": Finetuning().learning_rates}
    return values
