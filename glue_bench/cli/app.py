"""The Typer application, and what its verbs share."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from glue_bench import __version__
from glue_bench.terminal import echo

ORDER = (
    *("demo", "init", "run", "status", "leaderboard", "report", "statistics", "table"),
    *("submit", "card", "export", "verify", "data", "variants", "convert", "analyse"),
)


class InOrder(TyperGroup):
    """Verbs in the order of ORDER, whatever modules were imported first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the verbs."""
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    cls=InOrder,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        echo(f"glue-bench {__version__}")
        raise typer.Exit


@app.callback()
def whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """How should token, segment and position embeddings meet, and what does the choice do to GLUE?"""


BAD_INPUT, FAILED, INTERRUPTED, TERMINATED = 2, 1, 130, 143

Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with variants of your own; may be given repeatedly."),
]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="cpu, cuda or mps; auto: a GPU if there is one.")]
Tokenizer = Annotated[
    str | None, typer.Option(metavar="NAME", help="Hub id or folder of a tokenizer, in place of their own.")
]
Folder = Annotated[Path, typer.Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results.")]
Folders = Annotated[list[Path], typer.Argument(metavar="DIR/EXPERIMENT", help="Folders of experiments' results.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="markdown, csv, json, latex or html. Without it FILE's suffix decides (.md .csv .json .tex .html); "
        "else it is markdown, or a table in a terminal.",
    ),
]
