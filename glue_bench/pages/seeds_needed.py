"""The page of how many seeds it takes to find a true difference."""

from glue_bench.board.compare import Comparison
from glue_bench.board.results import Results
from glue_bench.errors import UserError
from glue_bench.pages.headings import heading_of
from glue_bench.pages.page import Column, Page, Table, with_legend
from glue_bench.stats.power import Costs, power_frame
from glue_bench.stats.verdicts import Group

DESIGN_CAPTION = (
    "A true difference of {:g} (points; of Val. loss nats), found with probability {:g}."
)
DESIGN_COLUMNS = {
    "column": Column("Column"),
    "seeds": Column("Seeds of"),
    "pretraining_seeds": Column("Pretraining seeds", 0),
    "finetuning_seeds": Column("Fine-tuning seeds for each", 0),
    "cost": Column("Seconds of an arm", show="{:,.0f}".format),
    "why": Column("Why none"),
}
SEEDS_LEGEND = {
    "finetuning_seeds": "Seeds of each arm with which its difference from the reference has a "
    "verdict, after the correction for all arms of the column. Experiments with the variances "
    "found here are drawn and judged as the verdicts are.",
    "cost": "Seeds of pretraining: intervals cover other pretrainings; the cheapest design is "
    "shown. Seeds of fine-tuning: of the same pretrained weights. Cost: in measured seconds of all "
    "tasks.",
}


def difference_page(comparison: Comparison, difference: float, power: float) -> Page:
    """Make the page of the cheapest designs that find a true difference.

    Args:
        comparison: The groups of arms and the variances that were found.
        difference: The true difference, in points, or in nats for a loss.
        power: The probability with which it has a verdict.

    Returns:
        A page with a table for each group; as CSV and JSON it has the `power_frame`.

    Raises:
        UserError: all arms are finished models; nothing has run yet; or the difference or the power
            is out of range.
    """
    board = comparison.board
    results = board.results

    groups = [group for group in comparison.assessed if not has_single_runs(group)]
    if len(groups) < len(comparison.assessed) and not groups:
        raise UserError(
            f"{results.folder}: its arms are finished models, whose scores no seed changes; "
            "glue-bench statistics without --difference says what their examples show"
        )

    designs = power_frame(groups, difference, power, measured_costs(results))
    if designs.empty:
        raise UserError(
            f"{results.folder}: nothing has run yet, so that no spread is known; "
            "run a part of the experiment first"
        )

    titled = designs.assign(column=designs["column"].map(board.titles))
    tables = []
    for group in comparison.largest_groups:
        table = Table(
            title=heading_of(group, comparison),
            caption=DESIGN_CAPTION.format(difference, power),
            frame=group.rows_of(titled),
            columns=DESIGN_COLUMNS,
        )
        tables.append(table)

    return Page(
        title=f"Seeds needed: {results.experiment}",
        banner=results.banner,
        tables=tuple(with_legend(tables, SEEDS_LEGEND)),
        data=designs,
        decimals=6,
    )


def has_single_runs(group: Group) -> bool:
    """Say whether the arms of a group are compared by their examples alone."""
    return bool(group.estimates) and all(estimate.single_runs for estimate in group.estimates)


def measured_costs(results: Results) -> Costs:
    """Give the mean seconds of a pretraining of an arm, and of one fine-tuning seed; 0 if none ran.

    A fine-tuning seed is a run on every task at each of its learning rates. Runs of a rate search
    of pretraining are left out: they are shorter, and made once for all seeds.
    """
    is_trained = results.pretrainings["finished"] & ~results.pretrainings["is_search"]
    trained = results.pretrainings[is_trained]
    pretraining_seconds = float(trained["seconds"].mean()) if len(trained) else 0.0
    runs = results.cells[results.cells["finished"]]
    finetuning_seconds = runs.groupby(["task", "learning_rate"])["seconds"].mean()
    return Costs(
        pretraining=pretraining_seconds,
        finetuning=float(finetuning_seconds.sum()),
    )
