"""Runs of anyone's systems, from a tidy CSV file: the contrasts, intervals and power that an experiment gets."""

import io
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.errors import UserError, first_line, quoted, unknown
from glue_bench.files import read_file
from glue_bench.stats.outcomes import AVERAGE, Outcomes
from glue_bench.stats.power import power_frame
from glue_bench.stats.verdicts import NUMBERS, Assessed, Group, assess, columns_frame, verdicts
from glue_bench.tables.contrasts import DIFFERENCE, TEST, contrast_texts, with_equivalence
from glue_bench.tables.numbers import MISSING, number
from glue_bench.tables.table import Column, Page, Table

RUN = ["system", "task", "metric", "block", "seed"]
"""What names a run; a file without the column `block` has one block."""
NEEDED = ["system", "task", "seed", "metric", "score"]
LARGEST = 2**23
"""Bytes of a file, at most: some 200,000 runs."""
MOST_RUNS, MOST_SYSTEMS = 2000, 64
"""Runs of one task and metric, and systems: memory grows with the square of runs, and draws are of all systems."""
SAME_SCORES = "the scores of all runs are equal, which does not show how much they vary"
ROUNDING = 1e-12
UNITS = {"fine-tuning": "seed", "pretraining": "block"}
WORDS = {
    "pretraining seed": "block",
    "the columns of one task differ": "its tasks differ",
    "its columns differ": "its tasks differ",
    "the arms have": "the systems have",
}
"""What `stats` says of experiments, and what it is in such a table."""
NAMES = {"arm": "system", "n_arm": "n_system"}
CONTRAST_COLUMNS = [
    "task", "metric", "system", "reference", "difference", "low", "high", "error", "freedom", "p", "p_adjusted",
    "smallest", "n_system", "n_reference", "seeds", "family", "verdict", "why",
]  # fmt: skip
POWER_COLUMNS = [
    "task", "metric", "best", "block_deviation", "seed_deviation", "smallest", "blocks_needed", "seeds_needed", "why",
]  # fmt: skip

DIGITS = 3
"""Significant digits of the smallest difference; what else is shown of its task and metric has as many decimals."""
DECIMALS = 9
CONTRAST = {
    "task": Column("Task"), "metric": Column("Metric"), **DIFFERENCE, "runs": Column("Runs", show=str), **TEST
}  # fmt: skip
SPREADS = {"block_deviation": "Between blocks", "seed_deviation": "Between seeds", "smallest": "Smallest"}
COVERS = {
    "seed": "Intervals cover other seeds, not other examples: scores do not say how each example was answered.",
    "block": "Intervals cover other blocks and seeds, not other examples: scores do not say how each one was answered.",
}
CONTRASTS = (
    "Difference: the mean of the first system less that of the second, in the unit of the metric. The 95% intervals of "
    "a task and metric hold for all systems together, and p (adjusted) is p times their number: an interval excludes 0 "
    "exactly where p (adjusted) is below 0.05, and only then is a system called better or worse. No verdict does not "
    "mean equal."
)
POWER = (
    "Smallest: a measured difference as large as this has a verdict. If the true difference is as large, only about "
    "half of such experiments find it; 80% power: with how many seeds or blocks of each system four out of five do."
)
OF_AVERAGE = "Average: the mean of the tasks in each seed."
NO_AVERAGE = "No average: a task has several metrics, or the lowest is best on some tasks only."
EQUIVALENT = "Equivalent: p (equivalent), the larger p of two one-sided tests, is below 0.05 after the same correction."


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a table of runs shows: a row for each contrast, and one for each task and metric; the average comes first.

    `contrasts` is a frame of CONTRAST_COLUMNS, as `stats.verdicts.verdicts` explains them, in the units of the scores.
    The average has the task "average", and no metric. `seeds` says what `n_system` and `n_reference` count: "seed", or
    "block". `power` is a frame of POWER_COLUMNS: standard deviations between blocks (beyond what a block does to all
    systems) and between seeds, the median of `smallest`, and how many blocks and seeds for each it takes to find a true
    difference as large as that four times out of five.
    """

    contrasts: pd.DataFrame
    power: pd.DataFrame


def read_runs(path: Path) -> pd.DataFrame:
    """The runs in a CSV file: RUN as texts, and `score` as a number.

    Raises:
        UserError: it cannot be read, lacks a column, names a run twice, or has a score that is no finite number.
    """
    try:
        content = read_file(path, LARGEST)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                io.BytesIO(content), dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig",
                index_col=False,
            )  # fmt: skip
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror or error}") from error
    except (ValueError, pd.errors.ParserWarning) as error:
        raise UserError(f"'{path}' is no CSV file: {first_line(error)}") from error
    missing = [name for name in NEEDED if name not in frame]
    if missing:
        found = ", ".join(map(str, frame.columns))
        raise UserError(f"'{path}' lacks the column {', '.join(missing)}; it has {quoted(found)}")
    scores = pd.to_numeric(frame["score"], errors="coerce").astype(float)
    runs = frame.assign(**({} if "block" in frame else {"block": "1"}))[RUN]
    _check_rows(path, runs, frame["score"], scores)
    return runs.assign(score=scores)


def _check_rows(path: Path, runs: pd.DataFrame, texts: pd.Series, scores: pd.Series) -> None:
    """Refuse the first row that is wrong; the header is row 1."""
    for name in RUN:
        for place in np.flatnonzero((runs[name] == "").to_numpy()):
            raise UserError(f"'{path}', row {place + 2}: no {name}")
    for place in np.flatnonzero(~np.isfinite(scores.to_numpy())):
        raise UserError(f"'{path}', row {place + 2}: the score {quoted(texts[place])} is no number")
    for place in np.flatnonzero(runs.duplicated().to_numpy()):
        first = int(np.flatnonzero((runs == runs.iloc[place]).all(axis=1).to_numpy())[0])
        named = ", ".join(f"{name} {quoted(runs[name][place])}" for name in NEEDED[:-1])
        raise UserError(f"'{path}', row {place + 2}: the run of row {first + 2} again ({named}); leave one of them out")
    if (runs.groupby(["task", "metric"]).size() > MOST_RUNS).any() or runs["system"].nunique() > MOST_SYSTEMS:
        raise UserError(
            f"'{path}' is too large: at most {MOST_SYSTEMS} systems, and {MOST_RUNS:,} runs of a task and metric"
        )


def judge_runs(
    path: str | Path, reference: str | None, lower: Collection[str] = (), equivalent: float | None = None
) -> Judged:
    """Compare every system in a CSV file of runs with the `reference`, on each task and metric, and on the average.

    `lower` names the metrics whose lowest value is best. The average is made where every one of several tasks has one
    metric, and the same end of all of them is best. With a margin `equivalent` the contrasts have the columns of
    `stats.verdicts.equivalence`, too.

    Raises:
        UserError: as `read_runs`; there is one system only, no such reference or metric, or the margin is not above 0.
    """
    runs = read_runs(Path(path))
    systems, metrics = runs["system"].unique().tolist(), runs["metric"].unique().tolist()
    if len(systems) < 2:
        found = f"has one system only ({quoted(systems[0])})" if systems else "has no run"
        raise UserError(f"'{path}' {found}; a difference needs two systems")
    if reference is None:
        raise UserError(f"'{path}': give --reference, the system to compare the others with: {', '.join(systems)}")
    for kind, name, known in [("system", reference, systems), *(("metric", name, metrics) for name in lower)]:
        if name not in known:
            raise unknown(kind, name, known, f"'{path}'")
    group = Group(origin="", shape="", arms=tuple(systems), reference=reference)
    assessed = assess(_outcomes(runs, systems, lower), [group])
    names = runs[["task", "metric"]].drop_duplicates().to_numpy().tolist()
    least = ROUNDING * float(runs["score"].abs().max())
    contrasts = _without_spread(verdicts(assessed), least)
    shown = with_equivalence(_named(contrasts, names)[CONTRAST_COLUMNS], equivalent)
    return Judged(contrasts=shown, power=_power(assessed, contrasts, names))


def _outcomes(runs: pd.DataFrame, systems: Sequence[str], lower: Collection[str]) -> Iterator[Outcomes]:
    """A column for each task and metric, named by its number.

    A seed is taken for one run on all tasks, such as one language model: the average is then made seed by seed, which
    is right also where each task has runs of its own, and costs a few degrees of freedom.
    """
    owners = runs["system"].map(list(systems).index)
    codes = runs.assign(owner=owners, **{name: pd.factorize(runs[name])[0] for name in ("block", "seed")})
    columns = runs[["task", "metric"]].drop_duplicates()
    averaged = columns["task"].is_unique and columns["metric"].isin(lower).nunique() == 1
    for place, ((_, metric), mine) in enumerate(codes.groupby(["task", "metric"], sort=False)):
        yield Outcomes(
            column=str(place),
            task="all",
            metric="loss" if metric in lower else "score",  # which says what end is best, and sets no limits
            arms=tuple(systems),
            owners=mine["owner"].to_numpy(),
            pretraining_seeds=mine["block"].to_numpy(),
            seeds=mine["seed"].to_numpy(),
            scores=mine["score"].to_numpy(),
            averaged=averaged,
        )


def _without_spread(contrasts: pd.DataFrame, least: float) -> pd.DataFrame:
    """No verdict where no run differs from another one: nothing but rounding would be left of the interval."""
    exact = contrasts["error"] <= least
    numbers = {name: contrasts[name].mask(exact) for name in NUMBERS[1:]}
    texts = {"verdict": contrasts["verdict"].mask(exact, ""), "why": contrasts["why"].mask(exact, SAME_SCORES)}
    return contrasts.assign(**numbers, **texts)


def _named(frame: pd.DataFrame, names: Sequence[Sequence[str]]) -> pd.DataFrame:
    """With the task and the metric of each column, and words for runs that are not of an experiment."""
    pairs = [[AVERAGE, ""] if column == AVERAGE else names[int(column)] for column in frame["column"]]
    why = frame["why"].replace(WORDS, regex=True)
    named = frame.assign(task=[task for task, _ in pairs], metric=[metric for _, metric in pairs], why=why)
    return named.replace({"seeds": UNITS}).rename(columns=NAMES)


def _power(assessed: Sequence[Assessed], contrasts: pd.DataFrame, names: Sequence[Sequence[str]]) -> pd.DataFrame:
    """A row for each column: how much it varies, and the seeds to find its smallest difference with a power of 80%."""
    (one,) = assessed
    rows = []
    for estimate, row in zip(one.estimates, columns_frame(assessed, contrasts).to_dict("records"), strict=True):
        facts = {
            "best": "lowest" if estimate.lowest_is_best else "highest",
            "block_deviation": row["pretraining_deviation"],
            "seed_deviation": row["finetuning_deviation"],
            **{name: row[name] for name in ("column", "smallest")},
            "why": next(iter(estimate.why.values()), SAME_SCORES),
        }
        if row["smallest"] > 0:
            design = power_frame([replace(one, estimates=(estimate,))], row["smallest"]).iloc[-1]
            needed = {"blocks_needed": design["pretraining_seeds"], "seeds_needed": design["finetuning_seeds"]}
            facts |= needed | {"why": design["why"]}
        rows.append(facts)
    return _named(pd.DataFrame(rows), names).reindex(columns=POWER_COLUMNS)


def is_table(path: str | Path, reference: str | None, lower: Collection[str], pairs: bool) -> bool:
    """Whether a path is a table of runs, FILE.csv, and not the folder of an experiment.

    Raises:
        UserError: an option that goes with the other one.
    """
    found = Path(path).suffix.lower() == ".csv" and not Path(path).is_dir()
    if found and pairs:
        raise UserError(f"--pairs: systems in a table such as '{path}' are compared with one reference; leave it out")
    if not found and (reference is not None or lower):
        raise UserError(
            f"--reference and --lower go with a table of runs (FILE.csv), not with '{path}'; an experiment's own "
            "reference is protocol.reference in its file"
        )
    return found


def foreign_page(judged: Judged, name: str) -> Page:
    """The contrasts of a file of this `name`, and what its runs can show; CSV and JSON have the contrasts."""
    contrasts, power = judged.contrasts, judged.power
    reference, tested = contrasts["reference"].iloc[0], contrasts["why"] == ""
    decimals = {(row["task"], row["metric"]): _decimals(row["smallest"]) for row in power.to_dict("records")}
    legend = [CONTRASTS, *(COVERS[kind] for kind in contrasts["seeds"][tested].unique())]
    legend += [EQUIVALENT] if "p_equivalent" in contrasts else []
    average = [OF_AVERAGE] if "" in set(power["metric"]) else [NO_AVERAGE] if power["task"].nunique() > 1 else []
    rows = [
        {"task": row["task"], "metric": row["metric"]}
        | contrast_texts(row | {"arm": row["system"]}, decimals[row["task"], row["metric"]])
        | {"runs": ", ".join(dict.fromkeys(map(str, (row["n_system"], row["n_reference"]))))}
        for row in contrasts.to_dict("records")
    ]
    columns = {key: column for key, column in CONTRAST.items() if key != "p_equivalent" or key in contrasts}
    title = f"Differences from {reference}"
    return Page(
        title=f"Statistics: {name}",
        tables=(
            Table(title=title, frame=pd.DataFrame(rows, columns=list(columns)), columns=columns, legend=tuple(legend)),
            _power_table(power, decimals, (POWER, *average)),
        ),
        data=contrasts,
        decimals=DECIMALS,
    )


def _decimals(smallest: float) -> int:
    return max(0, DIGITS - 1 - math.floor(math.log10(smallest))) if smallest > 0 else DIGITS


def _power_table(power: pd.DataFrame, decimals: Mapping[tuple[str, str], int], legend: tuple[str, ...]) -> Table:
    def texts(row: Mapping[Any, Any]) -> dict[str, str]:
        exact, blocks, seeds = decimals[row["task"], row["metric"]], row["blocks_needed"], row["seeds_needed"]
        needed = f"{seeds} seeds" if blocks == 1 else f"{blocks} blocks" + (f" of {seeds} seeds" if seeds > 1 else "")
        numbers = {name: number(row[name], exact) or MISSING for name in SPREADS}
        return {name: row[name] for name in ("task", "metric", "best")} | numbers | {"needed": row["why"] or needed}

    columns = {name: Column(name.capitalize()) for name in ("task", "metric", "best")}
    columns |= {name: Column(text, show=str) for name, text in SPREADS.items()
                if name != "block_deviation" or power[name].notna().any()}  # fmt: skip
    frame = pd.DataFrame(map(texts, power.to_dict("records")))
    return Table(
        title="What the runs can show", frame=frame, columns=columns | {"needed": Column("80% power")}, legend=legend
    )
