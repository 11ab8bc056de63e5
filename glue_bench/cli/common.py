"""What the verbs share: exit statuses, options, plain tables, one line to standard error, a text to a file."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from glue_bench.errors import UserError, plain, shortened
from glue_bench.terminal import Screen, echo

STATUS = {"": 0, "failed": 1, "refused": 2, "interrupted": 130, "terminated": 143}  # of a process, by how it ended
SHOWN = 100  # lines of a list that may be as long as whoever made a file likes

Text = str | None
Texts = list[str] | None
Place = Path | None
Plugins = Annotated[list[Path] | None, Option("--plugin", metavar="FILE", help="Python file of variants; repeatable.")]
Device = Annotated[str, Option(metavar="DEVICE", help="cpu, cuda or mps; auto: a GPU if there is one.")]
Tokenizer = Annotated[Text, Option(metavar="NAME", help="A tokenizer's id or folder; else the checkpoint's own.")]
Folder = Annotated[Path, Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results.")]
Output = Annotated[Place, Option("-o", "--output", metavar="FILE", help="Write to a file.")]
Format = Annotated[
    Text,
    Option(
        "--format",
        help="markdown, csv, json, latex or html. Without it FILE's suffix decides (.md .csv .json .tex .html); "
        "else it is markdown, or for leaderboard and table in a terminal what fits there.",
    ),
]


def split_commas(values: Texts) -> list[str]:
    """The values of an option that takes several: by repetition (`--task rte --task cola`) or with commas."""
    return [part.strip() for value in values or () for part in value.split(",") if part.strip()]


def whole_numbers(option: str, values: list[str]) -> list[int]:
    """The values of an option as whole numbers; raises UserError for another one."""
    for value in values:
        if not value.isdecimal():
            raise UserError(f"{option} takes whole numbers, not '{value}'")
    return [int(value) for value in values]


def emit(text: str, output: Path | None) -> None:
    """Print, or write to a file, which a full disk leaves as it was; a device or a pipe is no such file."""
    if output is None:
        return echo(text, nl=False)
    from glue_bench.files import ELSEWHERE, results_written_to, write_atomically

    with results_written_to(output.parent, ELSEWHERE):
        if output.exists() and not output.is_file():
            output.write_text(plain(text), encoding="utf-8")
        else:
            write_atomically(output, plain(text).encode())


def check_output(output: Path | None, suffix: str = "") -> None:
    """Refuse, before any work, what is not the name of a file with this suffix in a folder that is there."""
    if output and not (output.name.endswith(suffix) and output.parent.is_dir() and not output.is_dir()):
        raise UserError(f"-o {output}: give the name of a file{suffix and f' (*{suffix})'} in a folder that is there")


def warn(line: str, findings: Sequence[object]) -> None:
    """Where there are findings, say the line and each of them to standard error, and exit with status 1."""
    if findings:
        echo(f"warning: {line}:", fg="yellow", err=True)
        echo_some(findings, err=True)
        raise Exit(STATUS["failed"])


def echo_some(lines: Sequence[object], before: str = "", *, err: bool = False) -> None:
    """The first SHOWN lines, each with something `before` it and not too long, and how many more there are."""
    for line in lines[:SHOWN]:
        echo(shortened(f"{before}{line}"), err=err)
    if len(lines) > SHOWN:
        echo(f"{before}and {len(lines) - SHOWN} more", err=err)


def print_rows(columns: Sequence[str], rows: Iterable[Iterable[object]], wrap: str = "") -> None:
    """Print a plain table, in which only the columns `wrap` give way to a narrow window; no head if all are empty."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, no_wrap=column != wrap, min_width=14 if column == wrap else None)
    for row in rows:
        table.add_row(*map(str, row))
    width = None if sys.stdout.isatty() else 1000  # a pipe has none to fit into: cutting cells would lose data
    Screen(width=width, markup=False, highlight=False).print(table)  # brackets in a name are no markup


def say(message: str) -> None:
    """What goes on, to standard error."""
    echo(message, dim=True, err=True)
