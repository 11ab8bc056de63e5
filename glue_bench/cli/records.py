"""Verbs about what is stored: why a cell runs again, bundles for others, and whether all of it is true."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glue_bench.cli.app import Plugins, app
from glue_bench.cli.printing import new_table, print_table, say
from glue_bench.errors import UserError

if TYPE_CHECKING:
    from glue_bench.audit.explain import Candidate, Explanation
    from glue_bench.store import Store

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
) -> None:
    """Say why a cell runs again: what differs from the nearest stored record."""
    if where is not None and where.suffix in (".yaml", ".yml"):
        from glue_bench.api import explain as explain_cell

        say("checking the experiment, its data and its checkpoints ...")
        found = explain_cell(cell, where, data=data, corpus=corpus or (), results=results, plugins=plugin or ())
    elif data or corpus or plugin or results != RUNS:
        raise UserError("--data, --corpus, --results and --plugin go with an experiment file (.yaml)")
    else:
        found = _explain_stored(cell, where)
    _print_explanation(found)


def _explain_stored(cell: str, folder: Path | None) -> "Explanation":
    from glue_bench.audit.explain import explain as explain_cell
    from glue_bench.store import open_store
    from glue_bench.sweep.environment import versions

    store = open_store(folder) if folder else _store_with(cell)
    return explain_cell(store, store.read_plan(), cell, versions())


def _store_with(cell: str) -> "Store":
    """The one experiment in runs/ that has the cell.

    Raises:
        UserError: none has it, or several have.
    """
    from glue_bench.audit.explain import has_cell
    from glue_bench.store import experiments_in

    stores = experiments_in(RUNS)
    having = [store for store in stores if has_cell(store, cell)]
    if len(having) == 1 or len(stores) == 1:
        return (having or stores)[0]
    if having:
        raise UserError(f"'{cell}' is in {', '.join(str(store.folder) for store in having)}; give one of them after it")
    folders = ", ".join(str(store.folder) for store in stores)
    raise UserError(f"no cell '{cell}' in {folders}; glue-bench run CONFIG --dry-run lists the cells to run")


def _print_explanation(found: "Explanation") -> None:
    first, *rest = found.remarks
    typer.echo(f"{found.cell_id}: {found.state}; {first}")
    for remark in rest:
        typer.echo(remark)
    for candidate in found.candidates:
        typer.echo()
        _print_candidate(found, candidate)


def _print_candidate(found: "Explanation", candidate: "Candidate") -> None:
    kind = {"no longer asked for": "asked for now", "done": "an earlier record"}.get(found.state, "nearest record")
    typer.echo(f"{kind}: {candidate.cell_id} ({candidate.made})")
    table = new_table("what differs", "before", "now")
    for difference in candidate.differences:
        table.add_row(difference.what, difference.before, difference.after)
    if candidate.differences:
        print_table(table)
    if candidate.unknown:
        typer.echo(f"not stored by the version that wrote it, so not compared: {', '.join(candidate.unknown)}")
    elif not candidate.differences:
        typer.echo("every stored fact is equal: the versions of glue-bench make ids of other things")
