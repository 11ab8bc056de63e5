"""Verbs that run experiments: the demo, a file to begin with, the run itself, and how far one is."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from typer import Argument, Exit, Option

from glue_bench import api
from glue_bench.cli.common import (
    STATUS,
    Device,
    Folder,
    Plugins,
    echo_some,
    print_rows,
    say,
    separated,
)
from glue_bench.cli.tables import print_leaderboard
from glue_bench.errors import UserError, quoted
from glue_bench.terminal import Screen, echo

if TYPE_CHECKING:
    from glue_bench.api.experiments import Summary

RUNS = Path("runs")
LINE_OPTIONS = {
    "arms": "--arm",
    "tasks": "--task",
    "seeds": "--seed",
    "learning_rates": "--learning-rate",
    "settings": "--set",
}
"""Options whose names differ from the keys that they stand for."""
RESULT_TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")
ONLY = "Only cells with this arm, variant, task, learning_rate, seed, pretraining_seed, steps: KEY=A,B or repeated."
SLURM = "Slurm jobs with sbatch's options: partition=gpu,timeout_min=240 (needs submitit)."

Checkpoints = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="Without CONFIG: hub ids or folders: A,B or repeated."),
]
Arms = Annotated[
    list[str] | None,
    Option(metavar="VARIANT", help="Without CONFIG: variants, else native: A,B or repeated."),
]
Tasks = Annotated[
    list[str] | None,
    Option(metavar="TASK", help="Without CONFIG: tasks, else all: A,B or repeated."),
]
Seeds = Annotated[
    list[str] | None,
    Option(metavar="N", help="Without CONFIG: seeds, else 1 to 5: 1,2 or repeated."),
]
Rates = Annotated[
    list[str] | None,
    Option(metavar="RATE", help="Without CONFIG: learning rates: 2e-5,5e-5 or repeated."),
]
Epochs = Annotated[int | None, Option(metavar="N", help="Without CONFIG: passes over train.")]
BatchSize = Annotated[int | None, Option(metavar="N", help="Without CONFIG: rows of an update.")]
MaxLength = Annotated[int | None, Option(metavar="N", help="Without CONFIG: tokens of a row.")]
RecipeName = Annotated[
    str | None,
    Option(metavar="NAME", help="Without CONFIG: published settings (glue-bench recipes)."),
]
Name = Annotated[str | None, Option(metavar="NAME", help="Without CONFIG: the experiment's name.")]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="KEY=VALUE", help="Without CONFIG: any other key, as section.key=VALUE."
    ),
]
Write = Annotated[
    Path | None,
    Option(metavar="FILE", help="Without CONFIG: write the experiment's file and run nothing."),
]
Results = Annotated[Path, Option(metavar="DIR", help="Where results go: DIR/<experiment>.")]


def demo(results: Results = RUNS) -> None:
    """Run the demo: four arms on made-up data, a few minutes, no network. Never a benchmark."""
    # Its encoder is so narrow that bf16 gains nothing; and so the demo is the same on more machines.
    _run(api.demo_file(), results=results, precision="float32")


def init(
    name: Annotated[
        str, Argument(metavar="NAME", help="The experiment's name; its file is NAME.yaml.")
    ],
) -> None:
    """Write an annotated experiment to NAME.yaml."""
    path = api.write_template(name)
    echo(f"written to {path}; change it, then: glue-bench run {path} --dry-run")


def run(
    config: Annotated[
        Path | None, Argument(metavar="CONFIG", help="An experiment's YAML; else --checkpoint.")
    ] = None,
    checkpoint: Checkpoints = None,
    arm: Arms = None,
    task: Tasks = None,
    seed: Seeds = None,
    learning_rate: Rates = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    max_length: MaxLength = None,
    recipe: RecipeName = None,
    name: Name = None,
    set_: Settings = None,
    write: Write = None,
    data: Annotated[
        str | None, Option(metavar="SOURCE", help="hub, demo, a folder or its URL.")
    ] = None,
    corpus: Annotated[
        list[str] | None, Option(metavar="TEXT", help="Files, a URL, hub:NAME or demo; repeatable.")
    ] = None,
    limit: Annotated[
        int | None, Option(metavar="N", min=2, help="Use N rows of a split: no benchmark.")
    ] = None,
    results: Results = RUNS,
    only: Annotated[list[str] | None, Option(metavar="KEY=VALUE", help=ONLY)] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Check everything; say what would run and why.")
    ] = False,
    workers: Annotated[
        str | None, Option(metavar="N", help="Processes here; auto: as many as fit (needs Ray).")
    ] = None,
    address: Annotated[
        str | None, Option(metavar="HOST:PORT", help="The processes of a Ray cluster.")
    ] = None,
    slurm: Annotated[str | None, Option(metavar="KEY=VALUE,...", help=SLURM)] = None,
    device: Device = "auto",
    precision: Annotated[
        str, Option(metavar="FORMAT", help="float32, bf16 (mixed) or auto.")
    ] = "auto",
    track: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="tensorboard, wandb, mlflow: A,B or repeated."),
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Pretrain and fine-tune what is missing of an experiment, and print its leaderboard."""
    line: dict[str, Any] = {
        "checkpoint": separated(checkpoint, "--checkpoint"),
        "arms": separated(arm, "--arm"),
        "tasks": separated(task, "--task"),
        "seeds": _numbers(separated(seed, "--seed"), "--seed", int),
        "learning_rates": _numbers(
            separated(learning_rate, "--learning-rate"), "--learning-rate", float
        ),
        "epochs": epochs,
        "batch_size": batch_size,
        "max_length": max_length,
        "recipe": recipe,
        "name": name,
        "settings": api.parse_settings(set_ or ()),
    }
    experiment = config or _experiment_of_line(line, data=data, limit=limit)
    _check_line(config, line, write)
    if write is not None and isinstance(experiment, dict):
        api.write_experiment(experiment, write)
        echo(f"written to {write}; glue-bench run {write} does the same as this line")
        return
    _run(
        experiment,
        data=data,
        corpus=corpus or (),
        plugins=plugin or (),
        limit=limit,
        dry_run=dry_run,
        results=results,
        only=only or (),
        workers=int(workers) if workers and workers.isdecimal() else workers,
        address=address,
        slurm=None if slurm is None else api.slurm_options(slurm),
        device=device,
        precision=precision,
        track=separated(track, "--track"),
    )


def _experiment_of_line(
    line: dict[str, Any], data: str | None, limit: int | None
) -> dict[str, Any]:
    """Return the experiment that the options describe. Raises UserError where no checkpoint is named."""
    if not line["checkpoint"]:
        raise UserError(
            "give a file (glue-bench init NAME writes one) or --checkpoint NAME with --arm, --task, --seed"
        )
    return api.describe(**line, data=data or "hub", limit=limit)


def _check_line(config: Path | None, line: dict[str, Any], write: Path | None) -> None:
    """Raise UserError where options that describe an experiment stand beside a file."""
    if config is None:
        return
    given = [
        LINE_OPTIONS.get(key, f"--{key.replace('_', '-')}") for key, value in line.items() if value
    ]
    if write is not None:
        given.append("--write")
    if given:
        raise UserError(
            f"{given[0]} describes an experiment without CONFIG; set it in '{config}', or leave CONFIG out"
        )


Number = TypeVar("Number", int, float)


def _numbers(texts: list[str], option: str, kind: type[Number]) -> list[Number]:
    """Read numbers. Raises UserError for a text that is none."""
    numbers = []
    for text in texts:
        try:
            numbers.append(kind(text))
        except ValueError as error:
            whole = "whole " if kind is int else ""
            example = "1,2" if kind is int else "2e-5,5e-5"
            raise UserError(
                f"{option} {quoted(text)} is no {whole}number; several are {option} {example}"
            ) from error
    return numbers


def _run(experiment: Path | dict[str, Any], **options: Any) -> None:
    """Run an experiment, print what was done and its leaderboard, and exit with the status that says how it went."""
    say("checking the experiment, its data and its checkpoints ...")
    summary = api.run(experiment, **options, console=Screen(stderr=True))
    if isinstance(experiment, dict):
        lines = [
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in experiment.items()
        ]
        echo("\n".join(["# these options stand for this experiment:", *lines, ""]), err=True)
    if options.get("dry_run"):
        _print_plan(summary)
        return
    remaining = _print_summary(summary)
    if summary.cause != "terminated":  # whoever ends us waits for seconds
        has_only = bool(options.get("only")) and not remaining
        print_leaderboard(summary.folder, failed=tuple(summary.failed), has_only=has_only)
    is_incomplete = summary.failed or summary.pretrained < summary.pretrainings
    raise Exit(STATUS[summary.cause or ("failed" if is_incomplete else "")])


def _print_plan(summary: "Summary") -> None:
    """Print what a dry run has found: which jobs would run, why, and how many cells are done."""
    if summary.reasons:
        print_rows(
            ("jobs", "why"),
            ((count, reason) for reason, count in summary.reasons.items()),
            wrap="why",
        )
    pretraining = f", after pretraining on {summary.tokens:,} tokens" if summary.tokens else ""
    cells = f"{len(summary.waiting):,} of {summary.planned:,} cells, {summary.skipped:,} are done"
    echo(f"would run {cells}{pretraining}, in {summary.folder}")


def _print_summary(summary: "Summary") -> int:
    """Print which jobs have failed, how the run has ended, and where results are; return how many cells are left."""
    for job, error in summary.failed.items():
        echo(
            f"failed: {job}: {error} (traceback in {summary.failures_folder}/)", fg="red", err=True
        )
    if summary.cause:
        echo(
            f"{summary.cause}: finished jobs are kept; the same command goes on from here", err=True
        )
    if summary.pretrainings:
        echo(f"pretrainings run: {summary.pretrained} of {summary.pretrainings}")
    failed = len(summary.failed)
    remaining = summary.planned - summary.finished - summary.skipped - failed
    echo(
        f"cells run: {summary.finished}, done before: {summary.skipped}, failed: {failed}, left: {remaining}"
    )
    tables = [name for name in RESULT_TABLES if (summary.folder / name).exists()]
    files = ", ".join([*tables, *summary.result_folders])
    echo(f"results: {summary.folder}{files and f' ({files})'}\n")
    return remaining


def status(
    folder: Folder, format: Annotated[Literal["text", "json"], Option("--format")] = "text"
) -> None:
    """Say which cells are done, running, failed or missing, and how long the rest will take."""
    snapshot = api.progress(folder)
    if format == "json":
        echo(json.dumps({"cells": snapshot.cells, **asdict(snapshot)}))
        return
    print_rows(
        ("arm", *snapshot.cells), ((arm, *counts.values()) for arm, counts in snapshot.arms.items())
    )
    echo_some(snapshot.running, "running: ")
    echo_some([f"{job}: {error}" for job, error in snapshot.failed.items()], "failed: ")
    if snapshot.time_left:
        echo(snapshot.time_left)
    echo(f"{snapshot.described} in {folder}")
