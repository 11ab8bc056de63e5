"""The comparison of anyone's systems: from tidy frames, or folders of experiments, to verdicts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from glue_bench.board.folder_columns import columns_of_folders
from glue_bench.board.foreign import read_frames
from glue_bench.board.foreign_columns import columns_of_frame
from glue_bench.data.measures import AVERAGE
from glue_bench.errors import UserError, quoted, unknown
from glue_bench.records.store import Store
from glue_bench.stats.runs import ColumnRuns
from glue_bench.stats.verdicts import VERDICT_COLUMNS, Group, assess, contrast_rows

MAX_SYSTEMS = 64
Covers = Literal["examples", "seeds", "seeds and examples"]


@dataclass(frozen=True, kw_only=True)
class Versus:
    """Systems that were compared.

    Attributes:
        group: The systems with their estimates.
        contrasts: `task`, `metric` and VERDICT_COLUMNS of each system and column.
        covers: What the intervals cover.
        is_best: Whether the reference was chosen as the best by its mean. Then p is corrected for
            all pairs of systems.
        dropped: The number of examples that were left out.
    """

    group: Group
    contrasts: pd.DataFrame
    covers: Covers
    is_best: bool
    dropped: int = 0


def compare_paths(
    paths: Sequence[str | Path],
    *,
    reference: str | None = None,
    metric: str | None = None,
    lower: Collection[str] = (),
    cluster: str | None = None,
    is_common: bool = False,
    gold: str | Path | None = None,
) -> Versus:
    """Compare systems in files, or arms in folders of experiments.

    Args:
        paths: Files and folders as `read_frames` takes them, or folders of experiments.
        reference: The system that others are compared with; without it the best by its mean.
        metric: The only metric that is compared; of pairs one of PAIR_METRICS.
        lower: Metrics whose lowest value is the best.
        cluster: The column that says which examples belong together.
        is_common: Compare on the examples that all systems have.
        gold: The folder of BabyLM's evaluation data with the right answers.

    Raises:
        UserError: what `read_frames` refuses; fewer than two systems; no such system or metric;
            examples that differ between systems; too many systems or runs.
    """
    experiments = [path for path in paths if Store(path).has_plan]
    if experiments:
        has_options = bool(metric or lower or cluster or is_common or gold)
        _check_experiments(paths, experiments, has_options=has_options)
        columns = list(columns_of_folders(paths))
        names = {column.column: (column.measure.title, column.metric) for column in columns}
        dropped = 0
    else:
        frame = read_frames(paths, cluster, gold)
        columns, names, dropped = columns_of_frame(frame, metric, lower, is_common=is_common)

    systems = columns[0].arms
    _check_systems(systems, reference)
    group = _assess_systems(columns, systems, reference)
    pairs = [(system, group.reference) for system in systems if system != group.reference]
    family = len(pairs)
    if reference is None:
        family = len(systems) * (len(systems) - 1) // 2

    rows = contrast_rows(group, pairs, family, stepwise=reference is not None)
    contrasts = pd.DataFrame(rows, columns=VERDICT_COLUMNS)
    if not experiments:
        # A file calls a pretraining a block.
        contrasts["why"] = contrasts["why"].str.replace("pretraining seed", "block", regex=False)
    task_and_metric = [names.get(key, (AVERAGE, "")) for key in contrasts["column"]]
    contrasts.insert(0, "task", [task for task, _ in task_and_metric])
    contrasts.insert(1, "metric", [metric_name for _, metric_name in task_and_metric])

    return Versus(
        group=group,
        contrasts=contrasts,
        covers=_covered(columns),
        is_best=reference is None,
        dropped=dropped,
    )


def _check_experiments(
    paths: Sequence[str | Path], experiments: Sequence[str | Path], *, has_options: bool
) -> None:
    """Raise UserError for experiments beside files, or with options that are for files alone."""
    files = [path for path in paths if path not in experiments]
    if files:
        raise UserError(
            f"'{experiments[0]}' is an experiment and '{files[0]}' is none; compare experiments "
            "alone or files alone (`glue-bench export --format eee` makes files of experiments)"
        )
    if has_options:
        raise UserError(
            "--metric, --lower, --cluster, --common and --gold are for files; leave them out "
            "with folders of experiments"
        )


def _check_systems(systems: Sequence[str], reference: str | None) -> None:
    """Raise UserError for too few or too many systems, or an unknown reference."""
    if len(systems) < 2:
        raise UserError(f"there is one system only ({quoted(systems[0])}); give two")
    if len(systems) > MAX_SYSTEMS:
        raise UserError(f"{len(systems)} systems, but at most {MAX_SYSTEMS} are compared")
    if reference is not None and reference not in systems:
        raise unknown("system", reference, systems, "--reference")


def _assess_systems(
    columns: Sequence[ColumnRuns], systems: tuple[str, ...], reference: str | None
) -> Group:
    """Return one group of all systems; the reference is the best one if it is None."""
    (group,) = assess(columns, [Group(arms=systems, reference=reference or "")])
    chosen = reference or _best_system(group)
    # If estimates have blocks, only the blocks of the reference count.
    if any(estimate.blocked for estimate in group.estimates):
        (group,) = assess(columns, [Group(arms=systems, reference=chosen)])
    return replace(group, reference=chosen)


def _covered(columns: Sequence[ColumnRuns]) -> Covers:
    """Return what intervals of these columns cover."""
    if any(not len(column.labels) for column in columns):
        return "seeds"
    if all(column.has_single_runs(column.arms) for column in columns):
        return "examples"
    return "seeds and examples"


def _best_system(group: Group) -> str:
    """Return the system with the best mean on the average, or on the only column."""
    estimate = group.estimates[0]
    if len(group.estimates) > 1 and estimate.column != AVERAGE:
        raise UserError(
            "these tasks and metrics have no average; give --reference, or --metric for one of them"
        )
    choose = min if estimate.lowest_is_best else max
    means = estimate.means
    if not means:
        raise UserError("no system has a score in every task; give --reference")
    return choose(means, key=lambda system: means[system])
