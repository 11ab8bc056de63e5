"""The command line. Verbs parse, call and print; heavy imports happen inside a verb."""

import signal
import sys

import typer

# Importing them registers their verbs.
from glue_bench.cli import benchmark, models, records, status, submission, sweeps, tables  # noqa: F401
from glue_bench.cli.app import BAD_INPUT, TERMINATED, app
from glue_bench.errors import UserError


def main() -> None:
    """Entry point: a user's mistake is one message and exit status 2, never a traceback. SIGTERM ends what is open."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        app()
    except UserError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(BAD_INPUT)
    finally:
        signal.signal(signal.SIGTERM, before)
