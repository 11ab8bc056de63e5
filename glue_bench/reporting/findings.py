"""What a leaderboard's page tells: its numbers, which of them differ from the reference, and what they compare with."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from glue_bench.data.tasks import COLUMNS
from glue_bench.stats.estimates import NO_RUN
from glue_bench.stats.verdicts import APART, COVERS
from glue_bench.tables.arms import block_names, blocks_of, title
from glue_bench.tables.averages import AVERAGE
from glue_bench.tables.board import Board, averages
from glue_bench.tables.budget import rates_frame
from glue_bench.tables.compare import Comparison
from glue_bench.tables.numbers import decimals_of, number, title_of
from glue_bench.tables.results import Results
from glue_bench.values import BLOCK, BlockKey

BETTER, WORSE = "▲", "▼"
MANY = 3
"""From so many arms on a sentence gives their differences without intervals."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A leaderboard with its verdicts; several experiments together have none. `runs`: show the single runs, too."""

    comparison: Comparison
    runs: bool = False

    @property
    def board(self) -> Board:
        """The leaderboard."""
        return self.comparison.board

    @cached_property
    def rates(self) -> pd.DataFrame:
        """Those that a pretraining was searched for, of one experiment: a `rates_frame`."""
        rates = rates_frame(self.results)
        return rates if len(self.results.experiments) == 1 else rates[:0]

    @property
    def results(self) -> Results:
        """What the leaderboard was made from."""
        return self.board.results

    @cached_property
    def measures(self) -> list[str]:
        """The columns beside the tasks' own, such as the validation loss of pretraining."""
        return [c for c in self.comparison.columns["column"].unique() if c not in (AVERAGE, *self.board.columns)]

    @cached_property
    def columns(self) -> list[str]:
        """What the table shows: the column on which arms are judged first; no average where there is one column."""
        average = [AVERAGE] * (len(self.board.average.parts) > 1)
        columns = [*average, *self.board.columns, *self.measures]
        return sorted(columns, key=lambda column: column != self.comparison.primary)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The leaderboard's frame, with the measures; in a block the best arm of the first column comes first."""
        table = self.board.table
        if not self.measures:
            return table
        arms = self.comparison.arms
        for measure in self.measures:
            mine = arms[arms["column"] == measure].drop_duplicates("arm").set_index("arm")
            names = {measure: "mean", f"{measure}_std": "deviation"}
            table = table.assign(**{name: table["arm"].map(mine[source]) for name, source in names.items()})
        if self.columns[0] in self.measures:
            up = self.columns[0] in self.lowest_is_best
            blocks = [block.sort_values(self.columns[0], ascending=up, kind="stable") for _, block in blocks_of(table)]
            table = pd.concat(blocks, ignore_index=True)
        return table

    @cached_property
    def waiting(self) -> list[str]:
        """The arms of which nothing has run, where something has of others."""
        known = self.table[self.columns].notna().any(axis=1)
        return list(self.table.loc[~known, "arm"]) if known.any() else []

    @cached_property
    def by_contrasts(self) -> bool:
        """Whether contrasts that the experiment names are what its first sentence tells; some must be testable."""
        contrasts = self.comparison.of("declared")
        named = self.comparison.assessed and self.board.protocol.contrasts
        return bool(named) and (contrasts.empty or bool((contrasts["why"] != APART).any()))

    @cached_property
    def lowest_is_best(self) -> set[str]:
        """The columns of which the lowest value is the best."""
        return {one.column for block in self.comparison.assessed for one in block.estimates if one.lowest_is_best}

    @cached_property
    def contrasts(self) -> pd.DataFrame:
        """VERDICT_COLUMNS: each arm less the reference of its block, or less the arm that it was converted from."""
        return self.comparison.of("reference", "conversion")

    def of_block(self, key: BlockKey) -> pd.DataFrame:
        """The contrasts of a block's arms."""
        return self.contrasts[(self.contrasts[BLOCK] == list(key)).all(axis=1)]

    def deviations(self, column: str) -> dict[str, float]:
        """By arm, the standard deviation over independent seeds in a column; of fewer than three there is none."""
        mine = self.comparison.arms[self.comparison.arms["column"] == column]
        return dict(zip(mine["arm"], mine["deviation"], strict=True))

    @cached_property
    def averages(self) -> pd.DataFrame:
        """Every convention of averaging, as `tables.board.averages` has them."""
        return averages(self.board)

    @cached_property
    def by_place(self) -> dict[tuple[str, str], dict[Any, Any]]:
        """The contrasts that there are, by arm and column."""
        return {(row["arm"], row["column"]): row for row in self.contrasts.to_dict("records")}

    def converted(self, key: BlockKey) -> dict[str, str]:
        """The arms of a block that are compared with the arm of whose checkpoint they were made, and that arm."""
        conversions = self.comparison.of("conversion")
        mine = conversions[(conversions[BLOCK] == list(key)).all(axis=1)]
        return dict(zip(mine["arm"], mine["reference"], strict=True))

    def smallest(self, key: BlockKey) -> dict[str, float]:
        """The median over a block's arms of the smallest difference that would have had a verdict, by column."""
        medians = self.of_block(key).dropna(subset="smallest").groupby("column")["smallest"].median()
        return dict(zip(medians.index, medians, strict=True))

    @cached_property
    def incomplete(self) -> set[tuple[str, str]]:
        """Arm and measure, where fewer pretraining seeds are measured than planned, or than another arm has."""
        measured = self.comparison.arms[self.comparison.arms["column"].isin(self.measures)]
        planned = max(self.board.cells["pretraining_seed"].nunique(), measured["n"].max())
        fewer = measured[measured["n"] < planned]
        return set(zip(fewer["arm"], fewer["column"], strict=True))

    @cached_property
    def constants(self) -> dict[str, float]:
        """The score of the majority class, or of a constant, by column, where it is known."""
        known = self.comparison.columns.dropna(subset="constant")
        return dict(zip(known["column"], known["constant"], strict=True))


def covers(frame: pd.DataFrame) -> list[str]:
    """What the intervals of arms with these `origin` and `seeds` cover, each once."""
    random = (frame["origin"] == "scratch") & (frame["seeds"] == "fine-tuning")
    return [COVERS[kind] for kind in dict.fromkeys(frame["seeds"].mask(random, "random"))]


def verdict(findings: Findings) -> str:
    """What came of the contrasts named beforehand; without any, for each block who differs, or what could be seen."""
    if findings.by_contrasts:
        return _of_contrasts(findings, findings.comparison.of("declared"))
    keys = [key for key, _ in blocks_of(findings.table)]
    names = block_names(keys)
    said = {names[key]: text for key in keys if (text := _of_block(findings, key))}
    return " ".join(said.values() if len(said) < 2 else (f"{title(name)}: {text}" for name, text in said.items()))


def _of_contrasts(findings: Findings, contrasts: pd.DataFrame) -> str:
    """Each contrast that the experiment names, on the column that decides."""
    primary, named = findings.columns[0], len(findings.board.protocol.contrasts)
    tested = contrasts[(contrasts["column"] == primary) & (contrasts["why"] == "")]
    told, rest = tested[tested["verdict"] != ""].to_dict("records"), tested[tested["verdict"] == ""].to_dict("records")
    whole = len(told) < MANY
    said = [f"the arm `{r['arm']}` is {r['verdict']} than `{r['reference']}` ({_shown(r, whole)})" for r in told]
    alike = [f"`{r['arm']}` and `{r['reference']}`" for r in rest]
    said += [f"not shown to differ: {', '.join(alike)}"] * bool(alike)
    apart = ((contrasts["column"] == primary) & (contrasts["why"] == APART)).sum()
    has_run = ~contrasts["why"].isin(["", APART]) & ~contrasts["why"].str.startswith(NO_RUN)
    untested = ((contrasts["column"] == primary) & has_run).sum()
    said += [f"{untested} cannot be tested yet (`statistics.md` says why)"] * bool(untested)
    waiting = named - len(tested) - apart - untested
    said += [f"{waiting} {'waits' if waiting == 1 else 'wait'} for further runs"] * bool(waiting)
    said += [f"{apart} cannot be tested, because {APART}"] * bool(apart)
    where = _where(findings, primary)
    return f"{where[0].upper()}{where[1:]}, of {named} contrast{'s' * (named > 1)} named beforehand: {'; '.join(said)}."


def pair_of(row: Mapping[Any, Any]) -> str:
    """What a contrast is the difference of."""
    return f"{row['arm']} - {row['reference']}"


def _of_block(findings: Findings, key: BlockKey) -> str:
    """A sentence for each arm that others of the block are compared with."""
    mine, converted = findings.of_block(key), findings.converted(key)
    mine = mine[mine["column"] == findings.columns[0]]
    by_reference = mine.groupby("reference", sort=False)
    return " ".join(_of_reference(findings, rows, set(rows["arm"]) <= set(converted)) for _, rows in by_reference)


def _of_reference(findings: Findings, mine: pd.DataFrame, converted: bool) -> str:
    primary = findings.columns[0]
    where = _where(findings, primary)
    unit, decimals = "nats" if primary in findings.lowest_is_best else "points", decimals_of(primary)
    who, told, tested = f"`{mine['reference'].iloc[0]}`", mine[mine["verdict"] != ""], mine[mine["why"] == ""]
    arms, it = (f"arm that was converted from {who}", "it") if converted else ("arm", who)
    reasons = {re.sub(r" \([^)]*\)$", "", why.split("; ")[0]): None for why in mine.loc[mine["why"] != "", "why"]}
    if len(told):
        source = ", from whose checkpoint it was converted" if converted and len(told) == 1 else ""
        sides = [_told(told[told["verdict"] == side], f"{side} than {who}{source}") for side in ("better", "worse")]
        rest = len(tested) - len(told)
        others = f"; the other {'arm is' if rest == 1 else f'{rest} arms are'} not shown to differ" if rest else ""
        return f"{where[0].upper()}{where[1:]}, {' and '.join(filter(None, sides))}{others}{_left(mine, reasons)}."
    if len(tested):
        ends = dict.fromkeys(number(end, decimals) for end in (tested["smallest"].min(), tested["smallest"].max()))
        by_arm = ", depending on the arm" * (len(ends) > 1)
        seen = f"to be shown, a difference had to reach {' to '.join(ends)} {unit}{by_arm}"
        return f"No {arms} is shown to differ from {it} {where}; {seen}{_left(mine, reasons)}."
    return f"No {arms} can be told from {it} {where}: {next(iter(reasons))}."


def _where(findings: Findings, column: str) -> str:
    where = f"on {title_of(column)}" if column in COLUMNS else f"on the {column.replace('_', ' ')}"
    return where + f" of {len(findings.board.average.parts)} columns" * (column == AVERAGE)


def _left(arms: pd.DataFrame, reasons: Iterable[str]) -> str:
    """How many of a block's arms were not tested, and why."""
    number = int((arms["why"] != "").sum())
    return f"; {number} arm{'s' * (number > 1)} cannot be compared yet ({', '.join(reasons)})" if number else ""


def _told(arms: pd.DataFrame, side: str) -> str:
    if arms.empty:
        return ""
    shown = [f"`{row['arm']}` ({_shown(row, len(arms) < MANY)})" for row in arms.to_dict("records")]
    # An arm's name may be a word of English: `none` is better.
    return f"the arm {shown[0]} is {side}" if len(arms) == 1 else f"the arms {', '.join(shown)} are {side}"


def _shown(row: Mapping[Any, Any], whole: bool = True) -> str:
    """A difference, and its interval if it is `whole`."""
    numbers = (f"{row[name]:+z.{decimals_of(row['column'])}f}" for name in ("difference", "low", "high"))
    difference, low, high = numbers
    return difference + " nats" * ("loss" in row["column"]) + f", 95% interval {low} to {high}" * whole
