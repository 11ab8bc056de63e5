"""Verbs that run experiments: the demo, a file to begin with, the run, and its progress."""

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
    split_names,
)
from glue_bench.cli.tables import print_leaderboard
from glue_bench.errors import UserError, format_duration, quoted
from glue_bench.terminal import Screen, echo

if TYPE_CHECKING:
    from glue_bench.api.experiments import Summary

DEFAULT_RESULTS = Path("runs")
LINE_OPTIONS = {
    "arms": "--arm",
    "tasks": "--task",
    "seeds": "--seed",
    "learning_rates": "--learning-rate",
    "settings": "--set",
}
"""Options whose names differ from the keys that they stand for."""
RESULT_TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")

Config = Annotated[
    Path | None, Argument(metavar="CONFIG", help="An experiment's YAML; else --checkpoint.")
]
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
WriteFile = Annotated[
    Path | None,
    Option(metavar="FILE", help="Without CONFIG: write the experiment's file and run nothing."),
]
Data = Annotated[str | None, Option(metavar="SOURCE", help="hub, demo, a folder or its URL.")]
Corpus = Annotated[
    list[str] | None, Option(metavar="TEXT", help="Files, a URL, hub:NAME or demo; repeatable.")
]
Limit = Annotated[
    int | None, Option(metavar="N", min=2, help="Use N rows of a split: no benchmark.")
]
Results = Annotated[Path, Option(metavar="DIR", help="Where results go: DIR/<experiment>.")]
Conditions = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUE",
        help="Only cells with this arm, variant, task, learning_rate, seed, pretraining_seed, "
        "steps: KEY=A,B or repeated.",
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Check everything; say what would run and why.")]
Workers = Annotated[
    str | None, Option(metavar="N", help="Processes here; auto: as many as fit (needs Ray).")
]
Address = Annotated[str | None, Option(metavar="HOST:PORT", help="The processes of a Ray cluster.")]
SlurmOptions = Annotated[
    str | None,
    Option(
        metavar="KEY=VALUE,...",
        help="Slurm jobs with sbatch's options: partition=gpu,timeout_min=240 (needs submitit).",
    ),
]
Precision = Annotated[str, Option(metavar="FORMAT", help="float32, bf16 (mixed) or auto.")]
Graph = Annotated[
    str,
    Option(
        metavar="MODE",
        help="off, or auto: a step is one CUDA graph where that was measured; so far nowhere.",
    ),
]
Trackers = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="tensorboard, wandb, mlflow: A,B or repeated."),
]


def demo(results: Results = DEFAULT_RESULTS) -> None:
    """Run the demo: four arms on made-up data, a few minutes, no network. Never a benchmark."""
    # The encoder is so narrow that bf16 gains nothing, and in float32 more machines give the same.
    experiment = api.demo_file()
    run_and_print(experiment, results=results, precision="float32")


def init(
    name: Annotated[
        str, Argument(metavar="NAME", help="The experiment's name; its file is NAME.yaml.")
    ],
    pretrain: Annotated[
        bool, Option("--pretrain", help="The demo's arms, pretrained on its text: no network.")
    ] = False,
) -> None:
    """Write an annotated experiment to NAME.yaml."""
    path = api.write_template(name, is_pretrained=pretrain)
    echo(f"written to {path}; change it, then: glue-bench run {path} --dry-run")


def run(
    config: Config = None,
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
    write: WriteFile = None,
    data: Data = None,
    corpus: Corpus = None,
    limit: Limit = None,
    results: Results = DEFAULT_RESULTS,
    only: Conditions = None,
    dry_run: DryRun = False,
    workers: Workers = None,
    address: Address = None,
    slurm: SlurmOptions = None,
    device: Device = "auto",
    precision: Precision = "auto",
    graph: Graph = "auto",
    track: Trackers = None,
    plugin: Plugins = None,
) -> None:
    """Pretrain and fine-tune what is missing of an experiment, and print its leaderboard."""
    line: dict[str, Any] = {
        "checkpoint": split_names(checkpoint, "--checkpoint"),
        "arms": split_names(arm, "--arm"),
        "tasks": split_names(task, "--task"),
        "seeds": _parse_numbers(seed, "--seed", int),
        "learning_rates": _parse_numbers(learning_rate, "--learning-rate", float),
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
        write_described(experiment, write)
        return

    run_and_print(
        experiment,
        data=data,
        corpus=corpus or (),
        plugins=plugin or (),
        limit=limit,
        dry_run=dry_run,
        results=results,
        only=only or (),
        **_engine_options(workers, address, slurm, device=device, precision=precision, graph=graph),
        track=split_names(track, "--track"),
    )


def write_described(experiment: dict[str, Any], path: Path) -> None:
    """Write an experiment to a file, and print how to run it."""
    api.write_experiment(experiment, path)
    echo(f"written to {path}; glue-bench run {path} does the same as this line")


def _engine_options(
    workers: str | None, address: str | None, slurm: str | None, **machine: str
) -> dict[str, Any]:
    """Return the options of `api.run` that say where jobs run, with those of the machine."""
    return {
        **machine,
        "workers": int(workers) if workers and workers.isdecimal() else workers,
        "address": address,
        "slurm": None if slurm is None else api.slurm_options(slurm),
    }


def _experiment_of_line(
    line: dict[str, Any], data: str | None, limit: int | None
) -> dict[str, Any]:
    """Return the experiment that the options describe. Raises UserError without a checkpoint."""
    if not line["checkpoint"]:
        raise UserError(
            "give a file (glue-bench init NAME writes one) or --checkpoint NAME with --arm, "
            "--task, --seed"
        )
    return api.describe(**line, data=data or "hub", limit=limit)


def _check_line(config: Path | None, line: dict[str, Any], write: Path | None) -> None:
    """Raise UserError where options that describe an experiment stand beside a file."""
    if config is None:
        return
    options = []
    for key, value in line.items():
        if value:
            options.append(LINE_OPTIONS.get(key, f"--{key.replace('_', '-')}"))
    if write is not None:
        options.append("--write")
    if options:
        raise UserError(
            f"{options[0]} describes an experiment without CONFIG; set it in '{config}', "
            "or leave CONFIG out"
        )


Number = TypeVar("Number", int, float)


def _parse_numbers(texts: list[str] | None, option: str, kind: type[Number]) -> list[Number]:
    """Read the numbers that an option has been given. Raises UserError for a text that is none."""
    numbers = []
    for text in split_names(texts, option):
        try:
            numbers.append(kind(text))
        except ValueError as error:
            whole = "whole " if kind is int else ""
            example = "1,2" if kind is int else "2e-5,5e-5"
            raise UserError(
                f"{option} {quoted(text)} is no {whole}number; several are {option} {example}"
            ) from error
    return numbers


def run_and_print(experiment: Path | dict[str, Any], **options: Any) -> None:
    """Run an experiment, print what was done and the leaderboard, and exit with its status."""
    say("checking the experiment, its data and its checkpoints ...")
    summary = api.run(experiment, **options, console=Screen(stderr=True))
    if isinstance(experiment, dict):
        echo("# these options stand for this experiment:", err=True)
        for key, value in experiment.items():
            echo(f"{key}: {json.dumps(value, ensure_ascii=False)}", err=True)
        echo(err=True)
    if options.get("dry_run"):
        _print_plan(summary)
        return
    remaining = _print_summary(summary)
    if summary.cause != "terminated":  # a SIGKILL follows SIGTERM within seconds
        has_only = bool(options.get("only")) and not remaining
        print_leaderboard(summary.folder, failed=tuple(summary.failed), has_only=has_only)
    is_incomplete = summary.failed or summary.pretrained < summary.pretrainings
    raise Exit(STATUS[summary.cause or ("failed" if is_incomplete else "")])


def _print_plan(summary: "Summary") -> None:
    """Print which jobs would run and why, and how many cells are done."""
    rows = [(count, reason) for reason, count in summary.reasons.items()]
    if rows:
        print_rows(("jobs", "why"), rows, wrap="why")
    if summary.tokens:
        expected = summary.pretraining_time
        time = _format_time(expected.seconds, expected.timed_steps, "pretrainings")
        echo(f"pretraining: {summary.tokens:,} tokens in all{time}")
    if summary.steps:
        epochs = " or ".join(map(str, summary.epochs))
        expected = summary.finetuning_time
        time = _format_time(expected.seconds, expected.timed_steps, "cells")
        echo(f"fine-tuning: {epochs} epochs a cell, {summary.steps:,} updates in all{time}")
    if summary.rows:
        expected = summary.evaluation_time
        time = _format_time(expected.seconds, expected.timed_steps, "cells")
        echo(f"evaluation: {summary.rows:,} rows in all{time}")
    pretraining = f", after pretraining on {summary.tokens:,} tokens" if summary.tokens else ""
    cells = f"{len(summary.waiting):,} of {summary.planned:,} cells, {summary.skipped:,} are done"
    echo(f"would run {cells}{pretraining}, in {summary.folder}")


def _format_time(seconds: float | None, timed_steps: int, jobs: str) -> str:
    """Say how long jobs take, and how that is known; nothing where it is not."""
    if not seconds:
        return ""
    duration = format_duration(seconds)
    source = f"as finished {jobs} took"
    if timed_steps == 1:
        source = "by one timed step on this machine"
    elif timed_steps:
        source = f"by {timed_steps} timed steps on this machine"
    return f"; about {duration}, one after another, {source}"


def _print_summary(summary: "Summary") -> int:
    """Print the failed jobs, the counts of a run and the folder; return how many cells are left."""
    traceback = f"traceback in {summary.failures_folder}/"
    for job, error in summary.failed.items():
        echo(f"failed: {job}: {error} ({traceback})", fg="red", err=True)
    if summary.cause:
        advice = "finished jobs are kept; the same command goes on from here"
        echo(f"{summary.cause}: {advice}", err=True)
    if summary.pretrainings:
        echo(f"pretrainings run: {summary.pretrained} of {summary.pretrainings}")
    failed = len(summary.failed)
    remaining = summary.planned - summary.finished - summary.skipped - failed
    echo(
        f"cells run: {summary.finished}, done before: {summary.skipped}, "
        f"failed: {failed}, left: {remaining}"
    )
    files = [name for name in RESULT_TABLES if (summary.folder / name).exists()]
    files.extend(summary.result_folders)
    listing = f" ({', '.join(files)})" if files else ""
    echo(f"results: {summary.folder}{listing}\n")
    return remaining


def status(
    folder: Folder, format: Annotated[Literal["text", "json"], Option("--format")] = "text"
) -> None:
    """Say which cells are done, running, failed or missing, and how long the rest will take."""
    snapshot = api.progress(folder)
    if format == "json":
        echo(json.dumps({"cells": snapshot.cells, **asdict(snapshot)}))
        return
    rows = [(arm, *counts.values()) for arm, counts in snapshot.arms.items()]
    print_rows(("arm", *snapshot.cells), rows)
    echo_some(snapshot.running, "running: ")
    failures = [f"{job}: {error}" for job, error in snapshot.failed.items()]
    echo_some(failures, "failed: ")
    if snapshot.time_left:
        echo(snapshot.time_left)
    echo(f"{snapshot.described} in {folder}")
