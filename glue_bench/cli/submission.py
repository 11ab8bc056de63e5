"""Verbs about what has no public labels: the submission to the GLUE site, its linter, and the diagnostic set."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glue_bench.cli.app import FAILED, Folder, Format, Output, Plugins, app
from glue_bench.cli.printing import (
    agreement,
    check_output,
    check_place,
    echo_some,
    emit,
    new_table,
    print_table,
    say,
    warn,
)
from glue_bench.errors import UserError
from glue_bench.terminal import echo

if TYPE_CHECKING:
    from glue_bench.tables.board import Board
    from glue_bench.tables.submission import Submission

Yes = Annotated[
    bool, typer.Option("--yes", help="Train the runs whose test predictions are missing once more, without asking.")
]
Data = Annotated[str | None, typer.Option(metavar="SOURCE", help="To predict tests: the data, as for `run`.")]
Corpus = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="To predict tests of pretrained arms: the text, as for `run`.")
]


@app.command()
def submit(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results.")
    ] = None,
    arm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The arm to hand in; the only one needs no name.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.zip", help="The zip; FILE.json tells its runs.")
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="The majority class in place of files that have no predictions.")
    ] = False,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE.zip", help="Only look for mistakes in a zip, whoever made it.")
    ] = None,
    yes: Yes = False,
    data: Data = None,
    corpus: Corpus = None,
    plugin: Plugins = None,
) -> None:
    """Write the zip of an arm's test predictions that the GLUE site takes, or check one."""
    if check is not None:
        if folder or arm or output or fill or yes or data or corpus or plugin:
            raise UserError("--check takes a zip alone, without an experiment or any other option")
        _check(check)
        return
    if folder is None or output is None:
        raise UserError("give DIR/EXPERIMENT and -o FILE.zip, or --check FILE.zip")
    from glue_bench.data.submission import lint

    check_output(output, ".zip", "a submission")
    from glue_bench.tables.board import open_board
    from glue_bench.tables.submission import complete, gather, lacking

    board = open_board(folder)
    if yes or not fill:
        _predict(board, lacking(board, arm), yes, data, corpus or (), plugin or ())
    _write(complete(gather(board, arm), filling=fill), output)
    warn(f"the site will not take {output}", lint(output.read_bytes(), str(output)))


@app.command()
def diagnostics(
    folder: Folder,
    labels: Annotated[
        Path, typer.Option(metavar="PATH", help="diagnostic-full.tsv, or the GLUE folder whose AX folder has it.")
    ],
    format: Format = None,
    output: Output = None,
    yes: Yes = False,
    data: Data = None,
    corpus: Corpus = None,
    plugin: Plugins = None,
) -> None:
    """Score MNLI's models on the labelled diagnostic set, by linguistic phenomenon."""
    from glue_bench.data.diagnostic import read_diagnostic
    from glue_bench.tables.board import open_board
    from glue_bench.tables.diagnostics import diagnostics_page, score_diagnostic, without_diagnostic
    from glue_bench.tables.table import chosen_format

    check_place(output)
    chosen, board, diagnostic = chosen_format(format, output), open_board(folder), read_diagnostic(labels)
    _predict(board, without_diagnostic(board), yes, data, corpus or (), plugin or ())
    emit(diagnostics_page(score_diagnostic(board, diagnostic)).render(chosen), output)


@app.command()
def card(
    folder: Folder,
    arm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The arm to publish; the only one needs no name.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write card, results and models there.")
    ] = None,
    push: Annotated[
        str | None, typer.Option(metavar="REPO", help="Send them to a repository of the hub; a new one is private.")
    ] = None,
) -> None:
    """Write a model card with an arm's results, for the hub, and send it with the fine-tuned models."""
    from glue_bench.tables.card import card as make_card
    from glue_bench.tables.card import push_card, write_card

    made = make_card(folder, arm)
    if made.without:
        echo(f"no model is kept of {', '.join(made.without)} (finetuning.keep: best keeps them)", fg="yellow", err=True)
    if output is not None:
        write_card(made, output)
        echo(f"written to {output}: {len(made.files)} files, {len(made.models)} models")
    if push is not None:
        echo(f"pushed: {push_card(made, push)}")
    if output is None and push is None:
        echo(made.text, nl=False)


def _predict(
    board: "Board", cells: list[str], yes: bool, data: str | None, corpus: Sequence[str], plugins: Sequence[Path]
) -> None:
    """Have the cells' test splits predicted, if that is asked for or a person agrees.

    Nobody is asked where nobody can answer, or where it is not known what the cells were trained on.
    """
    known = data or board.results.plan.data_source in ("demo", "hub")
    if not cells or not (yes or (known and sys.stdin.isatty())):
        return
    say("checking the experiment, its data and its checkpoints ...")
    from glue_bench.records.store import Store
    from glue_bench.sweep.predict import predict_tests
    from glue_bench.testing import load_plugins

    load_plugins(plugins)
    predict_tests(Store(board.results.folder), cells, agreement(yes, "test predictions"), data, corpus)


def _check(path: Path) -> None:
    from glue_bench.data.archive import LARGEST_ZIP
    from glue_bench.data.submission import FILES, lint
    from glue_bench.files import read_file

    try:
        findings = lint(read_file(path, LARGEST_ZIP), str(path))
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    echo_some(findings)
    if findings:
        raise typer.Exit(FAILED)
    echo(f"{path}: good; {len(FILES)} files, {sum(file.rows for file in FILES.values())} predictions")


def _write(submission: "Submission", output: Path) -> None:
    from glue_bench.tables.submission import write_submission

    told = write_submission(submission, output)
    table = new_table("file", "rows", "run", "validation")
    for name, origin in told["files"].items():
        run = origin.get("cell_id", f"none: {origin.get('filled')} on every row (--fill)")
        value = origin.get("validation")
        table.add_row(name, str(origin["rows"]), run, "-" if value is None else f"{value:.2f}")
    print_table(table)
    echo(f"\nwritten to {output} (SHA-256 {told['sha256']}), its runs to {output.with_suffix('.json')}")
    if submission.filled:
        echo(f"filled with the majority class, not predicted: {', '.join(submission.filled)}")
    if submission.is_demo:
        echo("made-up data: a zip to look at, not to hand in")
