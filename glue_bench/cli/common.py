"""Exit statuses, options and ways of printing that the verbs share."""

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.exceptions import TyperException

from glue_bench import api
from glue_bench.errors import UserError, escape_controls, quoted, shortened
from glue_bench.terminal import Screen, echo

STATUS = {"": 0, "failed": 1, "refused": 2, "interrupted": 130, "terminated": 143}
"""The status of a process by how it ended."""
OPTION_CUTOFF = 0.9
"""The `cutoff` of get_close_matches above which an unknown option is a misspelled one."""
MAX_LINES = 100
"""How many lines are printed of a list that comes from a file of others."""
MIN_WRAPPED_WIDTH = 14
"""The least width of a column of wrapped text, in characters."""
UNLIMITED_WIDTH = 1000
"""The width of a table in a pipe: to cut cells there would lose data."""

Plugins = Annotated[
    list[Path] | None,
    Option("--plugin", metavar="FILE", help="Python file of variants; repeatable."),
]
Device = Annotated[
    str, Option(metavar="DEVICE", help="cpu, cuda or mps; auto: a GPU if there is one.")
]
Tokenizer = Annotated[
    str | None,
    Option(metavar="NAME", help="A tokenizer's id or folder; else the checkpoint's own."),
]
Folder = Annotated[
    Path, Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results.")
]
Output = Annotated[Path | None, Option("-o", "--output", metavar="FILE", help="Write to a file.")]
Format = Annotated[
    str | None,
    Option(
        "--format",
        help="markdown, csv, json, latex or html. Without it FILE's suffix decides "
        "(.md .csv .json .tex .html); else it is markdown, or for leaderboard and table in a "
        "terminal what fits there.",
    ),
]

COMPARE_FOLDERS = "glue-bench compare DIR/A DIR/B compares the arms of several experiments"
EXTRA_WORDS = {
    "run": "run experiments one after another; several values of an option are --seed 1,2",
    "leaderboard": COMPARE_FOLDERS,
    "statistics": COMPARE_FOLDERS,
    "report": COMPARE_FOLDERS,
    "convert": "options of the variant are --option KEY=VALUE",
}
"""What to do instead of giving a verb more words than it takes, where there is a way."""


class Verb(TyperCommand):
    """A verb that refuses words it does not take, and a repeated option that takes one value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the verb.

        Raises UserError for a word too many, and for a repeated option that takes one value.
        """
        try:
            _, extra_words, order = self.make_parser(ctx).parse_args(args=list(args))
        except TyperException as error:
            if self.name == "run":
                refuse_setting(error)
            raise
        if extra_words:
            raise UserError(self.refusal_of(extra_words))
        given = [parameter for parameter in order if isinstance(parameter, TyperOption)]
        for option in given:
            takes_one = not (option.multiple or option.is_flag)
            if takes_one and given.count(option) > 1:
                name = max(option.opts, key=len)
                raise UserError(f"{name} is given twice; it takes one value")
        return super().parse_args(ctx, args)

    def refusal_of(self, extra_words: list[str]) -> str:
        """Say which words are too many, what the verb takes, and what to do instead."""
        arguments = [
            str(parameter.metavar)
            for parameter in self.params
            if isinstance(parameter, TyperArgument)
        ]
        taken = " ".join(arguments) or "options alone"
        words = quoted(" ".join(extra_words))
        advice = EXTRA_WORDS.get(str(self.name), f"glue-bench {self.name} --help says more")
        return f"glue-bench {self.name} takes {taken}; it has no place for {words}; {advice}"


def refuse_setting(error: TyperException) -> None:
    """Raise UserError if an unknown option has the name of a setting in an experiment file."""
    option = getattr(error, "option_name", "")
    options_like_it = getattr(error, "possibilities", None) or ()
    if not option or get_close_matches(option, options_like_it, n=1, cutoff=OPTION_CUTOFF):
        return
    name = option.lstrip("-")
    setting = name.replace("-", "_")
    places = api.places_of_setting(setting)
    if places:
        names = " or ".join(f"`{place}`" for place in places)
        raise UserError(
            f"No such option: {option}; it is the setting {names} of an experiment file. Without a "
            f"file: --set {places[0]}=VALUE. glue-bench init NAME writes a file with comments"
        )


def split_names(texts: list[str] | None, option: str) -> list[str]:
    """Return the names that an option has been given as A,B or repeatedly.

    Raises UserError for an empty name.
    """
    if not texts:
        return []
    joined = ",".join(texts)
    names = [name.strip() for name in joined.split(",")]
    if "" in names:
        raise UserError(
            f"{option} {quoted(joined)}: a name is empty; "
            f"give {option} A,B or {option} A {option} B"
        )
    return names


def print_or_write(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file. If the disk is full, the file stays as it was."""
    if output is None:
        echo(text, nl=False)
    else:
        api.write_text(output, escape_controls(text))


def check_output(output: Path | None, suffix: str = "") -> None:
    """Raise UserError if `output` is given and cannot be a file with this suffix."""
    if output is None:
        return
    if output.is_dir() or not output.parent.is_dir() or not output.name.endswith(suffix):
        pattern = f" (*{suffix})" if suffix else ""
        raise UserError(f"-o {output}: give the name of a file{pattern} in a folder that is there")


def fail_with_findings(line: str, findings: Sequence[object]) -> None:
    """If there are findings, print them below a line to standard error, and exit with status 1."""
    if findings:
        echo(f"warning: {line}:", fg="yellow", err=True)
        echo_some(findings, err=True)
        raise Exit(STATUS["failed"])


def echo_some(lines: Sequence[object], before: str = "", *, err: bool = False) -> None:
    """Print at most MAX_LINES lines, shortened and with `before` in front, and count the rest."""
    for line in lines[:MAX_LINES]:
        echo(shortened(f"{before}{line}"), err=err)
    if len(lines) > MAX_LINES:
        echo(f"{before}and {len(lines) - MAX_LINES} more", err=err)


def print_rows(columns: Sequence[str], rows: Iterable[Iterable[object]], wrap: str = "") -> None:
    """Print a plain table.

    Args:
        columns: The headings. If all are empty, there is no head.
        rows: The cells.
        wrap: The heading of the column whose texts are wrapped in a narrow window.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        is_wrapped = column == wrap
        min_width = MIN_WRAPPED_WIDTH if is_wrapped else None
        table.add_column(column, no_wrap=not is_wrapped, min_width=min_width)
    for row in rows:
        table.add_row(*map(str, row))
    width = None if sys.stdout.isatty() else UNLIMITED_WIDTH
    screen = Screen(width=width, markup=False, highlight=False)  # brackets in names are no markup
    screen.print(table)


def say(message: str) -> None:
    """Print to standard error what the verb is doing."""
    echo(message, dim=True, err=True)
