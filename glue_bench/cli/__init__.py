"""The command line. Verbs parse, call and print; heavy imports happen inside a verb."""

import sys

import typer

# Importing them registers their verbs.
from glue_bench.cli import analysis, benchmark, first, models, records, status, submission, sweeps, tables  # noqa: F401
from glue_bench.cli.app import BAD_INPUT, app
from glue_bench.errors import UserError


def main() -> None:
    """Entry point: a user's mistake is one message and exit status 2, never a traceback."""
    try:
        app()
    except UserError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(BAD_INPUT)
