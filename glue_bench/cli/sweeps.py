"""Verbs that run an experiment, and that say how far it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glue_bench.cli.app import FAILED, INTERRUPTED, Folder, Plugins, app
from glue_bench.cli.printing import new_table, print_table, say
from glue_bench.cli.tables import print_leaderboard

if TYPE_CHECKING:
    from glue_bench.sweep.run import Summary


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment: a YAML file.")],
    data: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="hub, demo, a folder or its URL, in place of the experiment's."),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Files, folders, hub:NAME or demo, in place of the text to pretrain on."),
    ] = None,
    results: Annotated[Path, typer.Option(metavar="DIR", help="Where results go: DIR/<experiment>.")] = Path("runs"),
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only cells with this arm, variant, task, learning_rate or seed."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say what would run, run nothing.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Run cells in N processes of this machine (needs Ray).")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Run cells on a Ray cluster; `auto` is the one of this machine."),
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Pretrain and fine-tune what is missing of an experiment, and print its leaderboard."""
    say("checking the experiment, its data and its checkpoints ...")
    from rich.console import Console

    from glue_bench.api import run as run_experiment

    console = Console(stderr=True)
    summary = run_experiment(
        config,
        data=data,
        corpus=corpus or (),
        results=results,
        only=only or (),
        dry_run=dry_run,
        plugins=plugin or (),
        console=console,
        workers=workers,
        address=address,
    )
    if not summary.is_main:
        return
    if dry_run:
        _print_dry_run(summary)
        return
    print_leaderboard(summary.folder)
    _print_budget(summary.folder)
    _print_summary(summary)
    raise typer.Exit(INTERRUPTED if summary.interrupted else FAILED if summary.failed else 0)


@app.command()
def status(folder: Folder) -> None:
    """Say which cells are done, failed or missing."""
    from glue_bench.store import open_store

    store = open_store(folder)
    states = store.states()
    _print_counts(states, store.pretrained_arms())
    for failure in store.read_failures():
        typer.echo(f"failed: {failure['cell_id']}: {failure['error']}")
    done = sum(state == "done" for _, state in states)
    typer.echo(f"{done} of {len(states)} cells done in {folder}")


def _print_dry_run(summary: "Summary") -> None:
    for arm in summary.pretraining:
        typer.echo(f"pretraining {arm}")
    for cell_id in summary.waiting:
        typer.echo(cell_id)
    first = f"would pretrain {len(summary.pretraining)} arms, then " if summary.pretraining else "would "
    typer.echo(
        f"{first}run {len(summary.waiting)} of {summary.planned} cells, {summary.skipped} are done, in {summary.folder}"
    )


def _print_budget(folder: Path) -> None:
    """What pretraining cost each arm and what it learnt; nothing where no arm is pretrained."""
    from glue_bench.leaderboard.budget import budget_frame, shown
    from glue_bench.store import Store

    budgets = budget_frame(Store(folder)).dropna(subset="tokens")
    if budgets.empty:
        return
    table = new_table("pretrained arm", "parameters", "tokens seen", "tokens/s", "held-out loss")
    for row in budgets.to_dict("records"):
        values = (row[name] for name in ("parameters", "tokens", "tokens_per_second", "validation_loss"))
        table.add_row(row["arm"], *map(shown, values))
    typer.echo()
    print_table(table)


def _print_summary(summary: "Summary") -> None:
    left = len(summary.waiting) - summary.finished - summary.elsewhere - len(summary.failed)
    elsewhere = f"{summary.elsewhere} run by another sweep, " if summary.elsewhere else ""
    typer.echo(
        f"\n{summary.finished} cells run, {elsewhere}{summary.skipped} were done before, "
        f"{len(summary.failed)} failed, {left} left"
    )
    for cell_id, error in summary.failed.items():
        typer.secho(f"failed: {cell_id}: {error} (traceback in {summary.folder}/failures/)", fg="red", err=True)
    if summary.interrupted:
        typer.echo("interrupted: finished cells are kept; the same command goes on from here", err=True)
    typer.echo(f"results: {summary.folder} (leaderboard.md, leaderboard.csv, scores.csv, records/, predictions/)")


def _print_counts(states: list[tuple[dict[str, Any], str]], pretrained: dict[str, bool]) -> None:
    names = ("done", "failed", "missing")
    counts: dict[str, dict[str, int]] = {}
    for cell, state in states:
        counts.setdefault(cell["arm"], dict.fromkeys(names, 0))[state] += 1
    table = new_table("arm", *(["pretraining"] if pretrained else []), *names)
    for arm, by_state in counts.items():
        begun = [("done" if pretrained[arm] else "missing")] if arm in pretrained else []
        table.add_row(arm, *begun, *(str(by_state[name]) for name in names))
    print_table(table)
