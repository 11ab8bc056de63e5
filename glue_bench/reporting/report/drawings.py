"""The figures of a report, from the frames of its tables; each says in a sentence what it shows."""

from collections.abc import Iterator

import pandas as pd

from glue_bench.reporting.figures.forest import forest_of_pairs, forests
from glue_bench.reporting.figures.losses import loss_curves, tokens_to_loss
from glue_bench.reporting.figures.scores import COSTS, cost_against_score, costs_frame, score_by_steps
from glue_bench.reporting.findings import Findings, pair_of, title_of
from glue_bench.reporting.report.parts import Drawing
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION
from glue_bench.tables.arms import block_names, blocks_of, title
from glue_bench.tables.averages import AVERAGE
from glue_bench.tables.numbers import decimals_of, number

BANDS = "A line is the mean over the seeds of pretraining, a band goes from the lowest to the highest seed."


def difference_figures(findings: Findings) -> Iterator[Drawing]:
    """A panel for each block, reference and column: every arm less the reference, in one order for all columns."""
    known = findings.contrasts[~findings.contrasts["arm"].isin(findings.waiting)]
    blocks = blocks_of(known)
    names = block_names(key for key, _ in blocks)
    groups = [
        (key, block, str(who), rows) for key, block in blocks for who, rows in block.groupby("reference", sort=False)
    ]
    for key, block, reference, rows in groups:
        apart = [
            *(names[key].split(", ") if len(blocks) > 1 else ()),
            *([reference] * (block["reference"].nunique() > 1)),
        ]
        columns = [column for column in findings.columns if (rows["column"] == column).any()]
        for column, figure in zip(columns, forests(rows, columns), strict=True):
            mine = rows[rows["column"] == column]
            where = f"{title(names[key])}: " * (len(blocks) > 1)
            yield Drawing(
                name="-".join(["difference", *apart, column]),
                title=f"{where}{title_of(column)}, differences from {reference}",
                description=_told(mine),
                drawn=figure,
            )


def contrast_figures(findings: Findings) -> Iterator[Drawing]:
    """A panel of the contrasts that the experiment names, on the column that decides."""
    column, named = findings.columns[0], findings.comparison.of("declared")
    mine = named[(named["column"] == column) & named["difference"].notna()]
    if len(mine):
        pairs = mine.assign(arm=[pair_of(row) for row in mine.to_dict("records")])
        yield Drawing(
            name=f"contrasts-{column}",
            title=f"{title_of(column)}, contrasts named beforehand",
            description=f"Contrasts named beforehand: the first arm less the second. {_told(pairs)}",
            drawn=forest_of_pairs(pairs, column),
        )


def loss_figures(findings: Findings, budgets: pd.DataFrame) -> Iterator[Drawing]:
    """What pretraining has learnt by when."""
    losses, reference = findings.results.losses, reference_of(findings)
    ends = budgets.groupby("arm")["validation_loss"].mean().dropna().sort_values()
    named = [f"{arm} ends at {number(loss, 3)} nats" for arm, loss in ends.items()]
    yield Drawing(
        name="loss",
        title="Loss of pretraining",
        description=f"{BANDS} {named[0]}, {named[-1]}." if named else BANDS,
        drawn=loss_curves(losses, arms_of(findings), reference),
    )
    if reference in set(budgets.dropna(subset="tokens_to_reference")["arm"]):
        yield Drawing(
            name="tokens-to-loss",
            title=f"Tokens to the last loss of {reference}",
            description="A small dot is a seed of pretraining, a large one the mean. Further to the left is faster.",
            drawn=tokens_to_loss(budgets, reference),
        )


def steps_figures(findings: Findings, steps: pd.DataFrame) -> Iterator[Drawing]:
    """Scores against steps of pretraining, a panel for each column."""
    for column in (each for each in findings.columns if each in steps):
        yield Drawing(
            name=f"steps-{column}",
            title=f"{title_of(column)} against steps of pretraining",
            description="A line is the mean over seeds, a band one standard deviation over three or more fine-tuning "
            "seeds; runs of several pretraining seeds have none.",
            drawn=score_by_steps(
                _with_spread(findings, steps, column), column, arms_of(findings), reference_of(findings)
            ),
        )


def _with_spread(findings: Findings, steps: pd.DataFrame, column: str) -> pd.DataFrame:
    """The frame with a standard deviation only where it is that of enough runs that are independent of each other."""
    counted = [f"{each}_n" for each in (findings.board.columns if column == AVERAGE else [column])]
    several = findings.board.cells.groupby("arm")["pretraining_seed"].nunique() > 1
    told = (steps[counted].min(axis=1) >= LEAST_FOR_DEVIATION) & ~steps["arm"].map(several)
    return steps.assign(**{f"{column}_std": steps[f"{column}_std"].where(told)})


def cost_figures(findings: Findings, budgets: pd.DataFrame) -> Iterator[Drawing]:
    """The score that decides against what an arm costs, by each measure of cost in which arms differ."""
    column = findings.columns[0]
    spread = findings.table["arm"].map(findings.deviations(column))
    costs = costs_frame(findings.table.assign(**{f"{column}_std": spread}), budgets)
    lowest = column in findings.lowest_is_best
    for cost in COSTS:
        known = costs.dropna(subset=[cost, column]).set_index("arm")
        if known[cost].nunique() > 1:
            cheapest = known.index[known[cost] == known[cost].min()]
            best = known[column].idxmin() if lowest else known[column].idxmax()
            yield Drawing(
                name=f"cost-{cost}",
                title=f"{title_of(column)} against {cost}",
                description=f"The least is that of {', '.join(cheapest)}; {best} has the "
                f"{'lowest loss' if lowest else 'highest score'}.",
                drawn=cost_against_score(costs, cost, column, arms_of(findings), reference_of(findings)),
            )


def arms_of(findings: Findings) -> list[str]:
    """All arms in the experiment's order, by which they have their colours."""
    return findings.board.arms


def reference_of(findings: Findings) -> str:
    """The arm that the others are compared with; "" where none is."""
    return next(iter(findings.contrasts["reference"]), "")


def _told(contrasts: pd.DataFrame) -> str:
    """One column's panel in words."""
    if (contrasts["why"] != "").all():
        return f"No interval: {contrasts['why'].iloc[0].partition(' (')[0]}."  # without the arms' names
    said = []
    for verdict in ("better", "worse"):
        mine = contrasts[contrasts["verdict"] == verdict].to_dict("records")
        shown = [f"{row['arm']} ({row['difference']:+z.{decimals_of(row['column'])}f})" for row in mine]
        said += [f"{verdict.capitalize()}: {', '.join(shown)}."] if shown else []
    return " ".join(said) or "No arm is shown to differ."
