"""Which arms of an experiment differ: stored predictions are read once, for every table."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.metrics import decide
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.errors import UserError
from glue_bench.stats.estimates import Estimate
from glue_bench.stats.outcomes import AVERAGE, Outcomes, Runs, unit_of
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION, Group, assess, verdicts
from glue_bench.tables.board import BLOCK, FACTS, Board, floors, main_scores

CONVERSION = "conversion"
OF_CONTRASTS = ["difference", "low", "high", "verdict", "smallest"]
"""What a leaderboard's frame has of the contrasts of a column."""
METRIC_OF = {"validation_loss": "loss", "swap_1": "share"}
"""Measures of a pretrained encoder that are compared as columns, and their metrics."""
DIVERGED = "a run has diverged, or predicted another number of rows"
OTHER_PIECES = "it was measured on other pieces of text"
OTHER_EPOCH = "a run is reported after an earlier epoch than the last, of which its predictions are"
NO_LABELS = (
    "there are no gold labels beside the predictions: the same `glue-bench run` again adds them and runs no cell twice"
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that is known of which arms differ.

    `assessed` are the blocks, and behind them, of the kind CONVERSION, for each arm from whose checkpoint others were
    made that arm and the converted ones, which are in no block. `contrasts` has VERDICT_COLUMNS: of the kind
    "reference" within blocks, CONVERSION for what a conversion costs, which ranks nothing, and "declared" for those
    that the protocol names; behind its kind the `origin` and `shape` of the (first) arm. `primary` is the column by
    which arms are judged, the first one of each group.
    """

    board: Board
    primary: str
    assessed: tuple[Group, ...]
    contrasts: pd.DataFrame

    def of(self, *kinds: str) -> pd.DataFrame:
        """The contrasts of these kinds."""
        return self.contrasts[self.contrasts["kind"].isin(kinds)]

    def estimates(self, column: str) -> list[Estimate]:
        """What is known of a column, by group."""
        return [one for group in self.assessed for one in group.estimates if one.column == column]


def compare(board: Board) -> Comparison:
    """Read every prediction once, and make every contrast."""
    primary: str = board.protocol.primary
    if primary == AVERAGE and len(board.average.parts) == 1:  # the average of a single column is that column
        primary = next(iter(board.average.parts))
    assessed = assess(chain(read_outcomes(board), read_measures(board)), groups_of(board), primary)
    contrasts = verdicts(assessed, board.protocol.contrasts)
    blocks = contrasts[["arm"]].join(board.table.set_index("arm")[BLOCK], on="arm")[BLOCK]
    return Comparison(
        board=board,
        primary=primary,
        assessed=tuple(assessed),
        contrasts=pd.concat([contrasts[["kind"]], blocks, contrasts.drop(columns="kind")], axis=1),
    )


def groups_of(board: Board) -> list[Group]:
    """Arms that are compared: those of a block, and those that were converted from one arm's checkpoint, with it.

    That arm is the pretrained one that starts from the checkpoint, too, the reference if there are several.
    """
    table, variants, sources = board.table, board.results.arms["variant"].loc[board.arms], dict[str, str]()

    def reference(arms: pd.Series) -> str:
        return reference_arm(variants[variants.index.isin(arms)], board.protocol.reference)

    for _, started in table.groupby("start", sort=False):
        pretrained = started.loc[started["origin"] == "pretrained", "arm"]
        if len(pretrained):
            converted = started.loc[started["origin"].isin(["grafted", "adapted"]), "arm"]
            sources |= dict.fromkeys(converted, reference(pretrained))
    source = table["arm"].map(sources)
    blocks = [block["arm"] for _, block in table[source.isna()].groupby(BLOCK, sort=False)]
    conversions = [(arm, *made) for arm, made in table["arm"].groupby(source, sort=False)]
    return [
        *(Group(arms=tuple(block), reference=reference(block)) for block in blocks),
        *(Group(arms=arms, reference=arms[0], kind=CONVERSION) for arms in conversions),
    ]


def reference_arm(variants: pd.Series, chosen: str | None = None) -> str:
    """The arm that others are compared with, of variants by their arms, in the experiment's order.

    It is `chosen` (`protocol.reference`) if that is among them, else the first whose variant is `add`, else the first.
    """
    if chosen in variants.index:
        return str(chosen)
    return str([*variants.index[variants == "add"], *variants.index][0])


def leaderboard_frame(comparison: Comparison) -> pd.DataFrame:
    """What `export.leaderboard` returns, and CSV and JSON have; where a loss decides, it orders the arms of a block."""
    board = comparison.board
    contrasts = comparison.of("reference", CONVERSION)
    columns = score_columns(comparison)
    table, results = board.table, board.results
    for measure in (name for name in columns if name in METRIC_OF):
        means, deviations = dict[str, float](), dict[str, float]()
        for one in comparison.estimates(measure)[::-1]:  # the source of a conversion has the values of its block
            means |= one.means
            if one.blocked and one.arms:
                of_arms = zip(one.arms, one.by_block().std(axis=1, ddof=1).tolist(), strict=True)
                deviations |= {arm: value for arm, value in of_arms if one.seeds[arm] >= LEAST_FOR_DEVIATION}
        added = {measure: table["arm"].map(means), f"{measure}_std": table["arm"].map(deviations).astype(float)}
        table = table.assign(**added)
    if columns[:1] == ["validation_loss"]:
        blocks = [block.sort_values(columns[0], kind="stable") for _, block in table.groupby(BLOCK, sort=False)]
        table = pd.concat(blocks)
    table = pd.concat([table, floors(board).assign(origin="baseline", variant="")], ignore_index=True)
    made = {"data_source": results.data_source, "partial_tasks": ";".join(results.partial_tasks)}
    table = table.drop(columns=FACTS).assign(**made).join(table[FACTS])
    table = table.merge(contrasts[["arm", "reference"]].drop_duplicates(), on="arm", how="left")
    for column in columns:
        of_column = contrasts[contrasts["column"] == column].set_index("arm")[OF_CONTRASTS]
        table = table.join(of_column.add_prefix(f"{column}_"), on="arm")
    return table.astype({f"{column}_n": "Int64" for column in board.columns})


def score_columns(comparison: Comparison) -> list[str]:
    """The columns in the order of a page: the one that decides, the measures, the average, the tasks."""
    board = comparison.board
    measures = [name for name in METRIC_OF if comparison.estimates(name)]
    columns = [*measures, *([AVERAGE] if len(board.average.parts) > 1 else []), *board.columns]
    return sorted(columns, key=lambda column: column != comparison.primary)


def read_outcomes(board: Board) -> Iterator[Outcomes]:
    """The runs of every column that has any, in the board's order; predictions are read as they are needed.

    Predictions of an arm that cannot be compared are zeros.
    """
    scores, results = main_scores(board.runs), board.results
    for column in board.columns:
        task, split = COLUMNS[column]
        runs = scores[(scores["task"] == task) & (scores["split"] == split)]
        if runs.empty:
            continue
        why: dict[str, str] = dict.fromkeys(runs.loc[~runs["last"], "arm"], OTHER_EPOCH)
        try:
            gold, problem = results.gold(task).get(split), NO_LABELS
        except UserError as error:
            gold, problem = None, str(error)
        if gold is None:
            why, gold = dict.fromkeys(runs["arm"], problem), np.empty(0)
        predictions = np.zeros((len(runs), len(gold)), np.float64 if TASKS[task].is_regression else np.int64)
        for row, (arm, cell) in enumerate(zip(runs["arm"], runs["cell_id"], strict=True)) if len(gold) else ():
            try:
                logits = results.logits(cell).get(split, np.empty((0, 1)))
            except UserError as error:
                why[arm] = str(error)
                continue
            if len(logits) == len(gold) and np.isfinite(logits).all():
                predictions[row] = decide(task, logits)
            else:
                why[arm] = DIVERGED
        yield _outcomes(board, column, TASKS[task].metrics[0], runs, predictions=predictions, labels=gold, why=why)


def read_measures(board: Board) -> Iterator[Outcomes]:
    """What the board's arms have learnt in pretraining, measured without a task: a run for each pretraining.

    Arms are compared on the same pieces of text.
    """
    done = board.results.pretrainings
    done = done[done["finished"] & ~done["is_search"] & done["arm"].isin(board.arms)]
    done = done.assign(pretraining_seed=done["seed"], seed=0)
    sums, damaged = list[dict[str, np.ndarray]](), dict[str, str]()
    for arm, name in zip(done["arm"], done["pretraining_id"], strict=True):
        try:
            sums.append(board.results.sums(name))
        except UserError as error:
            sums.append({})
            damaged[arm] = str(error)
    for measure, metric in METRIC_OF.items():
        pieces = [each[measure] for each in sums if measure in each]
        if pieces:
            runs, counts = done[[measure in each for each in sums]], pieces[0][1]
            runs = runs.assign(value=[unit_of(metric) * hits.sum() / own.sum() for hits, own in pieces])
            same = np.array([np.array_equal(counts, own) for _, own in pieces])
            why = damaged | dict.fromkeys(runs.loc[~same, "arm"], OTHER_PIECES)
            hits = np.stack([hits if alike else 0.0 * counts for (hits, _), alike in zip(pieces, same, strict=True)])
            yield _outcomes(board, measure, metric, runs, predictions=hits, labels=counts, why=why)


def _outcomes(board: Board, column: str, metric: str, runs: pd.DataFrame, **facts: Any) -> Outcomes:
    """The runs of a column, with their arm, seeds and `value`; columns of one task share them."""
    arms = tuple(board.table["arm"])
    seeds = runs["pretraining_seed"].fillna(0).to_numpy(int)
    owners = runs["arm"].map(arms.index).to_numpy()
    return Outcomes(
        column=column,
        task=COLUMNS[column][0] if column in COLUMNS else column,
        metric=metric,
        arms=arms,
        runs=Runs(owners, seeds, runs["seed"].to_numpy(), runs["value"].to_numpy()),
        averaged=column in board.average.parts,
        **facts,
    )
