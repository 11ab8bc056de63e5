"""What the verbs do, as plain functions: the library's `run`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue_bench.config import Experiment, load_experiment, parse_experiment, with_sources

if TYPE_CHECKING:
    from rich.console import Console

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
) -> "Summary":
    """Pretrain and fine-tune what an experiment lacks, and write its tables to `results/<experiment>`.

    `experiment` is a YAML file, its content as a mapping, or an Experiment. `data` (hub, demo or a folder) takes the
    place of the experiment's own, as `corpus` does of its text to pretrain on. `only` is a list of KEY=VALUE
    conditions on cells; arms without a chosen cell are not pretrained. `plugins` are Python files with variants,
    beside those that the experiment names. `workers` processes of this machine share the cells, or those of the Ray
    cluster at `address` ("auto" or HOST:PORT); without either they run here, one after another.

    Raises:
        UserError: bad input, before any cell is run.
    """
    from glue_bench.files import results_written_to
    from glue_bench.remote import refuse_url

    refuse_url(results)  # before imports that take seconds
    from glue_bench.leaderboard.export import write_tables
    from glue_bench.sweep.run import sweep

    summary = sweep(_experiment(experiment, data, corpus, plugins), results, only, dry_run, console, workers, address)
    if summary.is_main and not dry_run:
        with results_written_to(summary.folder):
            write_tables(summary.folder)
    return summary


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
