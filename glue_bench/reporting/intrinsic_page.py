"""The measures of checkpoints as a page: one row per measure, one column per checkpoint."""

import pandas as pd

from glue_bench.reporting.formats import render_with
from glue_bench.reporting.grid import Grid, Page, PageSection
from glue_bench.tables.numbers import MISSING, number

DECIMALS = 4
TITLES = {
    "validation_loss": "Loss",
    "swap": "Swap test, {} apart (%)",
    "shuffle": "Rise, words in shuffled {}-grams",
    "reverse": "Rise, words reversed",
    "start": "Rise, start moved by {}",
}
NOTES = (
    "Value ± standard error over sequences. Loss: mean cross-entropy over masked tokens, in nats; rise: how much it "
    "rises when the same words stand in another order or at later positions. 0: no use is made of order or place.",
    "Swap test: how often the text as it was written is preferred to the same text with two words exchanged. 50% is "
    "chance, and what an encoder without positions has.",
    "Checkpoints with different tokenizers predict different tokens: their losses do not compare.",
)


def render_intrinsic(measured: pd.DataFrame, format: str) -> str:
    """The page in one of FORMATS; as CSV or JSON the frame alone."""
    names = tuple(dict.fromkeys(measured["checkpoint"]))
    shown = {}
    for row in measured.to_dict("records"):
        scale, decimals = (100, 1) if row["measure"].startswith("swap_") else (1, 3)
        error = number(scale * row["standard_error"], decimals)
        text = number(scale * row["value"], decimals) + (f" ± {error}" if error else "")
        shown[row["checkpoint"], row["measure"]] = text
    rows = [
        (measure_title(measure), *(shown.get((name, measure), MISSING) for name in names))
        for measure in dict.fromkeys(measured["measure"])
    ]
    grid = Grid.of(("Measure", *names), rows)
    page = Page(title="Intrinsic measures", sections=(PageSection(title="", grid=grid),), notes=NOTES)
    return render_with(page, measured, format, DECIMALS)


def measure_title(measure: str) -> str:
    """A measure's name as a table has it: `swap_2` is "Swap test, 2 apart (%)"."""
    kind, _, size = measure.rpartition("_")
    return TITLES[measure] if measure in TITLES else TITLES[kind].format(size)
