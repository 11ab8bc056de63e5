"""What the verbs do, as plain functions: the library's `run` and `explain`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue_bench.config import Experiment, load_experiment, parse_experiment, with_sources

if TYPE_CHECKING:
    from rich.console import Console

    from glue_bench.audit.explain import Explanation
    from glue_bench.sweep.run import Summary

DEFAULT_RESULTS = "runs"


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Sequence[str] = (),
    results: str | Path = DEFAULT_RESULTS,
    only: Iterable[str] = (),
    dry_run: bool = False,
    plugins: Iterable[str | Path] = (),
    console: "Console | None" = None,
    workers: int | None = None,
    address: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    json_log: str | Path | None = None,
    track: Iterable[str] = (),
    again: str | None = None,
) -> "Summary":
    """Pretrain and fine-tune what an experiment lacks, and write its tables to `results/<experiment>`.

    `experiment` is a YAML file, its content as a mapping, or an Experiment. `data` (hub, demo or a folder) takes the
    place of the experiment's own, as `corpus` does of its text to pretrain on. `only` is a list of KEY=VALUE
    conditions on cells; arms without a chosen cell are not pretrained. `plugins` are Python files with variants,
    beside those that the experiment names. `workers` processes of this machine share the cells, or those of the Ray
    cluster at `address` ("auto" or HOST:PORT); without either they run here, one after another. `device` is auto, cpu,
    cuda or mps, `precision` auto (bf16 where the device is faster in it), float32 or bf16. What happens is appended to
    the file `json_log`, one JSON object a line; losses and scores go to the trackers `track`: tensorboard, wandb,
    mlflow. Cells that an older recipe has run count as done; with `again="recipe"` they are run anew.
    With `dry_run` all is checked that a run checks, a cluster's room and every start included, and nothing is run or
    written.

    Whatever happens, the process that calls is left as it was: see `glue_bench.training.process.process_kept`.

    Raises:
        UserError: bad input, before any cell is run.
    """
    from glue_bench.files import results_written_to
    from glue_bench.remote import refuse_url

    refuse_url(results)  # before imports that take seconds
    from glue_bench.reporting.export import write_tables
    from glue_bench.sweep.run import sweep
    from glue_bench.training.process import process_kept
    from glue_bench.training.runtime import computing
    from glue_bench.watch.observers import check_observers, make_observers

    parsed = _experiment(experiment, data, corpus, plugins)
    with process_kept(), computing(device, precision):
        check_observers(json_log, track)
        observe = partial(make_observers, json_log=json_log, track=track)
        summary = sweep(parsed, results, only, dry_run, console, workers, address, again, device, precision, observe)
        if summary.is_main and not dry_run:
            with results_written_to(summary.folder):
                write_tables(summary.folder)
    return summary


def explain(
    cell: str,
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Sequence[str] = (),
    results: str | Path = DEFAULT_RESULTS,
    plugins: Iterable[str | Path] = (),
) -> "Explanation":
    """Why a cell of the experiment would run, or why not, by what is stored in `results/<experiment>`.

    `cell` is its id, or as much of it as no other has; the rest is as for `run`.

    Raises:
        UserError: bad input, or no cell or several have such an id.
    """
    from glue_bench.audit.explain import explain as explain_cell
    from glue_bench.records.record import Environment
    from glue_bench.records.store import Store
    from glue_bench.sweep.environment import versions
    from glue_bench.sweep.records import plan_of
    from glue_bench.training.process import process_kept

    parsed = _experiment(experiment, data, corpus, plugins)
    folder = Path(results) / parsed.name
    with process_kept():
        return explain_cell(Store(folder), plan_of(parsed, folder), cell, Environment(**versions()))


def _experiment(
    given: str | Path | Mapping[str, Any] | Experiment,
    data: str | None,
    corpus: Sequence[str],
    plugins: Iterable[str | Path],
) -> Experiment:
    if isinstance(given, str | Path):
        parsed = load_experiment(given, data, corpus)
    else:
        raw = given.model_dump(by_alias=True) if isinstance(given, Experiment) else given
        parsed = parse_experiment(with_sources(raw, data, corpus))
    return parsed.model_copy(update={"plugins": [*parsed.plugins, *map(str, plugins)]})
