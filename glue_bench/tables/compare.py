"""Which arms of an experiment differ: stored predictions are read once, for every table."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pandas as pd

from glue_bench.data.metrics import decide
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.errors import UserError
from glue_bench.stats.outcomes import Outcomes, effective_number, unit_of
from glue_bench.stats.power import Costs
from glue_bench.stats.verdicts import Group, arms_frame, assess, columns_frame, declared, equivalence, verdicts
from glue_bench.tables.board import AVERAGE, BLOCK, FACTS, NOT_AVERAGED, Board, floors, main_scores
from glue_bench.tables.results import Arrays, Results

CONVERSION = "conversion"
OF_CONTRASTS = ["difference", "low", "high", "verdict", "smallest"]
"""What a leaderboard's frame has of the contrasts of a column."""
MEASURES = {"validation_loss": "loss", "swap_1": "share"}
"""Measures of a pretrained encoder that are compared as columns, and their metrics."""
LEAST_DOCUMENTS = 5
"""Of fewer documents (as many of equal size) a variance is hardly known; pieces of at most 512 tokens count then."""
OTHER_PIECES = "it was measured on other pieces of text"
OTHER_EPOCH = "a run is reported after an earlier epoch than the last, of which its predictions are"
NO_LABELS = (
    "there are no gold labels beside the predictions: the same `glue-bench run` again adds them and runs no cell twice"
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that is known of which arms differ.

    Every arm but a reference is in exactly one of the groups `assessed`: with the arms that were made from one
    checkpoint and the arm that it came from, where the arm was converted, else with its block. `contrasts` has
    VERDICT_COLUMNS behind a `kind`: "reference" within blocks, "conversion" for what a conversion costs, which ranks
    nothing, and "declared" for those that the protocol names. `arms` and `columns` are the frames of `stats.verdicts`;
    in all of them `origin` and `shape` are those of the (first) arm. `primary` is the column by which arms are judged,
    the first one of each group.
    """

    board: Board
    primary: str
    assessed: tuple[Group, ...]
    contrasts: pd.DataFrame
    arms: pd.DataFrame
    columns: pd.DataFrame

    def of(self, *kinds: str) -> pd.DataFrame:
        """The contrasts of these kinds, without their kind."""
        return self.contrasts[self.contrasts["kind"].isin(kinds)].drop(columns="kind").reset_index(drop=True)


def compare(board: Board) -> Comparison:
    """Read every prediction once, and make every contrast; of several experiments together there are none."""
    primary: str = board.protocol.primary
    if primary == AVERAGE and len(board.average.parts) == 1:  # the average of a single column is that column
        primary = next(iter(board.average.parts))
    groups = groups_of(board)
    outcomes = chain(read_outcomes(board), read_measures(board)) if len(board.results.plans) == 1 else ()
    assessed = assess(outcomes, groups, primary)
    found, arms = verdicts(assessed), arms_frame(assessed)
    kinds = found["origin"].map({CONVERSION: "conversion"}).fillna("reference")
    named = declared(assessed, [(a, b) for a, b in board.protocol.contrasts]).assign(kind="declared")
    frames = [*(found[kinds == kind].assign(kind=kind) for kind in ("reference", "conversion")), named]
    frames = [frame for frame in frames if len(frame)] or frames[:1]  # an empty one would leave numbers no numbers
    contrasts = pd.concat(frames, ignore_index=True)[["kind", *found]]
    arms = arms[(arms["origin"] != CONVERSION) | (arms["arm"] != arms["shape"])].reset_index(drop=True)
    # Groups of converted arms are named by their source; what is known of them stands at the blocks of the arms.
    blocks = board.table.set_index("arm")[BLOCK]
    members = [(one.origin, one.shape, arm) for one in groups for arm in one.arms[one.origin == CONVERSION :]]
    homes = pd.DataFrame(members, columns=[*BLOCK, "arm"]).join(blocks.add_prefix("of_"), on="arm")
    columns = columns_frame(assessed, found).merge(homes.drop(columns="arm").drop_duplicates(), on=BLOCK)
    return Comparison(
        board=board,
        primary=primary,
        assessed=tuple(assessed),
        contrasts=contrasts.assign(**{name: contrasts["arm"].map(blocks[name]) for name in BLOCK}),
        arms=arms.assign(**{name: arms["arm"].map(blocks[name]) for name in BLOCK}),
        columns=columns.assign(**{name: columns.pop(f"of_{name}") for name in BLOCK}),
    )


def contrasts_frame(comparison: Comparison, equivalent: float | None = None, pairs: bool = False) -> pd.DataFrame:
    """All contrasts by their `kind`, also those of all `pairs`; with a margin `equivalent` its test beside each.

    Raises:
        UserError: the margin is not above 0.
    """
    if equivalent is not None and not equivalent > 0:
        raise UserError(f"--equivalent {equivalent:g}: give a difference above 0, such as 0.5")
    every = verdicts(comparison.assessed if pairs else (), every=True).assign(kind="pair")
    frame = pd.concat([comparison.contrasts, every], ignore_index=True) if len(every) else comparison.contrasts
    frame = frame.astype({"agree": "Int64", "paired": "Int64"})
    return frame if equivalent is None else equivalence(frame, equivalent)


def leaderboard_frame(comparison: Comparison) -> pd.DataFrame:
    """What CSV and JSON have: a row for each arm, as the board's table, then one for each baseline.

    Measures of pretraining have their mean and deviation, too; where one decides, its best arm comes first in a block.
    Behind the scores `data_source` and `partial_tasks` (separated by `;`), shape, start, parameters, and `reference`;
    then for each column `<col>_` and difference, low, high, verdict and smallest. The origin of a baseline is
    "baseline".
    """
    board, contrasts, columns = comparison.board, comparison.of("reference", "conversion"), score_columns(comparison)
    table, keys = board.table, [*BLOCK, "arm"]
    for measure in columns:
        if measure not in (AVERAGE, *board.columns):
            mine = comparison.arms[comparison.arms["column"] == measure].drop_duplicates("arm").set_index("arm")
            means, deviations = (table["arm"].map(mine[name]) for name in ("mean", "deviation"))
            table = table.assign(**{measure: means, f"{measure}_std": deviations})
    if columns[0] == "validation_loss":
        blocks = [block.sort_values(columns[0], kind="stable") for _, block in table.groupby(BLOCK, sort=False)]
        table = pd.concat(blocks)
    made = {"data_source": board.results.data_source, "partial_tasks": ";".join(board.results.partial_tasks)}
    table = pd.concat([table, floors(board).assign(origin="baseline", variant="")], ignore_index=True)
    table = table.drop(columns=FACTS).assign(**made).join(table[FACTS])
    table = table.merge(contrasts[[*keys, "reference"]].drop_duplicates(), on=keys, how="left")
    for column in columns:
        mine = contrasts[contrasts["column"] == column].set_index(keys)[OF_CONTRASTS]
        table = table.join(mine.add_prefix(f"{column}_"), on=keys)
    return table.astype({f"{column}_n": "Int64" for column in board.columns})


def score_columns(comparison: Comparison) -> list[str]:
    """The columns in the order of a page: the one that decides, the measures, the average, the tasks."""
    board = comparison.board
    measures = [name for name in comparison.columns["column"].unique() if name not in (AVERAGE, *board.columns)]
    columns = [*measures, *([AVERAGE] if len(board.average.parts) > 1 else []), *board.columns]
    return sorted(columns, key=lambda column: column != comparison.primary)


def measured_costs(results: Results) -> Costs:
    """Seconds that one pretraining of an arm took, and those of one fine-tuning seed; means, 0 if none.

    A seed is a run on every task at each of its learning rates. Runs of a rate search of pretraining are left out: they
    are shorter, and made once for all seeds.
    """
    trained = results.pretrainings[results.pretrainings["finished"] & ~results.pretrainings["is_search"]]
    runs = results.cells[results.cells["finished"]]
    each = runs.groupby(["task", "learning_rate"])["seconds"].mean().sum() if len(runs) else 0.0
    return Costs(float(np.mean(trained["seconds"])) if len(trained) else 0.0, float(each))


def groups_of(board: Board) -> list[Group]:
    """Arms that are compared: those of a block, and those that were converted from one arm's checkpoint, with it.

    The latter's origin is CONVERSION and its shape the name of the arm that the checkpoint was made for: the pretrained
    one that starts from it too, the reference if there are several.
    """
    variants, chosen = board.results.arms["variant"].loc[board.arms], board.protocol.reference
    sources, groups = dict[str, str](), dict[tuple[str, str], Group]()
    for _, started in board.table.groupby("start", sort=False) if len(board.results.plans) == 1 else ():
        pretrained = variants[variants.index.isin(started.loc[started["origin"] == "pretrained", "arm"])]
        converted = started.loc[started["origin"].isin(["grafted", "adapted"]), "arm"]
        if len(pretrained):
            sources |= dict.fromkeys(converted, reference_arm(pretrained, chosen))
    for key, block in board.table.groupby(BLOCK, sort=False):
        origin, shape = map(str, key)
        own = tuple(arm for arm in block["arm"] if arm not in sources)
        if own:
            reference = reference_arm(variants[variants.index.isin(own)], chosen)
            groups[origin, shape] = Group(origin=origin, shape=shape, arms=own, reference=reference)
        for source in (sources[arm] for arm in block["arm"] if arm in sources):
            arms = (source, *(arm for arm in board.table["arm"] if sources.get(arm) == source))
            groups[CONVERSION, source] = Group(origin=CONVERSION, shape=source, arms=arms, reference=source)
    return list(groups.values())


def reference_arm(variants: pd.Series, chosen: str | None = None) -> str:
    """The arm that others are compared with, of variants by their arms, in the experiment's order.

    It is `chosen` (`protocol.reference`) if that is among them, else the first whose variant is `add`, else the first.
    """
    if chosen in variants.index:
        return str(chosen)
    return str([*variants.index[variants == "add"], *variants.index][0])


def read_outcomes(board: Board) -> Iterator[Outcomes]:
    """The runs of every column that has any, in the board's order; predictions are read as they are needed."""
    arms, scores = tuple(board.table["arm"]), main_scores(board.runs)
    data = board.cells.set_index("cell_id")["data"]
    for column in board.columns:
        task, split = COLUMNS[column]
        runs = scores[(scores["task"] == task) & (scores["split"] == split)]
        if runs.empty:
            continue
        why, predictions, labels = _predictions(column, runs, data[runs["cell_id"].iloc[0]], board.results.arrays)
        yield Outcomes(
            column=column,
            task=task,
            metric=TASKS[task].metrics[0],
            arms=arms,
            owners=runs["arm"].map(arms.index).to_numpy(),
            pretraining_seeds=runs["pretraining_seed"].fillna(0).to_numpy(int),
            seeds=runs["seed"].to_numpy(),
            scores=runs["value"].to_numpy(),
            predictions=predictions,
            labels=labels,
            why=dict.fromkeys(runs.loc[~runs["last"], "arm"], OTHER_EPOCH) | why,
            averaged=column != NOT_AVERAGED or board.columns == (NOT_AVERAGED,),
        )


def _predictions(
    column: str, runs: pd.DataFrame, digest: str, arrays: Arrays
) -> tuple[dict[str, str], np.ndarray, np.ndarray]:
    """Why some arms' runs cannot be compared, predictions (runs, examples; of theirs zeros) and labels (examples,)."""
    task, split = COLUMNS[column]
    try:
        labels, problem = arrays.gold(task, digest).get(split), NO_LABELS
    except UserError as error:
        labels, problem = None, str(error)
    if labels is None:
        return dict.fromkeys(runs["arm"], problem), np.empty((0, 0)), np.empty(0)
    why: dict[str, str] = {}
    predictions = np.zeros((len(runs), len(labels)), np.float64 if task == "stsb" else np.int64)
    for row, (arm, cell) in enumerate(zip(runs["arm"], runs["cell_id"], strict=True)):
        try:
            logits = arrays.logits(cell).get(split, np.empty((0, 1)))
        except UserError as error:
            why[arm] = str(error)
            continue
        if len(logits) != len(labels) or not np.isfinite(logits).all():
            why[arm] = "a run has diverged, or predicted another number of rows"
        else:
            predictions[row] = decide(task, logits)
    return why, predictions, labels


def read_measures(board: Board) -> Iterator[Outcomes]:
    """What the board's arms have learnt in pretraining, measured without a task: a run for each pretraining.

    Arms are compared on the same pieces of text.
    """
    arms, pretrainings = tuple(board.table["arm"]), board.results.pretrainings
    done = pretrainings[~pretrainings["is_search"] & pretrainings["arm"].isin(arms)]
    sums, damaged = list[dict[str, np.ndarray]](), dict[str, str]()
    for arm, name in zip(done["arm"], done["pretraining_id"], strict=True):
        try:
            sums.append(_sums(board.results.arrays, name))
        except UserError as error:
            sums.append({})
            damaged[arm] = str(error)
    for measure, metric in MEASURES.items():
        has = [measure in mine for mine in sums]
        runs, pieces = done[has], [mine[measure] for mine in sums if measure in mine]
        if pieces:
            counts = pieces[0][1]
            same = np.array([np.array_equal(counts, mine) for _, mine in pieces])
            yield Outcomes(
                column=measure,
                task=measure,
                metric=metric,
                arms=arms,
                owners=runs["arm"].map(arms.index).to_numpy(),
                pretraining_seeds=runs["seed"].to_numpy(int),
                seeds=np.zeros(len(runs), int),
                scores=np.array([unit_of(metric) * hits.sum() / mine.sum() for hits, mine in pieces]),
                predictions=np.stack([hits if a else 0.0 * counts for (hits, _), a in zip(pieces, same, strict=True)]),
                labels=counts,
                why=damaged | dict.fromkeys(runs.loc[~same, "arm"], OTHER_PIECES),
                averaged=False,
                finetuned=False,
            )


def _sums(arrays: Arrays, pretraining_id: str) -> dict[str, np.ndarray]:
    """By measure the numerators and denominators of pieces of text, (2, pieces), of a pretraining that has some.

    Pieces of one document are alike, so that documents take their place in a loss, where enough of them count.
    """
    sums, losses = arrays.pieces(pretraining_id)
    if losses:  # of all validation text, of which the other measures take a part
        places = np.unique(losses["document"], return_inverse=True)[1]
        if effective_number(np.bincount(places, losses["count"])) < LEAST_DOCUMENTS:
            places = np.arange(len(places))
        sums["validation_loss"] = np.stack([np.bincount(places, losses[name]) for name in ("loss_sum", "count")])
    return sums
