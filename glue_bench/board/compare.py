"""Which arms of an experiment differ: stored predictions are read once, for every table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import pandas as pd

from glue_bench.board.board import BLOCK_COLUMNS, Board, open_board
from glue_bench.board.column_runs import read_measure_runs, read_outcomes
from glue_bench.board.lag import lag_frame, reached_frame
from glue_bench.data.measures import AVERAGE, PRETRAINING_MEASURES
from glue_bench.data.tasks import scored_columns
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.verdicts import Group, assess, verdicts

CONVERSION_KIND = "conversion"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All contrasts between the arms of an experiment.

    Attributes:
        board: The leaderboard.
        primary: The column by which arms are judged, the first one of each group.
        assessed: First the blocks. Then, for each arm that others were converted from, a group of
            the kind CONVERSION_KIND with that arm and the converted ones, which are in no block.
        contrasts: VERDICT_COLUMNS, and behind `kind` the `origin` and `shape` of the (first) arm.
            The kind is "reference" within blocks, CONVERSION_KIND for what a conversion costs,
            which ranks nothing, and "declared" for the contrasts that the protocol names.
    """

    board: Board
    primary: str
    assessed: tuple[Group, ...]
    contrasts: pd.DataFrame

    def contrasts_of(self, *kinds: str) -> pd.DataFrame:
        """Return the contrasts of these kinds."""
        is_asked = self.contrasts["kind"].isin(kinds)
        return self.contrasts[is_asked]

    @cached_property
    def estimates(self) -> dict[str, list[ColumnEstimate]]:
        """Return the estimates of each column, in the order of the groups."""
        estimates: dict[str, list[ColumnEstimate]] = {}
        for group in self.assessed:
            for estimate in group.estimates:
                estimates.setdefault(estimate.column, []).append(estimate)
        return estimates

    @property
    def largest_groups(self) -> list[Group]:
        """Return the groups without the blocks that are a part of a group of conversions."""
        largest_groups: list[Group] = []
        for group in self.assessed:
            arms = set(group.arms)
            if not any(arms < set(larger.arms) for larger in self.assessed):
                largest_groups.append(group)
        return largest_groups

    @property
    def reference(self) -> str:
        """Return the arm that all others are compared with; an empty text without one."""
        return self.assessed[0].reference if self.assessed else ""

    @property
    def decay_share(self) -> float | None:
        """Return the part of a pretraining in which its learning rate falls."""
        pretraining = self.board.results.plan.experiment.pretraining
        return pretraining.decay_share if pretraining else None

    @cached_property
    def reached(self) -> pd.DataFrame:
        """Return the tokens at which each run first had each loss (`reached_frame`)."""
        return reached_frame(self.board.results.losses)

    @cached_property
    def lags(self) -> pd.DataFrame:
        """Return the lag of the reference behind every other arm (`lag_frame`)."""
        return lag_frame(self.board.results.losses, self.reference, self.decay_share)

    @cached_property
    def columns(self) -> list[str]:
        """Return the columns of a page: the primary one, the measures, the average, the tasks."""
        columns = [measure for measure in PRETRAINING_MEASURES if measure in self.estimates]
        if len(self.board.average.parts) > 1:
            columns.append(AVERAGE)
        columns += self.board.columns
        return sorted(columns, key=lambda column: column != self.primary)

    @cached_property
    def common_seed_columns(self) -> set[str]:
        """Return the columns whose contrasts leave out pretraining seeds that another arm lacks."""
        places = scored_columns()
        pretrainings = self.board.results.pretrainings
        is_counted = pretrainings["finished"] & ~pretrainings["is_search"]
        counted = pretrainings[is_counted].rename(columns={"seed": "pretraining_seed"})
        columns: set[str] = set()
        for column in self.board.columns + PRETRAINING_MEASURES:
            task, _ = places.get(column, ("", ""))
            runs = self.board.runs[self.board.runs["task"] == task] if task else counted
            seeds_of_arms = runs.groupby("arm")["pretraining_seed"]
            seeds = seeds_of_arms.nunique()
            for estimate in self.estimates.get(column, []):
                used = estimate.seeds
                if estimate.blocked and any(seeds[arm] > used[arm] for arm in estimate.arms):
                    columns.add(column)
        return columns


def open_comparison(path: str | Path, protocol: Sequence[str] = ()) -> Comparison:
    """Return the comparison of the experiment in a folder; it raises what `open_board` raises.

    Args:
        path: The folder.
        protocol: Changes of the protocol, KEY=VALUE.
    """
    return compare(open_board(path, protocol))


def compare(board: Board) -> Comparison:
    """Read every prediction once, and make every contrast."""
    primary: str = board.protocol.primary
    parts = list(board.average.parts)
    # The average of a single column is that column.
    if primary == AVERAGE and len(parts) == 1:
        primary = parts[0]
    columns = chain(read_outcomes(board), read_measure_runs(board))
    groups = groups_of(board)
    assessed = assess(columns, groups, primary)
    contrasts = verdicts(assessed, board.protocol.contrasts)
    blocks_by_arm = board.table.set_index("arm")[BLOCK_COLUMNS]
    with_blocks = contrasts[["arm"]].join(blocks_by_arm, on="arm")
    blocks = with_blocks[BLOCK_COLUMNS]
    rest = contrasts.drop(columns="kind")
    return Comparison(
        board=board,
        primary=primary,
        assessed=tuple(assessed),
        contrasts=pd.concat([contrasts[["kind"]], blocks, rest], axis=1),
    )


def groups_of(board: Board) -> list[Group]:
    """Return the groups of arms that are compared.

    First there are the blocks. Then, for each arm whose checkpoint other arms were converted from,
    there is a group of that arm and the converted ones. That arm is the pretrained arm that starts
    from the same checkpoint. If there are several such arms, it is their reference.
    """
    table = board.table
    variants = board.results.arms["variant"].loc[board.arms]

    def reference(arms: pd.Series) -> str:
        is_asked = variants.index.isin(arms)
        return reference_arm(variants[is_asked], board.protocol.reference)

    sources: dict[str, str] = {}
    for _, rows in table.groupby("start", sort=False):
        is_pretrained = rows["origin"] == "pretrained"
        is_converted = rows["origin"].isin(["grafted", "adapted"])
        pretrained = rows.loc[is_pretrained, "arm"]
        converted = rows.loc[is_converted, "arm"]
        if len(pretrained):
            sources |= dict.fromkeys(converted, reference(pretrained))
    source = table["arm"].map(sources)
    groups: list[Group] = []
    for _, block in table[source.isna()].groupby(BLOCK_COLUMNS, sort=False):
        groups.append(Group(arms=tuple(block["arm"]), reference=reference(block["arm"])))
    for name, arms in table["arm"].groupby(source, sort=False):
        groups.append(Group(arms=(str(name), *arms), reference=str(name), kind=CONVERSION_KIND))
    return groups


def reference_arm(variants: pd.Series, chosen: str | None = None) -> str:
    """Return the arm that others are compared with.

    It is `chosen` (`protocol.reference`) if this arm is among the variants, else the first arm
    whose variant is `add`, else the first arm.

    Args:
        variants: The variant of each arm. The index has the arms, in the order of the experiment.
        chosen: The arm that the protocol names.
    """
    if chosen in variants.index:
        return str(chosen)
    additive = variants.index[variants == "add"]
    return str(additive[0] if len(additive) else variants.index[0])


def uncontrolled_columns(comparison: Comparison, group: Group) -> set[str]:
    """Return the columns of scores that fail the positive control: `add` above `none`.

    If not even an encoder with positions is shown to be above an encoder without them, the scores
    are no evidence on positions. If the contrast of the two variants was planned, the planned
    contrast counts, and not the exploratory one.

    Args:
        comparison: The comparison.
        group: The arms. If one of the two variants is not among them, no column fails.
    """
    board = comparison.board
    variants = board.results.arms["variant"]
    contrasts = pd.concat([comparison.contrasts_of(kind) for kind in ("declared", group.kind)])
    contrasts = contrasts[contrasts["arm"].isin(group.arms)]
    least_gains: dict[str, float] = {}
    for contrast in contrasts.to_dict("records"):
        pair = (variants.get(contrast["arm"]), variants.get(contrast["reference"]))
        if pair == ("none", "add"):
            # The contrast is `none` minus `add`: the least gain of `add` is minus its upper end.
            least_gains.setdefault(contrast["column"], -contrast["high"])
        elif pair == ("add", "none"):
            least_gains.setdefault(contrast["column"], contrast["low"])
    failed: set[str] = set()
    for column in (AVERAGE, *board.columns):
        if column in least_gains and not least_gains[column] > 0:  # NaN if not tested
            failed.add(column)
    return failed
