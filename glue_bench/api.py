"""What the verbs do, as plain functions: the library's `run` and `explain`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue_bench.config import Experiment, load_experiment, parse_experiment, with_sources
from glue_bench.sweep.options import RunOptions

if TYPE_CHECKING:
    from rich.console import Console

    from glue_bench.audit.explain import Explanation
    from glue_bench.reporting.findings import Findings
    from glue_bench.sweep.run import Summary


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Sequence[str] = (),
    plugins: Iterable[str | Path] = (),
    limit: int | None = None,
    console: "Console | None" = None,
    **options: Any,
) -> "Summary":
    """Pretrain and fine-tune what an experiment lacks, and write its tables and its page to `results/<experiment>`.

    `experiment` is a YAML file, its content as a mapping, or an Experiment. `data` (hub, demo or a folder) takes the
    place of the experiment's own, as `corpus` does of its text to pretrain on. With `limit`, that many rows of train
    and of each validation split are used, which every record and table marks as no benchmark. `plugins` are Python
    files with variants, beside those that the experiment names. `options` are those of
    `glue_bench.sweep.options.RunOptions`: results, only, dry_run, workers, address, device, precision, json_log, track,
    again.

    Whatever happens, the process that calls is left as it was: see `glue_bench.training.process.process_kept`.

    Raises:
        UserError: bad input, before any cell is run.
    """
    return run_with(RunOptions(**options), experiment, data, corpus, plugins, console, limit)


def run_with(
    options: RunOptions,
    experiment: str | Path | Mapping[str, Any] | Experiment,
    data: str | None = None,
    corpus: Sequence[str] = (),
    plugins: Iterable[str | Path] = (),
    console: "Console | None" = None,
    limit: int | None = None,
) -> "Summary":
    """`run` with its options as one value."""
    from glue_bench.files import results_written_to
    from glue_bench.sweep.run import sweep
    from glue_bench.sweep.stop import TERMINATED
    from glue_bench.training.process import process_kept
    from glue_bench.training.runtime import computing
    from glue_bench.watch.observers import check_observers, make_observers

    parsed = _experiment(experiment, data, corpus, plugins, limit)
    with process_kept(), computing(options.device, options.precision):
        check_observers(options)
        summary = sweep(parsed, options, console, partial(make_observers, options=options))
        if summary.is_main and not options.dry_run and summary.cause != TERMINATED:  # whoever ends us waits for seconds
            with results_written_to(summary.folder):
                write_results(summary.folder)
    return summary


def write_results(folder: Path) -> None:
    """Write the tables of an experiment and its report, from one reading of its records, into its folder."""
    from glue_bench.reporting.export import find, write_tables

    findings = find(folder)
    write_tables(folder, findings)
    write_page(folder, findings)


def write_page(folder: Path, findings: "Findings") -> None:
    """Write the report of an experiment beside its tables."""
    from glue_bench.reporting.report.build import build_report
    from glue_bench.reporting.report.page import FILE, write_report

    write_report(build_report(folder, findings), folder / FILE)


def explain(
    cell: str,
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Sequence[str] = (),
    results: str | Path = RunOptions.results,
    plugins: Iterable[str | Path] = (),
) -> "Explanation":
    """Why a cell of the experiment would run, or why not, by what is stored in `results/<experiment>`.

    `cell` is its id, or as much of it as no other has; the rest is as for `run`.

    Raises:
        UserError: bad input, or no cell or several have such an id.
    """
    from glue_bench.audit.explain import explain as explain_cell
    from glue_bench.records.store import Store
    from glue_bench.sweep.environment import versions
    from glue_bench.sweep.records import plan_of
    from glue_bench.training.process import process_kept

    parsed = _experiment(experiment, data, corpus, plugins)
    folder = Path(results) / parsed.name
    with process_kept():
        return explain_cell(Store(folder), plan_of(parsed, folder), cell, versions())


def _experiment(
    given: str | Path | Mapping[str, Any] | Experiment,
    data: str | None,
    corpus: Sequence[str],
    plugins: Iterable[str | Path],
    limit: int | None = None,
) -> Experiment:
    if isinstance(given, str | Path):
        parsed = load_experiment(given, data, corpus, limit)
    else:
        raw = given.model_dump(by_alias=True) if isinstance(given, Experiment) else given
        parsed = parse_experiment(with_sources(raw, data, corpus, limit))
    return parsed.model_copy(update={"plugins": [*parsed.plugins, *map(str, plugins)]})
