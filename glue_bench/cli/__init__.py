"""The command line. Verbs parse, call and print; heavy imports happen inside a verb."""

import io
import re
import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from typer.exceptions import TyperException

import glue_bench
from glue_bench.cli import evaluate, models, run, share, tables
from glue_bench.cli.common import STATUS, Verb
from glue_bench.errors import UserError
from glue_bench.terminal import discard_unwritten, echo

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
VERBS: tuple[Callable[..., None], ...] = (
    run.demo, run.init, run.run, evaluate.evaluate, run.status,
    tables.leaderboard, tables.report, tables.statistics, tables.compare, tables.table,
    share.submit, share.card, share.export, share.verify,
    models.data, models.variants, models.recipes, models.convert, models.analyse,
)  # fmt: skip
for verb in VERBS:
    app.command(cls=Verb)(verb)


def _version(is_asked: bool) -> None:
    if is_asked:
        echo(f"glue-bench {glue_bench.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Compare ways of combining token, segment and position embeddings in BERT-like encoders."""


def main() -> None:
    """Run the command line. A user's mistake is one line and status 2, never a traceback."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(STATUS["terminated"]))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for encodings without some character

    try:
        for word in sys.argv[1:]:
            if word == "" or re.fullmatch("--[a-z-]+=", word):  # Path("") is the current folder
                raise UserError("an argument is empty; give a name, or leave it out")
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except (UserError, TyperException, OSError) as error:
        message = re.sub(r"^\[Errno \d+\] ", "", str(error))
        if isinstance(error, TyperException):  # typer would print a box of several lines
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "glue-bench"
            message = f"{error.format_message()} ({command} --help says more)"
        echo(f"error: {UserError(message)}", fg="red", err=True)
        sys.exit(STATUS["refused"])
    finally:
        signal.signal(signal.SIGTERM, before)
        discard_unwritten()
