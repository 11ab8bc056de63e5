"""The command line. Verbs parse, call and print; heavy imports happen inside a verb."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glue_bench.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from glue_bench.sweep.run import Summary

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="How should token, segment and position embeddings meet, and what does the choice do to GLUE?",
)

BAD_INPUT, CELLS_FAILED, INTERRUPTED = 2, 1, 130

Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with variants of your own; may be given repeatedly."),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR/EXPERIMENT", help="The folder of an experiment's results.")]


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment: a YAML file.")],
    data: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="hub, demo or a folder, in place of the experiment's."),
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
    plugin: Plugins = None,
) -> None:
    """Pretrain and fine-tune what is missing of an experiment, and print its leaderboard."""
    _say("checking the experiment, its data and its checkpoints ...")
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
    )
    if not summary.is_main:
        return
    if dry_run:
        _print_dry_run(summary)
        return
    _print_leaderboard(summary.folder)
    _print_budget(summary.folder)
    _print_summary(summary)
    raise typer.Exit(INTERRUPTED if summary.interrupted else CELLS_FAILED if summary.failed else 0)


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


@app.command()
def leaderboard(
    folder: Folder,
    format: Annotated[
        str | None,
        typer.Option("--format", help="markdown, csv or json. [default: markdown, a table in a terminal]"),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Recompute an experiment's leaderboard from its records."""
    from glue_bench.leaderboard.export import render

    if output is None and format is None:
        _print_leaderboard(folder)
        return
    _emit(render(folder, format or "markdown"), output)


@app.command()
def table(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A published table; without one, they are listed.")
    ] = None,
    folder: Annotated[Path | None, typer.Argument(metavar="DIR/EXPERIMENT", help="Results to print beside it.")] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="markdown, csv or json. [default: markdown, a table in a terminal]"),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Print a paper's table, and an experiment's own rows under its rows."""
    from rich.console import Console

    from glue_bench.leaderboard.papers.export import render
    from glue_bench.leaderboard.papers.terminal import show, tables

    console = Console()
    if name is None:
        _print(tables())
    elif output is None and format is None and console.is_terminal:
        show(name, folder, console)
    else:
        _emit(render(name, folder, format or "markdown"), output)


@app.command()
def data(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="hub, demo, or a folder with GLUE in it.")],
) -> None:
    """Show what a data source holds: rows, official rows, label balance, digests; complete or partial."""
    from glue_bench.benchmark.sources import describe, open_source

    if source == "hub":
        _say("asking the hub ...")
    opened = open_source(source)
    frame = describe(opened)
    shown = frame.drop(columns="status").rename(columns={"official_rows": "official"})
    table = _table(*shown.columns, wrap="labels")
    for row in shown.itertuples(index=False):
        table.add_row(*(_cell(value) for value in row))
    _print(table)
    for status, tasks in frame.groupby("status", sort=False)["task"].unique().items():
        typer.echo(f"{status}: {', '.join(tasks)}")


@app.command()
def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A checkpoint: hub id, folder, or an official TUPE file (.pt).")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must not exist, or be empty.")],
    variant: Annotated[str, typer.Option(metavar="NAME", help="The variant to convert to: see `glue-bench variants`.")],
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the variant; may be repeated.")
    ] = None,
    revision: Annotated[str | None, typer.Option(metavar="REV", help="The revision of a hub id.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Hub id or folder of a tokenizer, in place of SOURCE's own.")
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Write a checkpoint as one of another variant, and measure what was lost."""
    from glue_bench.values import parse_options

    options = parse_options(option or ())
    _say("reading the checkpoint ...")
    from glue_bench.model.plugins import load_plugins
    from glue_bench.training.convert import convert as convert_checkpoint

    load_plugins(plugin or ())
    record = convert_checkpoint(source, out, variant, options, revision=revision, tokenizer=tokenizer)
    _print_conversion(record, out)


@app.command()
def variants(plugin: Plugins = None) -> None:
    """List the ways of combining embeddings, and hold those of plugins to the contract."""
    from glue_bench.model.plugins import check_plugin, installed, load_installed, load_plugins
    from glue_bench.model.variants import VARIANTS

    load_plugins(plugin or ())
    for name in installed():
        load_installed(name)
        check_plugin(name)
    table = _table("variant", "what it does", "source", wrap="what it does")
    for name, variant in VARIANTS.items():
        table.add_row(name, variant.summary, variant.source)
    _print(table)


@app.command()
def tasks() -> None:
    """List GLUE's tasks."""
    from glue_bench.benchmark.tasks import TASKS

    table = _table("task", "question", "metrics", "train", "validation", "test", wrap="question")
    for task in TASKS.values():
        sizes = [sum(s.rows for n, s in task.splits.items() if n.startswith(kind)) for kind in ("train", "val", "test")]
        table.add_row(task.name, task.summary, ", ".join(task.metrics), *(str(size or "-") for size in sizes))
    _print(table)


def main() -> None:
    """Entry point: a user's mistake is one message and exit status 2, never a traceback."""
    try:
        app()
    except UserError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(BAD_INPUT)


def _emit(text: str, output: Path | None) -> None:
    """Print, or write to a file."""
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write '{output}': {error.strerror}") from error


def _print_dry_run(summary: "Summary") -> None:
    for arm in summary.pretraining:
        typer.echo(f"pretraining {arm}")
    for cell_id in summary.waiting:
        typer.echo(cell_id)
    first = f"would pretrain {len(summary.pretraining)} arms, then " if summary.pretraining else "would "
    typer.echo(
        f"{first}run {len(summary.waiting)} of {summary.planned} cells, {summary.skipped} are done, in {summary.folder}"
    )


def _print_leaderboard(folder: Path) -> None:
    """A table fit for the terminal, or Markdown where the output goes elsewhere."""
    from rich.console import Console

    from glue_bench.leaderboard.export import render
    from glue_bench.leaderboard.terminal import show

    console = Console()
    if console.is_terminal:
        show(folder, console)
    else:
        typer.echo(render(folder, "markdown"), nl=False)


def _print_budget(folder: Path) -> None:
    """What pretraining cost each arm and what it learnt; nothing where no arm is pretrained."""
    from glue_bench.leaderboard.budget import budget_frame, shown
    from glue_bench.store import Store

    budgets = budget_frame(Store(folder)).dropna(subset="tokens")
    if budgets.empty:
        return
    table = _table("pretrained arm", "parameters", "tokens seen", "tokens/s", "held-out loss")
    for row in budgets.to_dict("records"):
        values = (row[name] for name in ("parameters", "tokens", "tokens_per_second", "validation_loss"))
        table.add_row(row["arm"], *map(shown, values))
    typer.echo()
    _print(table)


def _print_summary(summary: "Summary") -> None:
    left = len(summary.waiting) - summary.finished - len(summary.failed)
    typer.echo(
        f"\n{summary.finished} cells run, {summary.skipped} were done before, {len(summary.failed)} failed, {left} left"
    )
    for cell_id, error in summary.failed.items():
        typer.secho(f"failed: {cell_id}: {error} (traceback in {summary.folder}/failures/)", fg="red", err=True)
    if summary.interrupted:
        typer.echo("interrupted: finished cells are kept; the same command goes on from here", err=True)
    typer.echo(f"results: {summary.folder} (leaderboard.md, leaderboard.csv, scores.csv, records/, predictions/)")


def _print_conversion(record: dict[str, Any], out: Path) -> None:
    from rich.table import Table

    typer.echo(f"{record['source']} ({record['source_variant']}) -> {out} ({record['variant']})\n")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    for name, value in _describe_conversion(record).items():
        table.add_row(name, value)
    _print(table)
    typer.echo(f"\nwritten to {out}, every figure to {out / 'conversion.json'}")
    typer.echo("it is read by AutoModel.from_pretrained after `import glue_bench`, and as an arm's `checkpoint`")


def _describe_conversion(record: dict[str, Any]) -> dict[str, str]:
    """What a conversion did and what it lost, as rows of a table."""
    distance, losses, kept = record["distance"], record["masked_lm_loss"], record["variance_kept"]
    errors = [_figure(error) for error in distance["relative_error"]]
    rows = {
        "conversion": _EXACT[record["exact"]],
        "origin": f"{record['origin']}: {_ORIGINS[record['origin']]}",
        "hidden states": f"relative error {errors[-1]}, mean cosine {distance['cosine']:.4f} after the last block",
        "error by layer": f"{' '.join(errors)} (the input first)",
        "masked-LM head": record["masked_lm_head"],
    }
    if losses:
        rows["masked-LM loss"] = f"{losses['before']:.3f} before, {losses['after']:.3f} after"
    if kept:
        rows["variance kept"] = ", ".join(f"{table} {share:.1%}" for table, share in kept.items())
    return rows | {"measured on": _describe_sample(record["sample"], masked=losses is not None)}


_EXACT = {
    True: "exact: it computes what the source computes, up to rounding",
    False: "approximate: not all that the source computes is kept",
}
_ORIGINS = {
    "pretrained": "the weights were trained with this variant",
    "adapted": "grafted, then pretrained further",
    "grafted": "weights of another variant, only converted",
    "scratch": "not pretrained",
}


def _figure(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.1g}"


def _describe_sample(sample: dict[str, Any], *, masked: bool) -> str:
    size = f"{sample['tokens']} tokens" + (f", {sample['masked']} of them masked" if masked else "")
    if sample["kind"] == "text":
        return f"{sample['sequences']} pairs of English sentences, {size}"
    return f"random token ids, for want of a tokenizer (--tokenizer names one): {size}"


def _print_counts(states: list[tuple[dict[str, Any], str]], pretrained: dict[str, bool]) -> None:
    names = ("done", "failed", "missing")
    counts: dict[str, dict[str, int]] = {}
    for cell, state in states:
        counts.setdefault(cell["arm"], dict.fromkeys(names, 0))[state] += 1
    table = _table("arm", *(["pretraining"] if pretrained else []), *names)
    for arm, by_state in counts.items():
        begun = [("done" if pretrained[arm] else "missing")] if arm in pretrained else []
        table.add_row(arm, *begun, *(str(by_state[name]) for name in names))
    _print(table)


def _table(*columns: str, wrap: str = "") -> "Table":
    """A plain table in which only the column `wrap` gives way to a narrow window."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column != wrap, min_width=14 if column == wrap else None)
    return table


def _print(table: "Table") -> None:
    from rich.console import Console

    # A pipe has no width to fit into: cutting cells there would lose data.
    console = Console() if sys.stdout.isatty() else Console(width=1000)
    console.print(table)


def _cell(value: Any) -> str:
    return "-" if value is None or value == "" else str(value)


def _say(message: str) -> None:
    if os.environ.get("RANK", "0") == "0":  # the main one of the processes that were launched together
        typer.secho(message, dim=True, err=True)


if __name__ == "__main__":
    main()
