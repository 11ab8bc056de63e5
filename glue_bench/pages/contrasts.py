"""The contrasts of an experiment as a page, how far its scores spread, and how many seeds a difference takes."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from pandas import DataFrame

from glue_bench.board.compare import Comparison
from glue_bench.board.results import Results
from glue_bench.data.measures import MEASURES
from glue_bench.errors import UserError
from glue_bench.pages.leaderboard import caption, groups_shown, of_group
from glue_bench.pages.numbers import MISSING, number, p_text
from glue_bench.pages.page import Column, Page, Table, with_legend
from glue_bench.stats.power import Costs, power_frame
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION, Group, equivalence

DECIMALS = 6
POWER = 0.8
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
    "p_equivalent": "Equivalent: the whole interval lies within the margin. p (equivalent): two one-sided tests, each "
    "at half of 5%, corrected as the interval is.",
    "smallest": "Standard deviations, in the unit of the column. Between pretrainings: of an arm beyond what the seed "
    "does to all arms; with one fine-tuning seed for each pretraining it includes fine-tuning. Over examples: of a "
    "difference, over other validation sets (for Val. loss documents) of this size; no number of seeds reduces it.",
    "few runs": "Of two seeds p rests on the spread of all arms together, and is too small where one arm varies more "
    "than the others: take three. – cannot be told from 0 by so few runs and rows; as a smallest difference, it is "  # noqa: RUF001
    "more than scores can differ.",
    "finetuning_seeds": "Seeds of each arm with which its difference from the reference has a verdict, after the "
    "correction for all arms of the column. Experiments with the variances found here are drawn and judged as the "
    "verdicts are.",
    "cost": "Seeds of pretraining: intervals cover other pretrainings; the cheapest design is shown. Seeds of "
    "fine-tuning: of the same pretrained weights. Cost: in measured seconds of all tasks.",
}
"""What may stand in these tables, and the line that explains it."""
CONTRAST = {
    **{name: Column(name.capitalize()) for name in ("family", "column", "contrast")},
    "difference": Column("Difference", show=str),
    "interval": Column("95% interval", show=str),
    "agreeing": Column("Seeds agreeing", show=str),
    "p_adjusted": Column("p (adjusted)", show=str),
    "p_equivalent": Column("p (equivalent)", show=str),
    "verdict": Column("Verdict"),
}
SPREADS = {
    "column": Column("Column"),
    "pretraining": Column("Between pretrainings", show=str),
    "finetuning": Column("Between fine-tunings", show=str),
    "examples": Column("Over examples", show=str),
    "smallest": Column("Smallest difference", show=str),
}
TO_FIND = "A true difference of {:g} (points; of Val. loss nats), found with probability {:g}."
DESIGN = {
    "column": Column("Column"),
    "seeds": Column("Seeds of"),
    "pretraining_seeds": Column("Pretraining seeds", 0),
    "finetuning_seeds": Column("Fine-tuning seeds for each", 0),
    "cost": Column("Seconds of an arm", show="{:,.0f}".format),
    "why": Column("Why none"),
}


def asked_page(
    comparison: Comparison, equivalent: float | None, difference: float | None, power: float | None
) -> Page:
    """The `difference_page` where there is a difference, else the `statistics_page`; UserError for what is of both."""
    if difference is None:
        if power is not None:
            raise UserError("--power is the probability of seeing a --difference: give both")
        return statistics_page(comparison, equivalent)
    if equivalent is not None:
        raise UserError("--difference stands alone, without --equivalent")
    return difference_page(comparison, difference, POWER if power is None else power)


def statistics_page(comparison: Comparison, equivalent: float | None = None) -> Page:
    """The contrasts on the column that decides, those of others with a verdict, and how far scores spread.

    Its data are all contrasts, with a margin `equivalent` its test beside each; raises as `equivalence`.
    """
    frame = (
        comparison.contrasts
        if equivalent is None
        else equivalence(comparison.contrasts, equivalent)
    )
    return Page(
        title=f"Statistics: {comparison.board.results.experiment}",
        banner=comparison.board.results.banner,
        tables=(contrasts_table(comparison, frame), *spread_tables(comparison, frame)),
        data=frame,
        decimals=DECIMALS,
    )


def spread_tables(comparison: Comparison, frame: DataFrame) -> list[Table]:
    """How far scores spread, a table for each group of arms that has contrasts in `frame`, with a legend."""
    spreads = [
        _spread(comparison, group, heading) for heading, group in groups_shown(comparison).items()
    ]
    spreads = [table for table in spreads if len(table.frame)]
    spreads = [
        replace(table, title=f"Spread: {table.title}" if spreads[1:] else "Spread")
        for table in spreads
    ]
    seeds = frame.loc[frame["why"] == "", ["n_arm", "n_reference"]].to_numpy(int)
    is_few = (seeds < LEAST_FOR_DEVIATION).any()
    return with_legend(spreads, LEGEND, ["few runs"] if is_few else [])


def _spread(comparison: Comparison, group: Group, heading: str) -> Table:
    """The deviations of each tested column of a group, a dash where they are not told from 0."""
    rows: list[tuple[str, ...]] = []
    notes: set[str] = set()
    contrasts = of_group(comparison.contrasts, group)
    smallest = contrasts.groupby("column")["smallest"].median()
    for one in group.estimates:
        least, exact = smallest.get(one.column, math.nan), MEASURES[one.column].decimals
        if not math.isnan(least):
            of_finetuning = sum(scores.finetuning_variance for scores in one.tasks.values())
            variances = (
                one.pretraining_variance,
                of_finetuning,
                one.example_variance(group.reference),
            )
            values = [math.sqrt(value) if value > 0 else math.nan for value in variances]
            if least <= one.limits[1] - one.limits[0]:
                values.append(least)
            else:  # more than scores can differ
                values.append(math.nan)
                notes.add("few runs")
            texts = (number(value, exact) or MISSING for value in values)
            rows.append((comparison.board.title_of(one.column), *texts))
    frame = DataFrame(rows, columns=list(SPREADS))
    return Table(title=heading, frame=frame, columns=SPREADS, notes=frozenset(notes))


def difference_page(comparison: Comparison, difference: float, power: float) -> Page:
    """How many seeds a true difference takes; raises UserError where nothing has run, and as `power_frame`."""
    board, results = comparison.board, comparison.board.results
    frame = power_frame(comparison.assessed, difference, power, measured_costs(results))
    if frame.empty:
        where = results.folder
        raise UserError(
            f"{where}: nothing has run yet, so that no spread is known; run a part of the experiment first"
        )
    shown = frame.assign(column=frame["column"].map(board.title_of))
    target = TO_FIND.format(difference, power)
    tables = [Table(title=heading, caption=target, frame=of_group(shown, group), columns=DESIGN)
              for heading, group in groups_shown(comparison).items()]  # fmt: skip
    title = f"Seeds needed: {results.experiment}"
    tables = with_legend(tables, LEGEND)
    return Page(
        title=title, banner=results.banner, tables=tuple(tables), data=frame, decimals=DECIMALS
    )


def contrasts_table(comparison: Comparison, frame: DataFrame) -> Table:
    """Planned contrasts, what conversions cost, and every other arm less the reference, of each column the best first.

    All of the column that decides, and those of others with a verdict.
    """
    named = {(a, b) for a, b in comparison.board.protocol.contrasts}
    primary = frame["column"] == comparison.primary
    pairs = [pair in named for pair in zip(frame["arm"], frame["reference"], strict=True)]
    again = (frame["kind"] == "reference") & primary & np.array(pairs, bool)
    kinds = dict(list(frame[(primary | (frame["verdict"] != "")) & ~again].groupby("kind")))
    by_column = kinds.pop("reference").groupby("column", sort=False) if "reference" in kinds else ()
    ranked = [contrasts.sort_values("difference", ascending=MEASURES[str(column)].lowest_is_best, kind="stable")
              for column, contrasts in by_column]  # fmt: skip
    chosen = pd.concat([*(kinds[kind] for kind in FAMILIES if kind in kinds), *ranked, frame[:0]])
    rows = []
    for row in chosen.to_dict("records"):
        known, exact = row["why"] == "", f"+z.{MEASURES[row['column']].decimals}f"
        texts = {
            "family": f"{FAMILIES[row['kind']]} ({row['family']})",
            "column": comparison.board.title_of(row["column"]),
            "contrast": f"{row['arm']} - {row['reference']}",
            "difference": MISSING if pd.isna(row["difference"]) else f"{row['difference']:{exact}}",
            "interval": f"{row['low']:{exact}} to {row['high']:{exact}}" if known else MISSING,
            "agreeing": f"{row['agree']} of {row['paired']}" if known else MISSING,
            "verdict": row["verdict"] or ("equivalent" if row.get("equivalent") else row["why"]),
        }
        rows.append(
            texts
            | {name: p_text(row[name]) for name in ("p_adjusted", "p_equivalent") if name in row}
        )
    columns = {
        name: column for name, column in CONTRAST.items() if name != "p_equivalent" or name in frame
    }
    summary = caption(comparison, groups_shown(comparison).values())
    table = Table(frame=DataFrame(rows, columns=list(columns)), columns=columns, caption=summary)
    return with_legend([table], LEGEND, chosen["kind"].unique())[0]


def measured_costs(results: Results) -> Costs:
    """Seconds that one pretraining of an arm took, and those of one fine-tuning seed; means, 0 if none.

    A seed is a run on every task at each of its learning rates. Runs of a rate search of pretraining are left out: they
    are shorter, and made once for all seeds.
    """
    trained = results.pretrainings[
        results.pretrainings["finished"] & ~results.pretrainings["is_search"]
    ]
    runs = results.cells[results.cells["finished"]]
    each = runs.groupby(["task", "learning_rate"])["seconds"].mean().sum()
    return Costs(float(trained["seconds"].mean()) if len(trained) else 0.0, float(each))
