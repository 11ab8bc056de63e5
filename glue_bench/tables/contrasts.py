"""The contrasts of an experiment as a page, how far its scores spread, and how many seeds a difference takes."""

import numpy as np
import pandas as pd
from pandas import DataFrame

from glue_bench.errors import UserError
from glue_bench.stats.verdicts import Group, letters_frame
from glue_bench.tables.arms import block_names, blocks_of
from glue_bench.tables.compare import Comparison, contrasts_frame, seeds_frame
from glue_bench.tables.numbers import MISSING, banner, decimals_of, number
from glue_bench.tables.pages import against, explained, groups_shown, lowest_is_best, planned_contrasts
from glue_bench.tables.table import Column, Page, Table, with_legend

DECIMALS, LEAST_P = 6, 0.0001
FAMILIES = {"declared": "planned", "conversion": "conversion", "reference": "from reference"}
LEGEND = {
    "difference": "Difference: the first arm less the second, in points; of Val. loss in nats, where below 0 is "
    "better. Seeds agreeing: how many of the seeds have its sign.",
    "declared": "planned: named before the runs, p corrected by Holm for their number; cite those of the column that "
    "the first line names.",
    "reference": "from reference: every other arm less the reference, p times the number of arms; exploratory beside "
    "planned contrasts.",
    "conversion": "conversion: a converted arm less the arm whose checkpoint it was made from, p times the number of "
    "converted arms. It ranks nothing.",
    "interval": "95% interval: holds for all contrasts of its family and column together (Bonferroni). Holm may find a "
    "difference whose interval includes 0. No verdict: not shown to differ; the interval says which differences remain "
    "possible. `statistics.csv` has all contrasts, also those of other columns that have no verdict.",
    "p_equivalent": "Equivalent: the arms differ by less than the margin, by two one-sided tests, p times the family's "
    "number.",
}
"""What may stand in a table of contrasts, and the line that explains it."""
SPREAD = (
    "Standard deviations, in the unit of the column. Between pretrainings: of an arm beyond what the seed does to all "
    "arms; with one fine-tuning seed for each pretraining it includes fine-tuning. Over examples: of a difference, "
    "over other validation sets (for Val. loss documents) of this size; no number of seeds reduces it.",
)
LETTERS = ("Arms that share a letter cannot be told apart; an arm may have several letters.",)
CONTRAST = {
    **{"family": Column("Family"), "column": Column("Column"), "contrast": Column("Contrast")},
    **{"difference": Column("Difference", show=str), "interval": Column("95% interval", show=str)},
    **{"agreeing": Column("Seeds agreeing", show=str), "p_adjusted": Column("p (adjusted)", show=str)},
    **{"p_equivalent": Column("p (equivalent)", show=str), "verdict": Column("Verdict")},
}
DEVIATIONS = {
    "pretraining_deviation": "Between pretrainings",
    "finetuning_deviation": "Between fine-tunings",
    "example_deviation": "Over examples",
    "smallest": "Smallest difference",
}
TO_FIND = "A true difference of {:g} (points; of Val. loss nats), found with probability {:g}."
SEEDS = {
    **{"column": Column("Column"), "seeds": Column("Seeds of"), "pretraining_seeds": Column("Pretraining seeds", 0)},
    "finetuning_seeds": Column("Fine-tuning seeds for each", 0),
    **{"cost": Column("Cost of an arm", show="{:,.0f}".format), "why": Column("Why none")},
}
SEEDS_MEAN = (
    "Seeds of each arm with which its difference from the reference has a verdict, after the correction for all arms "
    "of the column. Experiments with the variances found here are drawn and judged as the verdicts are.",
    "Seeds of pretraining: intervals cover other pretrainings; the cheapest design is shown. Seeds of fine-tuning: of "
    "the same pretrained weights. Cost: in measured seconds of all tasks.",
)


def statistics_page(comparison: Comparison, equivalent: float | None = None, pairs: bool = False) -> Page:
    """The contrasts on the column that decides, those of others with a verdict, and how far scores spread.

    Raises:
        UserError: as `contrasts_frame`.
    """
    board, frame = comparison.board, contrasts_frame(comparison, equivalent, pairs)
    blocks, spreads = blocks_of(comparison.columns.dropna(subset="smallest")), []
    names = block_names(key for key, _ in blocks)
    deviations = {"column": Column("Column")} | {name: Column(text, show=str) for name, text in DEVIATIONS.items()}
    for key, columns in blocks:
        exact, rows = columns["column"].map(decimals_of), columns.assign(column=columns["column"].map(board.title_of))
        for name in DEVIATIONS:
            rows[name] = [number(value, digits) or MISSING for value, digits in zip(rows[name], exact, strict=True)]
        heading = f"Spread: {names[key]}" if len(blocks) > 1 else "Spread"
        spreads.append(Table(title=heading, frame=rows[list(deviations)], columns=deviations))
    letters = _letters(comparison, frame) if pairs else []
    return Page(
        title=f"Statistics: {board.results.experiment}",
        banner=banner(board.results.data_source),
        tables=(_contrasts(comparison, frame), *with_legend(letters, LETTERS), *with_legend(spreads, SPREAD)),
        data=frame,
        decimals=DECIMALS,
    )


def difference_page(comparison: Comparison, difference: float, power: float = 0.8) -> Page:
    """How many seeds a true difference takes, by simulation.

    Raises:
        UserError: nothing has run, or as `power_frame`.
    """
    board, frame = comparison.board, seeds_frame(comparison, difference, power)
    if frame.empty:
        where = board.results.folder
        raise UserError(f"{where}: nothing has run yet, so that no spread is known; run a part of the experiment first")
    shown, caption = frame.assign(column=frame["column"].map(board.title_of)), TO_FIND.format(difference, power)
    tables = [Table(title=heading, caption=caption, frame=_of_group(shown, group), columns=SEEDS)
              for heading, group in groups_shown(comparison).items()]  # fmt: skip
    return Page(
        title=f"Seeds needed: {board.results.experiment}",
        banner=banner(board.results.data_source),
        tables=tuple(with_legend(tables, SEEDS_MEAN)),
        data=frame,
        decimals=DECIMALS,
    )


def p_text(p: float) -> str:
    """Four decimals, and never 0."""
    if pd.isna(p):
        return MISSING
    return f"< {LEAST_P:.4f}" if p < LEAST_P else f"{p:.4f}"


def _contrasts(comparison: Comparison, frame: DataFrame) -> Table:
    chosen, rows = _chosen(comparison, frame), []
    for row in chosen.to_dict("records"):
        known, exact = row["why"] == "", f"+z.{decimals_of(row['column'])}f"
        texts = {
            "family": f"{FAMILIES[row['kind']]} ({row['family']})",
            "column": comparison.board.title_of(row["column"]),
            "contrast": f"{row['arm']} - {row['reference']}",
            "difference": MISSING if pd.isna(row["difference"]) else f"{row['difference']:{exact}}",
            "interval": f"{row['low']:{exact}} to {row['high']:{exact}}" if known else MISSING,
            "agreeing": f"{row['agree']} of {row['paired']}" if known else MISSING,
            "verdict": row["verdict"] or ("equivalent" if row.get("equivalent") else row["why"]),
        }
        rows.append(texts | {name: p_text(row[name]) for name in ("p_adjusted", "p_equivalent") if name in row})
    columns = {name: column for name, column in CONTRAST.items() if name != "p_equivalent" or name in frame}
    fields = [against(comparison, group) for group in groups_shown(comparison).values()]
    caption = "; ".join(filter(None, [*fields, planned_contrasts(comparison)]))
    table = Table(frame=DataFrame(rows, columns=list(columns)), columns=columns, caption=caption and f"{caption}.")
    return explained([table], LEGEND, chosen["kind"].unique())[0]


def _chosen(comparison: Comparison, frame: DataFrame) -> DataFrame:
    """Planned contrasts, what conversions cost, and every other arm less the reference, of each column the best first.

    All of the column that decides, and those of others with a verdict.
    """
    named, primary = {(a, b) for a, b in comparison.board.protocol.contrasts}, frame["column"] == comparison.primary
    pairs = [pair in named for pair in zip(frame["arm"], frame["reference"], strict=True)]
    again = (frame["kind"] == "reference") & primary & np.array(pairs, bool)
    shown = frame[(primary | (frame["verdict"] != "")) & ~again]
    rank = shown["difference"].where(shown["column"].isin(lowest_is_best(comparison)), -shown["difference"])
    place = shown["column"].map(list(dict.fromkeys(shown["column"])).index)
    best_first = shown.assign(rank=rank, place=place).sort_values(["place", "rank"], kind="stable")
    parts = {kind: best_first if kind == "reference" else shown for kind in FAMILIES}
    return pd.concat([part[part["kind"] == kind] for kind, part in parts.items()], ignore_index=True)[list(frame)]


def _of_group(frame: DataFrame, group: Group) -> DataFrame:
    return frame[(frame["origin"] == group.origin) & (frame["shape"] == group.shape)]


def _letters(comparison: Comparison, frame: DataFrame) -> list[Table]:
    """For each group its arms, with means and letters in every column."""
    letters, tables = letters_frame(comparison.assessed, frame[frame["kind"] == "pair"]), []
    letters["text"] = [
        f"{number(row['mean'], decimals_of(row['column']))} {row['letters']}" for row in letters.to_dict("records")
    ]
    for heading, group in groups_shown(comparison).items():
        mine = _of_group(letters, group)
        wide, names = mine.pivot(index="arm", columns="column", values="text"), list(dict.fromkeys(mine["column"]))
        wide = wide.fillna(MISSING).loc[list(dict.fromkeys(mine["arm"])), names].reset_index()
        columns = {name: Column(comparison.board.title_of(name), show=str) for name in names}
        columns, heading = {"arm": Column("Arm"), **columns}, f"All pairs: {heading}" if heading else "All pairs"
        tables.append(Table(title=heading, frame=wide, columns=columns))
    return tables
