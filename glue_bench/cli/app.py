"""The Typer application, and what its verbs share."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

ORDER = ("run", "status", "leaderboard", "table", "statistics", "power", "data", "tasks", "variants", "convert")


class InOrder(TyperGroup):
    """Verbs in the order of ORDER, whatever modules were imported first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the verbs."""
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    cls=InOrder,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="How should token, segment and position embeddings meet, and what does the choice do to GLUE?",
)

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with variants of your own; may be given repeatedly."),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file.")]
