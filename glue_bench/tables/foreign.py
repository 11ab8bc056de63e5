"""Runs of anyone's systems, from a tidy CSV file: the contrasts, intervals and power that an experiment gets."""

import io
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.errors import UserError, first_line, quoted, unknown
from glue_bench.files import read_file
from glue_bench.stats.outcomes import AVERAGE, Outcomes
from glue_bench.stats.power import power_frame
from glue_bench.stats.verdicts import NUMBERS, Assessed, Group, assess, columns_frame, verdicts

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


def judge_runs(path: str | Path, reference: str | None, lower: Collection[str] = ()) -> Judged:
    """Compare every system in a CSV file of runs with the `reference`, on each task and metric, and on the average.

    `lower` names the metrics whose lowest value is best. The average is made where every one of several tasks has one
    metric, and the same end of all of them is best.

    Raises:
        UserError: as `read_runs`; there is one system only, or no such reference or metric.
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
    return Judged(contrasts=_named(contrasts, names)[CONTRAST_COLUMNS], power=_power(assessed, contrasts, names))


def _outcomes(runs: pd.DataFrame, systems: Sequence[str], lower: Collection[str]) -> Iterator[Outcomes]:
    """A column for each task and metric, named by its number.

    A seed is taken for one run on all tasks, such as one language model: the average is then made seed by seed, which
    is right also where each task has runs of its own, and costs a few degrees of freedom.
    """
    owners = runs["system"].map(list(systems).index)
    codes = runs.assign(owner=owners, **{name: pd.factorize(runs[name])[0] for name in ("block", "seed")})
    columns = runs[["task", "metric"]].drop_duplicates()
    averaged = columns["task"].is_unique and columns["metric"].isin(lower).nunique() == 1
    for number, ((_, metric), mine) in enumerate(codes.groupby(["task", "metric"], sort=False)):
        yield Outcomes(
            column=str(number),
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
