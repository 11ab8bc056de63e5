"""Verbs about what is stored: why a cell runs again, bundles for others, and whether all of it is true."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glue_bench.cli.app import FAILED, Plugins, app
from glue_bench.cli.printing import check_output, echo_some, new_table, print_table, say, warn
from glue_bench.errors import LONGEST, UserError, shortened
from glue_bench.terminal import echo

if TYPE_CHECKING:
    from glue_bench.audit.explain import Candidate, Explanation
    from glue_bench.records.store import Store

RUNS = Path("runs")


@app.command()
def explain(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="Its id, or as much of it as no other cell has.")],
    where: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR/EXPERIMENT|CONFIG",
            help="The folder of an experiment's results, or its file as it is now. By default, all of runs/.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="SOURCE", help="With CONFIG: as for `run`.")] = None,
    corpus: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="With CONFIG: as for `run`.")] = None,
    results: Annotated[Path, typer.Option(metavar="DIR", help="With CONFIG: where its results are.")] = RUNS,
    plugin: Plugins = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=2, help="With CONFIG: as for `run`.")] = None,
) -> None:
    """Say why a cell runs again: what differs from the nearest stored record."""
    if where is not None and where.suffix in (".yaml", ".yml"):
        from glue_bench.api import explain as explain_cell

        say("checking the experiment, its data and its checkpoints ...")
        texts, plugins = corpus or (), plugin or ()
        found = explain_cell(cell, where, data=data, corpus=texts, results=results, plugins=plugins, limit=limit)
    elif data or corpus or plugin or limit or results != RUNS:
        raise UserError("--data, --corpus, --results, --plugin and --limit go with an experiment file (.yaml)")
    else:
        from glue_bench.audit.explain import explain as explain_stored
        from glue_bench.records.environment import versions
        from glue_bench.records.store import open_store

        store = open_store(where) if where else _store_with(cell)
        found = explain_stored(store, store.read_plan(), cell, versions())
    echo("\n".join([f"{found.cell_id}: {found.state}; {found.remarks[0]}", *found.remarks[1:]]))
    for candidate in found.candidates:
        echo()
        _print_candidate(found, candidate)


def _store_with(cell: str) -> "Store":
    """The one experiment in runs/ that has the cell.

    Raises:
        UserError: none has it, or several have.
    """
    from glue_bench.audit.explain import has_cell
    from glue_bench.records.store import experiments_in

    stores = experiments_in(RUNS)
    having = [store for store in stores if has_cell(store, cell)]
    if len(having) == 1 or len(stores) == 1:
        return (having or stores)[0]
    if having:
        raise UserError(f"'{cell}' is in {', '.join(str(store.folder) for store in having)}; give one of them after it")
    folders = ", ".join(str(store.folder) for store in stores)
    raise UserError(f"no cell '{cell}' in {folders}; glue-bench run CONFIG --dry-run lists the cells to run")


def _print_candidate(found: "Explanation", candidate: "Candidate") -> None:
    kind = {"no longer asked for": "asked for now", "done": "an earlier record"}.get(found.state, "nearest record")
    echo(f"{kind}: {candidate.cell_id}\n{candidate.made}")
    table = new_table("what differs", "before", "now")
    for difference in candidate.differences:
        table.add_row(
            *(shortened(text, LONGEST // 4) for text in (difference.what, difference.before, difference.after))
        )
    if candidate.differences:
        print_table(table)
    if candidate.unknown:
        echo(f"not stored by the version that wrote it, so not compared: {', '.join(candidate.unknown)}")
    elif not candidate.differences:
        echo("every stored fact is equal: the versions of glue-bench make ids of other things")


@app.command()
def export(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR/EXPERIMENT", help="Folders of experiments' results, or a folder of them."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.zip|DIR", help="The bundle, or with eee a folder.")
    ],
    format: Annotated[
        str, typer.Option("--format", help="zip, a bundle, or eee, scores in the schema of Every Eval Ever.")
    ] = "zip",
    organization: Annotated[
        str | None, typer.Option(metavar="NAME", help="With eee: who states these scores; a name of the hub.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="With eee: also a line for each example, with its texts.")
    ] = None,
) -> None:
    """Bundle records, predictions, tables, plan and environments of experiments into one file for others.

    With `--format eee`, write the scores, their uncertainties and the examples as logs of Every Eval Ever.
    """
    from glue_bench.api import export as write
    from glue_bench.audit.verify import verify as verify_results

    if format == "zip":
        check_output(output, ".zip", "a bundle")
    elif data:
        say("reading the data and the predictions ...")
    written = write(folders, output, format=format, organization=organization, data=data)
    if format == "eee":
        echo_some([output / name for name in written["files"]])
        echo_some([f"{name}: {why}" for name, why in written["left_out"].items()], "left out: ", err=True)
        return
    table = new_table("experiment", "cells", "records", "failures")
    for name, told in written["experiments"].items():
        table.add_row(name, *(str(told[key]) for key in ("planned", "records", "failures")))
    print_table(table)
    with output.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = f"{len(written['files'])} files, {output.stat().st_size / 1e6:.1f} MB"
    echo(f"\nwritten to {output} ({size}, SHA-256 {digest})")
    faults = [fault for verified in verify_results(output) for fault in verified.faults]
    warn(f"glue-bench verify {output} will find", faults)


@app.command()
def verify(
    path: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="A bundle, or the folder of an experiment's results.")
    ],
) -> None:
    """Check digests, ids, that predictions give the scores and records the tables; exit status 1 where they do not."""
    from glue_bench.audit.verify import verify as verify_results

    found = verify_results(path)
    for verified in found:
        echo(f"{verified.name}\n")
        table = new_table("check", "result", "what was found")
        for check in verified.checks:
            table.add_row(check.name, "FAULT" if check.faults else "good", shortened(check.found, LONGEST // 2))
        print_table(table)
        echo()
    faults = [fault for verified in found for fault in verified.faults]
    echo_some(faults, "fault: ")
    count = f"{len(faults)} fault{'s' * (len(faults) > 1)}"
    echo(f"{path}: {count if faults else 'good'}")
    if faults:
        raise typer.Exit(FAILED)
