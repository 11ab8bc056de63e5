"""Run an experiment, see how far it is, and begin one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from rich.console import Console

    from glue_bench.board.compare import Comparison
    from glue_bench.config import Experiment
    from glue_bench.config.load import Names
    from glue_bench.sweep.progress import Snapshot
    from glue_bench.sweep.run import Summary

    Given = str | Path | Mapping[str, Any] | Experiment


def run(
    experiment: Given,
    *,
    data: str | None = None,
    corpus: Names = (),
    plugins: Names = (),
    limit: int | None = None,
    results: str | Path = "runs",
    only: Names = (),
    dry_run: bool = False,
    workers: int | str | None = None,
    address: str | None = None,
    slurm: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: str = "auto",
    graph: str = "auto",
    console: Console | None = None,
    track: Names = (),
) -> Summary:
    """Run the jobs of an experiment that have no result yet, and write its tables and its page.

    Results lie in `results/<experiment>`.

    Only `data`, `corpus`, `plugins` and `limit` can change what a cell is, and its id. Without
    `workers`, `address` and `slurm` all jobs run in this process, one after another.

    Args:
        experiment: A YAML file, its content as a mapping, or an Experiment.
        data: The source of GLUE in place of the experiment's: hub, demo, a folder or its URL.
        corpus: The text of pretraining in place of the experiment's: files, a URL, hub:NAME or
            demo.
        plugins: Python files of variants.
        limit: Use this many rows of each split, which is no benchmark.
        results: The folder with a folder for each experiment.
        only: KEY=VALUE conditions on cells. Arms without a chosen cell are not pretrained.
        dry_run: Check all that a run checks; run and write nothing.
        workers: How many processes of this machine share the jobs; "auto": as many as it has room
            for.
        address: HOST:PORT of a Ray cluster, whose processes share the jobs.
        slurm: Options of sbatch: jobs go to Slurm.
        device: auto, cpu, cuda or mps.
        precision: float32, bf16 or auto, which is bf16 where the device is faster in it.
        graph: off, or auto: on GPUs where that was measured to be faster, a step has fixed shapes
            and is launched as one CUDA graph. No GPU has been measured yet, so auto is off.
        console: Where progress is shown.
        track: Trackers that losses and scores go to: tensorboard, wandb, mlflow.

    Returns:
        What was done: counts of cells, the errors of those that failed, and the folder of the
        results.

    Example:
        >>> only = ["task=rte", "seed=1"]
        >>> summary = glue_bench.run("configs/demo.yaml", only=only)  # doctest: +SKIP

    Raises:
        UserError: bad input, before any cell is run; later, results that cannot be written, or no
            workers.
    """
    from glue_bench.config.load import as_list, load_experiment

    parsed = load_experiment(experiment, data=data, corpus=corpus, plugins=plugins, limit=limit)
    from glue_bench.sweep.engine import Engine
    from glue_bench.sweep.observers import Display
    from glue_bench.sweep.request import check_before_work
    from glue_bench.sweep.trackers import Tracker

    trackers = [
        Tracker(name, Path(str(results)).expanduser() / parsed.name) for name in as_list(track)
    ]
    options: dict[str, Any] = {
        "results": results,
        "only": only,
        "device": device,
        "precision": precision,
        "graph": graph,
    }
    options["engine"] = Engine.parse(workers, address, slurm)
    check_before_work(parsed, **options)
    from glue_bench.sweep.run import sweep  # imports torch and transformers, which takes seconds

    observers = [*([Display(console)] if console else []), *trackers]
    summary = sweep(parsed, console, observers, dry_run=dry_run, **options)
    if not dry_run and summary.cause != "terminated":  # after SIGTERM only seconds are left
        write_results(summary.folder)
    return summary


def write_results(folder: Path) -> None:
    """Write the tables and the report of an experiment. Raises UserError if the disk is full."""
    from glue_bench.board.compare import open_comparison
    from glue_bench.files import results_written_to
    from glue_bench.pages.files import write_tables

    with results_written_to(folder):
        comparison = open_comparison(folder)
        write_tables(comparison)
        write_page(comparison)


def write_page(comparison: Comparison) -> None:
    """Write the report of an experiment beside its tables."""
    from glue_bench.files import write_atomically
    from glue_bench.pages.render import to_html
    from glue_bench.pages.report import REPORT_FILE, make_report

    write_atomically(
        comparison.board.results.folder / REPORT_FILE, to_html(make_report(comparison)).encode()
    )


def plan(experiment: Given, *, results: str | Path = "runs", **changes: Any) -> pd.DataFrame:
    """List the cells that an experiment asks for, as `run` would run them; run and write nothing.

    Args:
        experiment: A YAML file, its content as a mapping, or an Experiment.
        results: The folder with a folder for each experiment.
        changes: `data`, `corpus`, `plugins` and `limit`, as in `run`.

    Returns:
        One row per cell, in the order of the experiment, with
        `glue_bench.board.columns.CELL_COLUMNS`
        (`pretraining_seed` and `steps` are missing without pretraining), its `state` in
        `results/<experiment>`, as `status` has it, and `why` it would run: empty where it would
        not.

    Example:
        >>> glue_bench.plan("configs/demo.yaml").groupby("task").size()  # doctest: +SKIP

    Raises:
        UserError: bad input, as for `run`.
    """
    from glue_bench.config.load import load_experiment
    from glue_bench.sweep.cells import cells_frame
    from glue_bench.sweep.jobs import work_left
    from glue_bench.sweep.plan import make_plan
    from glue_bench.sweep.reasons import reasons
    from glue_bench.training.inputs import Inputs
    from glue_bench.training.quiet import quiet_transformers

    quiet_transformers()
    parsed = load_experiment(experiment, **changes)
    inputs = Inputs(parsed, Path(results) / parsed.name)
    planned = make_plan(inputs)
    why = reasons(work_left(planned, planned.cells, inputs.store), inputs.store)
    frame = cells_frame(inputs.store, planned)
    return frame.assign(why=[why.get(cell.id, "") for cell in planned.cells])


def status(path: str | Path) -> pd.DataFrame:
    """List the cells of the experiment in the folder `path` as `plan` does, without `why`.

    `state` is done, running, failed (it runs again with the next command) or missing.

    Example:
        >>> glue_bench.status("runs/demo").value_counts(["arm", "state"])  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment, or its plan is damaged.
    """
    from glue_bench.records.store import open_store
    from glue_bench.sweep.cells import cells_frame

    store = open_store(path)
    return cells_frame(store, store.plan())


# For the command line


def progress(path: Path) -> Snapshot:
    """Look at an experiment once: what has ended, what runs, and how long the rest will take."""
    from glue_bench.records.store import open_store
    from glue_bench.sweep.progress import Watch

    store = open_store(path)
    planned = store.plan()
    return Watch(store, planned, store.finished(planned).done).look()


def demo_file() -> Path:
    """Name the experiment file of the demo."""
    from glue_bench.config.shipped import DEMO_FILE

    return DEMO_FILE


def write_template(name: str, *, is_pretrained: bool = False) -> Path:
    """Write an annotated experiment to NAME.yaml in the present folder, and return the file.

    It is one of a published checkpoint, or the demo's, whose arms are pretrained.
    """
    from glue_bench.config.shipped import write_template_file

    return write_template_file(name, is_pretrained=is_pretrained)


def slurm_options(text: str) -> dict[str, Any]:
    """Read options of Slurm jobs from KEY=VALUE,KEY=VALUE.

    Options of submitit's own are numbers; an option of sbatch stays a text (00123, 1e3).
    """
    from glue_bench.config.load import parse_options
    from glue_bench.sweep.slurm import SUBMITIT_OPTIONS, SUBMITIT_SLURM_OPTIONS

    return parse_options(
        re.split(r",(?=[\w-]+=)", text),
        "--slurm",
        typed=(*SUBMITIT_OPTIONS, *SUBMITIT_SLURM_OPTIONS),
    )


def places_of_setting(name: str) -> list[str]:
    """List the places of an experiment file in which a setting of this name stands."""
    from glue_bench.config.load import places_of

    return list(places_of(name))
