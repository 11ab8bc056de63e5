"""What the verbs do, as plain functions that return frames; some verbs' functions stand in their own rooms."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console

from glue_bench.board.board import open_board
from glue_bench.board.compare import Comparison, open_comparison
from glue_bench.board.results import CELL
from glue_bench.config import Experiment, load_experiment
from glue_bench.config.load import Names, listed
from glue_bench.errors import UserError, unknown
from glue_bench.files import results_written_to, write_atomically
from glue_bench.pages.contrasts import asked_page
from glue_bench.pages.files import write_tables
from glue_bench.pages.papers import named_page
from glue_bench.pages.render import to_html
from glue_bench.publish.bundle import Manifest, write_bundle
from glue_bench.publish.every_eval import write_logs
from glue_bench.publish.submission import write_submission
from glue_bench.records.store import Store, experiments_in, open_store
from glue_bench.records.values import Plan
from glue_bench.sweep.jobs import reasons, work_left
from glue_bench.sweep.progress import job_states

if TYPE_CHECKING:  # what imports torch is imported where it is used, as is what draws
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
    console: Console | None = None,
    track: Names = (),
) -> "Summary":
    """Pretrain and fine-tune what an experiment lacks, and write its tables and its page to `results/<experiment>`.

    `experiment` is a YAML file, its content as a mapping, or an Experiment; `data`, `corpus`, `plugins` and `limit` are
    those of `glue_bench.config.load_experiment`. No other option changes what a cell is, or its id.

    `only` is a list of KEY=VALUE conditions on cells; arms without a chosen cell are not pretrained. With `dry_run` all
    is checked that a run checks, and nothing is run or written. `workers` processes of this machine ("auto": as many as
    it has room for) share the jobs, or those of the Ray cluster at `address` (HOST:PORT), or Slurm with these options
    of sbatch (`slurm`); without any they run in this process, one after another. `device` is auto, cpu, cuda or mps,
    `precision` auto (bf16 where the device is faster in it), float32 or bf16. Progress is shown on the `console`.
    Losses and scores go to the trackers `track`: tensorboard, wandb, mlflow.

    Example:
        >>> summary = glue_bench.run("configs/demo.yaml", only=["task=rte", "seed=1"])  # doctest: +SKIP

    Raises:
        UserError: bad input, before any cell is run; later, results that cannot be written, or no workers.
    """
    parsed = load_experiment(experiment, data=data, corpus=corpus, plugins=plugins, limit=limit)
    from glue_bench.sweep.engine import Engine
    from glue_bench.sweep.observers import Display, Tracker
    from glue_bench.sweep.run import sweep

    trackers = [Tracker(name, Path(str(results)).expanduser() / parsed.name) for name in listed(track)]
    summary = sweep(
        parsed,
        console,
        [*([Display(console)] if console else []), *trackers],
        results=results,
        only=only,
        dry_run=dry_run,
        engine=Engine.parse(workers, address, slurm),
        device=device,
        precision=precision,
    )
    if not dry_run and summary.cause != "terminated":  # whoever ends us waits for seconds
        with results_written_to(summary.folder):
            comparison = open_comparison(summary.folder)
            write_tables(comparison)
            write_page(comparison)
    return summary


def write_page(comparison: Comparison) -> None:
    """Write the report of an experiment beside its tables."""
    from glue_bench.pages.report import FILE, make_report

    write_atomically(comparison.board.results.folder / FILE, to_html(make_report(comparison)).encode())


def plan(experiment: Given, *, results: str | Path = "runs", **changes: Any) -> pd.DataFrame:
    """The cells that an experiment asks for, all checked, as `run` would run them; nothing is run or written.

    `changes` are data, corpus, plugins and limit, as in `run`. One row per cell, in the order of the experiment, with
    `tables.results.CELL` (`pretraining_seed` and `steps` are missing without pretraining), its `state` in
    `results/<experiment>`, as `status` has it, and `why` it would run: empty where it would not.

    Example:
        >>> glue_bench.plan("configs/demo.yaml").groupby("task").size()  # doctest: +SKIP

    Raises:
        UserError: bad input, as for `run`.
    """
    from glue_bench.sweep.plan import make_plan
    from glue_bench.training.compute import quiet_transformers
    from glue_bench.training.inputs import Inputs

    quiet_transformers()
    parsed = load_experiment(experiment, **changes)
    inputs = Inputs(parsed, Path(results) / parsed.name)
    planned = make_plan(inputs)
    why = reasons(work_left(planned, planned.cells, inputs.store), inputs.store)
    return _cells(planned, inputs.store).assign(why=[why.get(cell.id, "") for cell in planned.cells])


def status(path: str | Path) -> pd.DataFrame:
    """The cells of the experiment in the folder `path` (DIR/<experiment>), as `plan` has them, without `why`.

    `state` is done, running, failed (it runs again with the next command) or missing.

    Example:
        >>> glue_bench.status("runs/demo").value_counts(["arm", "state"])  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment, or its plan is damaged.
    """
    store = open_store(path)
    return _cells(store.plan(), store)


def _cells(plan: Plan, store: Store) -> pd.DataFrame:
    state = job_states(store, plan, store.finished(plan).done).state
    rows = [{"cell_id": cell.id, "origin": cell.origin, **cell.key} for cell in plan.cells]
    frame = pd.DataFrame(rows, columns=list(CELL)).astype({"pretraining_seed": "Int64", "steps": "Int64"})
    return frame.assign(state=[state[cell.id] for cell in plan.cells])


def statistics(
    path: str | Path,
    *,
    equivalent: float | None = None,
    difference: float | None = None,
    power: float | None = None,
) -> pd.DataFrame:
    """Which arms of the experiment in the folder `path` differ from the reference, and by how much.

    One row per comparison and column, as `glue_bench.stats.verdicts.verdicts` has it, with the `origin` and `shape` of
    the arm. With `equivalent`, a margin, a test of differing by less is added. With a `difference`, instead the
    `glue_bench.stats.power.power_frame`: how many seeds it takes to see one with this `power`, else 0.8. Margin and
    difference are in the unit of a column: points, or nats for the validation loss.

    Example:
        >>> glue_bench.statistics("runs/demo").query("verdict != ''")  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment, nothing has run, or a margin, difference or power is not one.
    """
    return asked_page(open_comparison(path), equivalent, difference, power).rows


def table(name: str, path: str | Path | None = None) -> pd.DataFrame:
    """A published table by its name, beside the experiment in the folder `path` if that is given.

    One row per printed value and arm of ours: the rows of `glue_bench.pages.papers.paper_page`.

    Example:
        >>> glue_bench.table("tupe-1", "runs/minilm")  # doctest: +SKIP

    Raises:
        UserError: there is no such table or experiment.
    """
    return named_page(name, path).rows


def export(
    paths: Names,
    output: str | Path,
    *,
    format: str = "zip",
    organization: str | None = None,
) -> Manifest | dict[str, Any]:
    """Bundle experiments, or all in a folder, into one zip for others; its manifest is returned.

    With `format="eee"`, `glue_bench.publish.every_eval.write_logs` states the scores for an `organization` instead.

    Example:
        >>> glue_bench.export("runs/demo", "demo.zip").experiments  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in a folder, options do not go together, or a file cannot be written.
    """
    if format not in ("zip", "eee"):
        raise unknown("format", format, ("zip", "eee"), "export")
    if (format == "eee") != bool(organization):
        raise UserError("an organization, who states these scores (--organization my-lab), goes with the format eee")
    stores = [store for folder in listed(paths) for store in experiments_in(folder)]
    if organization:
        return write_logs([open_board(store.folder) for store in stores], Path(output).expanduser(), organization)
    return write_bundle(stores, Path(output).expanduser())


def submit(path: str | Path, output: str | Path, *, arm: str | None = None, fill: bool = False) -> dict[str, Any]:
    """Write the zip of an arm's stored test predictions that the GLUE site takes, and beside it which run each is from.

    The latter is returned. With `fill` the majority class stands in place of files that have no predictions.

    Example:
        >>> glue_bench.submit("runs/bert_base", "add.zip", arm="add")["files"]  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or arm, predictions are missing, or a file cannot be written.
    """
    return write_submission(open_board(path), Path(output).expanduser(), arm, fill=fill)
