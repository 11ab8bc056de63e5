"""Verbs about what has no public labels: the submission to the GLUE site, its linter, and the diagnostic set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glue_bench.cli.app import FAILED, Folder, Format, Output, app
from glue_bench.cli.printing import check_output, emit, new_table, print_table, warn
from glue_bench.errors import UserError

if TYPE_CHECKING:
    from glue_bench.results.submission import Submission


@app.command()
def submit(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results.")
    ] = None,
    arm: Annotated[str | None, typer.Option(metavar="NAME", help="The arm to hand in.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.zip", help="The zip; FILE.json tells its runs.")
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="The majority class in place of files that have no predictions.")
    ] = False,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE.zip", help="Only look for mistakes in a zip, whoever made it.")
    ] = None,
) -> None:
    """Write the zip of an arm's test predictions that the GLUE site takes, or check one."""
    if check is not None:
        if folder or arm or output or fill:
            raise UserError("--check takes a zip alone, without an experiment, --arm, -o or --fill")
        _check(check)
        return
    if folder is None or output is None:
        raise UserError("give DIR/EXPERIMENT and -o FILE.zip, or --check FILE.zip")
    from glue_bench.benchmark.linter import lint

    check_output(output, ".zip", "a submission")
    _write(_gather(folder, arm, fill), output)
    warn(f"the site will not take {output}", lint(output.read_bytes(), str(output)))


@app.command()
def diagnostics(
    folder: Folder,
    labels: Annotated[
        Path, typer.Option(metavar="PATH", help="diagnostic-full.tsv, or the GLUE folder whose AX folder has it.")
    ],
    format: Format = None,
    output: Output = None,
) -> None:
    """Score MNLI's models on the labelled diagnostic set, by linguistic phenomenon."""
    from glue_bench.benchmark.diagnostic import read_diagnostic
    from glue_bench.records.store import open_store
    from glue_bench.reporting.diagnostics_page import render_diagnostics
    from glue_bench.reporting.formats import chosen_format
    from glue_bench.results.diagnostics import score_diagnostic

    chosen = chosen_format(format, output)
    emit(render_diagnostics(score_diagnostic(open_store(folder), read_diagnostic(labels)), chosen), output)


def _check(path: Path) -> None:
    from glue_bench.benchmark.linter import lint
    from glue_bench.benchmark.submission import FILES

    try:
        findings = lint(path.read_bytes(), str(path))
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    for finding in findings:
        typer.echo(finding)
    if findings:
        raise typer.Exit(FAILED)
    typer.echo(f"{path}: good; {len(FILES)} files, {sum(file.rows for file in FILES.values())} predictions")


def _gather(folder: Path, arm: str | None, with_fill: bool) -> "Submission":
    from glue_bench.records.store import open_store
    from glue_bench.results.submission import fill, gather

    submission = gather(open_store(folder), arm)
    if not submission.missing or with_fill:
        return fill(submission)
    missing = ", ".join(f"{name} ({why})" for name, why in submission.missing.items())
    raise UserError(
        f"arm '{submission.arm}' has no predictions for {len(submission.missing)} of the eleven files: {missing}; "
        "run what is missing, or give --fill for the majority class in their place"
    )


def _write(submission: "Submission", output: Path) -> None:
    import json

    from glue_bench.files import write_atomically
    from glue_bench.results.submission import manifest

    told = manifest(submission, output.name)
    text = json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        write_atomically(output, submission.zip())
        write_atomically(output.with_suffix(".json"), text.encode())
    except OSError as error:
        raise UserError(f"cannot write '{output}': {error.strerror}") from error
    table = new_table("file", "rows", "run", "validation")
    for name, origin in told["files"].items():
        run = origin.get("cell_id", f"none: {origin.get('filled')} on every row (--fill)")
        value = origin.get("validation")
        table.add_row(name, str(origin["rows"]), run, "-" if value is None else f"{value:.2f}")
    print_table(table)
    typer.echo(f"\nwritten to {output} (SHA-256 {told['sha256']}), its runs to {output.with_suffix('.json')}")
    if submission.filled:
        typer.echo(f"filled with the majority class, not predicted: {', '.join(submission.filled)}")
    if submission.is_demo:
        typer.echo("made-up data: a zip to look at, not to hand in")
