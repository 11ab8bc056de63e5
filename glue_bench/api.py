"""What the verbs do, as plain functions: the library's `run`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue_bench.config import Experiment, load_experiment, parse_experiment

if TYPE_CHECKING:
    from rich.console import Console

    from glue_bench.sweep.run import Summary

DEFAULT_RESULTS = "runs"


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    results: str | Path = DEFAULT_RESULTS,
    only: Iterable[str] = (),
    dry_run: bool = False,
    console: "Console | None" = None,
) -> "Summary":
    """Run an experiment's missing cells and write its tables to `results/<experiment>`.

    `experiment` is a YAML file, its content as a mapping, or an Experiment. `data` (hub, demo or a folder)
    takes the place of the experiment's own. `only` is a list of KEY=VALUE conditions on cells.

    Raises:
        UserError: bad input, before any cell is run.
    """
    from glue_bench.leaderboard.export import write_tables
    from glue_bench.sweep.run import sweep

    summary = sweep(_experiment(experiment, data), results, only, dry_run, console)
    if summary.is_main and not dry_run:
        write_tables(summary.folder)
    return summary


def _experiment(given: str | Path | Mapping[str, Any] | Experiment, data: str | None) -> Experiment:
    if isinstance(given, Experiment):
        return given if data is None else given.model_copy(update={"data": data})
    if isinstance(given, Mapping):
        return parse_experiment({**given, "data": data} if data else given)
    return load_experiment(given, data)
