"""Verbs for the first minutes: the demo, and an experiment file to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from glue_bench.cli.app import app
from glue_bench.cli.sweeps import Results, run_and_print
from glue_bench.errors import UserError, quoted
from glue_bench.sweep.options import RunOptions
from glue_bench.terminal import echo

SHIPPED = Path(__file__).parents[1] / "config" / "experiments"


@app.command()
def demo(results: Results = Path(RunOptions.results)) -> None:
    """Run the demo: four arms on made-up data, a few minutes, no network. Never a benchmark."""
    # Its encoder is so narrow that bf16 gains nothing; and so the demo is the same on more machines.
    run_and_print(RunOptions(results=results, precision="float32"), SHIPPED / "demo.yaml")


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment's name; its file is NAME.yaml.")],
) -> None:
    """Write an annotated experiment to NAME.yaml."""
    from pydantic import TypeAdapter, ValidationError

    from glue_bench.config.sections import MOST_NAME, Name

    path, text = Path(f"{name}.yaml"), (SHIPPED / "template.yaml").read_text(encoding="utf-8").format(name=name)
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise UserError(
            f"{quoted(name)} is no name of an experiment: give letters, digits, '_', '.' and '-', at most {MOST_NAME}"
        ) from error
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UserError(f"'{path}' is there already; nothing is overwritten") from error
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}") from error
    echo(f"written to {path}; change it, then: glue-bench run {path} --dry-run")
