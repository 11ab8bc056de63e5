"""The verb that runs an experiment."""

import errno
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glue_bench.cli.app import FAILED, INTERRUPTED, TERMINATED, Device, Plugins, app
from glue_bench.cli.printing import agreement, new_table, print_table, say
from glue_bench.cli.tables import print_leaderboard
from glue_bench.errors import UserError
from glue_bench.sweep import stop
from glue_bench.sweep.options import RunOptions
from glue_bench.terminal import Screen, echo, silence

if TYPE_CHECKING:
    from glue_bench.sweep.run import Summary

STATUS = {stop.INTERRUPTED: INTERRUPTED, stop.TERMINATED: TERMINATED}
LISTED = 5

Config = Annotated[
    Path | None, typer.Argument(metavar="CONFIG", help="The experiment: a YAML file; or describe it by options.")
]
Checkpoint = Annotated[
    str | None, typer.Option(metavar="NAME", help="Without CONFIG: what all arms start from, a hub id or a folder.")
]
Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="VARIANT", help="Without CONFIG: a variant, else native; may be repeated."),
]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", metavar="TASK", help="Without CONFIG: a task, else all; may be repeated.")
]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", metavar="N", help="Without CONFIG: a seed, else 1 to 5; may be repeated.")
]
Data = Annotated[
    str | None, typer.Option(metavar="SOURCE", help="hub, demo, a folder or its URL, in place of the experiment's.")
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="Files, folders, a URL, hub:NAME or demo, in place of the text to pretrain on; may be repeated.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=2, help="Use N rows of train and of each validation split: to try it, no benchmark."),
]
Results = Annotated[Path, typer.Option(metavar="DIR", help="Where results go: DIR/<experiment>.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Only cells with this arm, variant, task, learning_rate, seed, pretraining_seed, steps; may be repeated.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, say what would run, run nothing.")]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Pretrain and run cells in N processes of this machine; auto: as many as fit (needs Ray)."
    ),
]
Address = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The same on a Ray cluster; `auto` is the one of this machine.")
]
Precision = Annotated[
    str, typer.Option(metavar="FORMAT", help="float32 or bf16 (mixed); auto: bf16 where the device is faster in it.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Losses and scores to tensorboard, wandb, mlflow or trackio; may be repeated."),
]
Again = Annotated[
    str | None,
    typer.Option(metavar="recipe", help="Run anew what an older recipe has run, which counts as done otherwise."),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", help="Train finished runs once more, without asking, if finetuning.keep lacks their models."),
]


@app.command()
def run(
    config: Config = None,
    checkpoint: Checkpoint = None,
    arm: Arms = None,
    task: Tasks = None,
    seed: Seeds = None,
    data: Data = None,
    corpus: Corpus = None,
    limit: Limit = None,
    results: Results = Path(RunOptions.results),
    only: Only = None,
    dry_run: DryRun = False,
    workers: Workers = None,
    address: Address = None,
    device: Device = RunOptions.device,
    precision: Precision = RunOptions.precision,
    track: Track = None,
    again: Again = None,
    yes: Yes = False,
    plugin: Plugins = None,
) -> None:
    """Pretrain and fine-tune what is missing of an experiment, and print its leaderboard."""
    experiment = _experiment(config, checkpoint, data=data, limit=limit, arms=arm, tasks=task, seeds=seed)
    options = RunOptions(
        results=results,
        only=only or (),
        dry_run=dry_run,
        workers=int(workers) if workers and workers.isdecimal() else workers,
        address=address,
        device=device,
        precision=precision,
        track=track or (),
        again=again,
    )
    run_and_print(options, experiment, data, corpus or (), plugin or (), limit, yes)


def _experiment(config: Path | None, checkpoint: str | None, **described: Any) -> Path | dict[str, Any]:
    """The file that is given, or the experiment that options describe, which is printed.

    Raises:
        UserError: neither, or both.
    """
    only_described = [f"--{key[:-1]}" for key in ("arms", "tasks", "seeds") if described[key]]
    import yaml

    from glue_bench.config import NATIVE, Finetuning
    from glue_bench.config.sections import MOST_NAME

    if config is not None:
        if checkpoint or only_described:
            raise UserError(f"{', '.join(['--checkpoint'] * bool(checkpoint) + only_described)}: only without CONFIG")
        return config
    if checkpoint is None:
        raise UserError(
            "give an experiment file (glue-bench init NAME writes one), or --checkpoint NAME with --arm, --task, --seed"
        )
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "", PurePath(checkpoint).name).lstrip("_.-")
    name = readable[:MOST_NAME] or "experiment"
    arms = described.pop("arms") or [NATIVE]
    values = {"name": name, "data": described.pop("data") or "hub", "checkpoint": checkpoint, "arms": arms}
    values |= {key: value for key, value in described.items() if value}
    # Said, because each of them is a run: who asks for one seed would wonder at four cells.
    values["finetuning"] = {"learning_rates": Finetuning().learning_rates}
    text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, allow_unicode=True)
    echo(f"# these options stand for this experiment:\n{text}", err=True)
    return values


def run_and_print(
    options: RunOptions,
    experiment: Path | dict[str, Any],
    data: str | None = None,
    corpus: Sequence[str] = (),
    plugins: Sequence[Path] = (),
    limit: int | None = None,
    yes: bool = False,
) -> None:
    """Run an experiment, print what was done and its leaderboard, and exit with the status that says how it went."""
    say("checking the experiment, its data and its checkpoints ...")
    from glue_bench.api import run as run_experiment

    agree = agreement(yes, "a kept model") if yes or sys.stdin.isatty() else None
    summary = run_experiment(
        experiment,
        data=data,
        corpus=corpus,
        plugins=plugins,
        limit=limit,
        console=Screen(stderr=True),
        agree=agree,
        told=partial(_print_run, dry=options.dry_run, asks=agree is not None),
        **vars(options),
    )
    if not options.dry_run:
        ended = FAILED if summary.cause or summary.failed or summary.gone else 0
        raise typer.Exit(STATUS.get(summary.cause, ended))


def _print_run(summary: "Summary", *, dry: bool, asks: bool) -> None:
    """What was done; with `asks`, finished runs are trained once more for their models after this, or asked about."""
    if dry:
        _print_dry_run(summary)
        return
    for part in _results(summary, asks):
        try:
            part()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            silence(sys.stdout)  # whoever read it is gone, but standard error is still to say what has failed
            part()


def _results(summary: "Summary", asks: bool) -> Iterator[Callable[[], None]]:
    """The parts of what is printed, each of which can be printed once more without a line of standard error twice."""
    if summary.cause != stop.TERMINATED:
        yield partial(_print_budget, summary.folder)
    yield partial(_print_counts, summary)
    yield partial(_print_troubles, summary)
    yield partial(_print_place, summary)
    if summary.unkept and not asks:
        yield partial(_print_unkept, summary)
    if summary.cause != stop.TERMINATED:
        yield partial(print_leaderboard, summary.folder, summary=summary)


def _print_dry_run(summary: "Summary") -> None:
    for what in summary.pretraining:
        echo(f"pretraining {what}")
    for cell_id in summary.waiting:
        echo(cell_id)
    count = len(summary.pretraining)
    first = f"{count} pretraining{'s' * (count > 1)}, then " if count else ""
    cells = f"{len(summary.waiting)} of {summary.planned} cells, {summary.skipped} are done"
    echo(f"would run {first}{cells}, in {summary.folder}")


BUDGET = {
    "pretraining_seed": "seed",
    "learning_rate": "rate",
    "parameters": "parameters",
    "tokens": "tokens seen",
    "search_tokens": "tokens of the search",
    "tokens_per_second": "tokens/s",
    "validation_loss": "validation loss",
    "swap_1": "swap test (%)",
}


def _print_budget(folder: Path) -> None:
    """What pretraining cost each arm and what it learnt; nothing where no arm is pretrained."""
    from glue_bench.tables.budget import budget_frame, told
    from glue_bench.tables.budget_page import shown
    from glue_bench.tables.results import read_results

    budgets = told(budget_frame(read_results(folder)).dropna(subset="tokens"))
    if budgets.empty:
        return
    columns = {name: title for name, title in BUDGET.items() if name in budgets}
    table = new_table("pretrained arm", *columns.values())
    for row in budgets.to_dict("records"):
        table.add_row(row["arm"], *(shown(row[name], name) for name in columns))
    print_table(table)
    echo()


def _print_unkept(summary: "Summary") -> None:
    from glue_bench.records.store import Store
    from glue_bench.values import duration

    seconds = sum(Store(summary.folder).read_record(name).seconds.total for name in summary.unkept)
    echo(
        f"finetuning.keep: {len(summary.unkept)} finished runs have left no model; `--yes` trains them once more, "
        f"which takes about {duration(seconds)}",
        err=True,
    )


def _print_counts(summary: "Summary") -> None:
    left = len(summary.waiting) - summary.finished - summary.elsewhere - len(summary.failed)
    elsewhere = f"{summary.elsewhere} run by another sweep, " if summary.elsewhere else ""
    echo(
        f"{summary.finished} cells run, {elsewhere}{summary.skipped} were done before, "
        f"{len(summary.failed)} failed, {left} left"
    )


def _print_troubles(summary: "Summary") -> None:
    for cell_id, error in summary.failed.items():
        echo(f"failed: {cell_id}: {error} (traceback in {summary.folder}/failures/)", fg="red", err=True)
    if summary.gone:
        listed = ", ".join(summary.gone[:LISTED]) + (", ..." if len(summary.gone) > LISTED else "")
        line = f"gone: {len(summary.gone)} records that were in {summary.folder}/records are missing: {listed}"
        echo(f"{line}; the same command runs their cells again", fg="red", err=True)
    if summary.interrupted:
        echo(f"{summary.cause}: finished cells are kept; the same command goes on from here", err=True)


def _print_place(summary: "Summary") -> None:
    echo(f"results: {summary.folder} (leaderboard.md, leaderboard.csv, scores.csv, records/, predictions/)\n")
