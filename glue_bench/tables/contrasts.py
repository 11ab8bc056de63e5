"""The contrasts of an experiment as a page, how far its scores spread, and how many seeds a difference takes."""

import numpy as np
import pandas as pd
from pandas import DataFrame

from glue_bench.errors import UserError
from glue_bench.stats.power import power_frame
from glue_bench.stats.verdicts import Group, letters_frame
from glue_bench.tables.board import BLOCK
from glue_bench.tables.compare import Comparison, contrasts_frame, measured_costs
from glue_bench.tables.pages import block_names, caption, explained, groups_shown
from glue_bench.tables.table import MISSING, Column, Page, Table, decimals_of, number, with_legend

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
    "pretraining_deviation": Column("Between pretrainings", show=str),
    "finetuning_deviation": Column("Between fine-tunings", show=str),
    "example_deviation": Column("Over examples", show=str),
    "smallest": Column("Smallest difference", show=str),
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
    known, columns = comparison.columns.dropna(subset="smallest"), {"column": Column("Column"), **DEVIATIONS}
    exact, rows = known["column"].map(decimals_of), known.assign(column=known["column"].map(board.title_of))
    for name in DEVIATIONS:
        rows[name] = [number(value, digits) or MISSING for value, digits in zip(known[name], exact, strict=True)]
    blocks = {(str(origin), str(shape)): block for (origin, shape), block in rows.groupby(BLOCK, sort=False)}
    headings = {key: f"Spread: {name}" if len(blocks) > 1 else "Spread" for key, name in block_names(blocks).items()}
    spreads = [Table(title=headings[key], frame=block[[*columns]], columns=columns) for key, block in blocks.items()]
    letters = _letters(comparison, frame) if pairs else []
    return Page(
        title=f"Statistics: {board.results.experiment}",
        banner=board.results.banner,
        tables=(_contrasts(comparison, frame), *with_legend(letters, LETTERS), *with_legend(spreads, SPREAD)),
        data=frame,
        decimals=DECIMALS,
    )


def difference_page(comparison: Comparison, difference: float, power: float = 0.8) -> Page:
    """How many seeds a true difference takes, by simulation.

    Raises:
        UserError: nothing has run, or as `power_frame`.
    """
    board, results = comparison.board, comparison.board.results
    frame = power_frame(comparison.assessed, difference, power, measured_costs(results))
    if frame.empty:
        where = results.folder
        raise UserError(f"{where}: nothing has run yet, so that no spread is known; run a part of the experiment first")
    shown, asked = frame.assign(column=frame["column"].map(board.title_of)), TO_FIND.format(difference, power)
    tables = [Table(title=heading, caption=asked, frame=_of_group(shown, group), columns=SEEDS)
              for heading, group in groups_shown(comparison).items()]  # fmt: skip
    title, shown_tables = f"Seeds needed: {results.experiment}", tuple(with_legend(tables, SEEDS_MEAN))
    return Page(title=title, banner=results.banner, tables=shown_tables, data=frame, decimals=DECIMALS)


def _contrasts(comparison: Comparison, frame: DataFrame) -> Table:
    """Planned contrasts, what conversions cost, and every other arm less the reference, of each column the best first.

    All of the column that decides, and those of others with a verdict.
    """
    named, primary = {(a, b) for a, b in comparison.board.protocol.contrasts}, frame["column"] == comparison.primary
    pairs = [pair in named for pair in zip(frame["arm"], frame["reference"], strict=True)]
    again = (frame["kind"] == "reference") & primary & np.array(pairs, bool)
    chosen = frame[(primary | (frame["verdict"] != "")) & ~again & frame["kind"].isin(FAMILIES)]
    is_loss, families, places = chosen["column"].str.contains("loss"), list(FAMILIES), list(chosen["column"].unique())
    chosen = chosen.assign(
        family_place=chosen["kind"].map(families.index),
        place=chosen["column"].map(places.index).where(chosen["kind"] == "reference", 0),
        rank=chosen["difference"].where(is_loss, -chosen["difference"]).where(chosen["kind"] == "reference", 0.0),
    ).sort_values(["family_place", "place", "rank"], kind="stable")
    rows = []
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
    told = caption(comparison, groups_shown(comparison).values())
    table = Table(frame=DataFrame(rows, columns=list(columns)), columns=columns, caption=told)
    return explained([table], LEGEND, chosen["kind"].unique())[0]


def p_text(p: float) -> str:
    """Four decimals, and never 0."""
    if pd.isna(p):
        return MISSING
    return f"< {LEAST_P:.4f}" if p < LEAST_P else f"{p:.4f}"


def _of_group(frame: DataFrame, group: Group) -> DataFrame:
    return frame[(frame["origin"] == group.origin) & (frame["shape"] == group.shape)]


def _letters(comparison: Comparison, frame: DataFrame) -> list[Table]:
    """For each group its arms, with means and letters in every column."""
    letters, tables = letters_frame(comparison.assessed, frame[frame["kind"] == "pair"]), []
    letters["text"] = [f"{number(row['mean'], decimals_of(row['column']))} {row['letters']}"
                       for row in letters.to_dict("records")]  # fmt: skip
    for heading, group in groups_shown(comparison).items():
        mine = _of_group(letters, group)
        names, arms = list(mine["column"].unique()), list(mine["arm"].unique())
        wide = mine.pivot(index="arm", columns="column", values="text").fillna(MISSING).loc[arms, names].reset_index()
        columns = {"arm": Column("Arm")} | {name: Column(comparison.board.title_of(name), show=str) for name in names}
        title = f"All pairs: {heading}" if heading else "All pairs"
        tables.append(Table(title=title, frame=wide, columns=columns))
    return tables
