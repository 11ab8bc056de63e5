"""Verbs that run experiments: the demo, a file to begin with, the run itself, and how far one is."""

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glue_bench.cli.app import FAILED, INTERRUPTED, TERMINATED, Device, Folder, Plugins, app
from glue_bench.cli.printing import echo_some, new_table, print_table, say
from glue_bench.cli.tables import print_leaderboard
from glue_bench.errors import UserError, quoted
from glue_bench.terminal import Screen, echo, unread

if TYPE_CHECKING:
    from glue_bench.sweep.progress import Snapshot, Watch
    from glue_bench.sweep.run import Summary

SHIPPED = Path(__file__).parents[1] / "config" / "experiments"
RUNS = Path("runs")
COMMON = re.compile(r"(?i)(model|checkpoint|encoder|step|best|last|final)s?([-_]\d+)?")
"""Names that many checkpoints' folders have: what tells them apart is the folder above."""
STATUS = {"": 0, "interrupted": INTERRUPTED, "terminated": TERMINATED}

Results = Annotated[Path, typer.Option(metavar="DIR", help="Where results go: DIR/<experiment>.")]
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
    typer.Option(metavar="TEXT", help="Files, folders, a URL, hub:NAME or demo to pretrain on; may be repeated."),
]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=2, help="Use N rows of train and of each validation split: no benchmark."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Only cells with this arm, variant, task, learning_rate, seed, pretraining_seed, steps; may be repeated.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, say what would run and why, run nothing.")]
Workers = Annotated[
    str | None, typer.Option(metavar="N", help="N processes of this machine; auto: as many as fit (needs Ray).")
]
Address = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The processes of a Ray cluster.")]
Slurm = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=VALUE,...",
        help="Slurm jobs, with sbatch's options: partition=gpu,timeout_min=240 (needs submitit).",
    ),
]
Precision = Annotated[
    str, typer.Option(metavar="FORMAT", help="float32 or bf16 (mixed); auto: bf16 where the device is faster in it.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Losses and scores to tensorboard, wandb, mlflow or trackio; may be repeated."),
]


@app.command()
def demo(results: Results = RUNS) -> None:
    """Run the demo: four arms on made-up data, a few minutes, no network. Never a benchmark."""
    # Its encoder is so narrow that bf16 gains nothing; and so the demo is the same on more machines.
    _run(SHIPPED / "demo.yaml", results=results, precision="float32")


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment's name; its file is NAME.yaml.")],
) -> None:
    """Write an annotated experiment to NAME.yaml."""
    from pydantic import TypeAdapter, ValidationError

    from glue_bench.config.experiment import MOST_NAME, Name

    path, text = Path(f"{name}.yaml"), (SHIPPED / "template.yaml").read_text(encoding="utf-8").format(name=name)
    try:
        TypeAdapter(Name).validate_python(name)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except ValidationError as error:
        raise UserError(
            f"{quoted(name)} is no name of an experiment: give letters, digits, '_', '.' and '-', at most {MOST_NAME}"
        ) from error
    except FileExistsError as error:
        raise UserError(f"'{path}' is there already; nothing is overwritten") from error
    echo(f"written to {path}; change it, then: glue-bench run {path} --dry-run")


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
    results: Results = RUNS,
    only: Only = None,
    dry_run: DryRun = False,
    workers: Workers = None,
    address: Address = None,
    slurm: Slurm = None,
    device: Device = "auto",
    precision: Precision = "auto",
    track: Track = None,
    plugin: Plugins = None,
) -> None:
    """Pretrain and fine-tune what is missing of an experiment, and print its leaderboard."""
    described = {"checkpoint": checkpoint, "arms": arm, "tasks": task, "seeds": seed, "data": data, "limit": limit}
    given = {"data": data, "corpus": corpus or (), "plugins": plugin or (), "limit": limit}
    _run(
        _experiment(config, described),
        dry_run=dry_run,
        results=results,
        only=only or (),
        workers=int(workers) if workers and workers.isdecimal() else workers,
        address=address,
        slurm=_slurm(slurm),
        device=device,
        precision=precision,
        track=track or (),
        **given,
    )


def _experiment(config: Path | None, described: dict[str, Any]) -> Path | dict[str, Any]:
    """The file that is given, or the experiment that options describe. Neither and both are refused."""
    names = {"checkpoint": "--checkpoint", "arms": "--arm", "tasks": "--task", "seeds": "--seed"}
    if config is not None:
        if given := [option for key, option in names.items() if described[key]]:
            raise UserError(f"{', '.join(given)}: only without CONFIG")
        return config
    if not described["checkpoint"]:
        raise UserError(
            "give an experiment file (glue-bench init NAME writes one), or --checkpoint NAME with --arm, --task, --seed"
        )
    from glue_bench.config import NATIVE, Finetuning
    from glue_bench.config.experiment import MOST_NAME

    place = Path(described["checkpoint"])
    of_many = COMMON.fullmatch(place.name) and place.is_dir()
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "", "-".join(place.resolve().parts[-2:]) if of_many else place.name)
    values: dict[str, Any] = {"name": readable.lstrip("_.-")[:MOST_NAME] or "experiment", "data": "hub"}
    values |= {"arms": [NATIVE]} | {key: value for key, value in described.items() if value}
    return values | {"finetuning": {"learning_rates": Finetuning().learning_rates}}


def _slurm(text: str | None) -> dict[str, Any] | None:
    from glue_bench.config.load import parse_options

    return None if text is None else parse_options(text.split(","), "--slurm")


def _run(experiment: Path | dict[str, Any], **given: Any) -> None:
    """Run an experiment, print what was done and its leaderboard, and exit with the status that says how it went."""
    say("checking the experiment, its data and its checkpoints ...")
    from glue_bench.api import run as run_experiment

    summary = run_experiment(experiment, **given, console=Screen(stderr=True))
    if isinstance(experiment, dict):
        lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in experiment.items()]
        echo("\n".join(["# these options stand for this experiment:", *lines, ""]), err=True)
    if given.get("dry_run"):
        _print_reasons(summary)
        return
    _say_troubles(summary)
    with unread():
        _print_results(summary)
    raise typer.Exit(STATUS[summary.cause] or (FAILED if summary.failed else 0))


def _print_reasons(summary: "Summary") -> None:
    """What would run: a line a reason, with how many jobs have it."""
    for why, count in summary.reasons.items():
        echo(f"{count:,} job{'s' * (count > 1)}: {why}")
    pretrainings = len(summary.pretraining)
    first = f"{pretrainings:,} pretraining{'s' * (pretrainings > 1)}, then " if pretrainings else ""
    cells = f"{len(summary.waiting):,} of {summary.planned:,} cells, {summary.skipped:,} are done"
    echo(f"would run {first}{cells}, in {summary.folder}")


def _say_troubles(summary: "Summary") -> None:
    for job, error in summary.failed.items():
        echo(f"failed: {job}: {error} (traceback in {summary.folder}/failures/)", fg="red", err=True)
    if summary.cause:
        echo(f"{summary.cause}: finished jobs are kept; the same command goes on from here", err=True)


def _print_results(summary: "Summary") -> None:
    left = summary.planned - summary.skipped - summary.finished - len(summary.failed)
    echo(f"{summary.finished} cells run, {summary.skipped} were done before, {len(summary.failed)} failed, {left} left")
    echo(f"results: {summary.folder} (leaderboard.md, leaderboard.csv, scores.csv, cells/)\n")
    if summary.cause != "terminated":  # whoever ends us waits for seconds
        print_leaderboard(summary.folder, failed=tuple(summary.failed))


@app.command()
def status(
    folder: Folder,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until nothing is missing or Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Seconds between two looks of --watch.")
    ] = 5.0,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Say which cells are done, running, failed or missing, at what pace, and for how long still."""
    from glue_bench.errors import unknown
    from glue_bench.records.stored import open_store
    from glue_bench.sweep.progress import Watch

    if format not in ("text", "json"):
        raise unknown("format", format, ("text", "json"), "--format")
    store = open_store(folder)
    looking = Watch(store, store.plan())
    snapshot, ended = looking.look(), 0
    if watch:
        try:
            _watch(looking, snapshot, interval)
        except KeyboardInterrupt:
            ended = INTERRUPTED
        snapshot = looking.look()
        ended = ended or (FAILED if snapshot.failed else 0)
    if format == "json":
        echo(json.dumps(snapshot.document()))
    else:
        _print_status(snapshot, folder)
    raise typer.Exit(ended)


def _watch(looking: "Watch", snapshot: "Snapshot", interval: float) -> None:
    """A live table in a terminal, elsewhere a line whenever the counts change."""
    from rich.live import Live

    from glue_bench.sweep.observers import view
    from glue_bench.sweep.progress import describe_counts, describe_pace

    console, said = Screen(), ""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while snapshot.running or snapshot.cells.missing:
            if console.is_terminal:
                live.update(view(snapshot), refresh=True)
            elif (counts := describe_counts(snapshot)) != said:
                said = counts
                echo(", ".join(filter(None, [time.strftime(f"%Y-%m-%d %H:%M:%S {counts}"), describe_pace(snapshot)])))
            time.sleep(interval)
            snapshot = looking.look()


def _print_status(snapshot: "Snapshot", folder: Path) -> None:
    from glue_bench.sweep.progress import describe_counts, describe_pace

    table = new_table("arm", "done", "running", "failed", "missing")
    for arm, counts in snapshot.arms.items():
        table.add_row(arm, *map(str, (counts.done, counts.running, counts.failed, counts.missing)))
    print_table(table)
    echo_some(snapshot.running, "running: ")
    echo_some([f"{job}: {error}" for job, error in snapshot.failed.items()], "failed: ")
    if pace := describe_pace(snapshot):
        echo(f"at the last hour's pace: {pace}")
    echo(f"{describe_counts(snapshot)} in {folder}")
