"""Draw the README's picture from results/study, for light and for dark pages: `python docs/picture.py [FOLDER]`."""

import sys
from pathlib import Path

from glue_bench.reporting.figures.losses import loss_curves
from glue_bench.reporting.figures.save import svg_text
from glue_bench.reporting.figures.style import DARK, LIGHT
from glue_bench.tables.results import read_results

DOCS = Path(__file__).parent
TITLE = "Validation loss of {} arms by tokens of pretraining, four seeds each"
DESCRIPTION = "untied and relative positions end lowest, add and concatenation follow, none stays far above."


def draw(folder: Path) -> None:
    """Write `loss.svg` and `loss-dark.svg` into the folder. Each has its own colours: a page cannot set them."""
    losses = read_results(DOCS.parent / "results" / "study").losses
    title = TITLE.format(losses["arm"].nunique())
    opening, _, rest = svg_text(loss_curves(losses, reference="add"), title, DESCRIPTION).partition(">")
    for name, colours in (("loss.svg", LIGHT), ("loss-dark.svg", DARK)):
        variables = "".join(f"--fig-{key}:{colour};" for key, colour in colours.items())
        style = f"<style>:root{{{variables}}}text{{font-family:sans-serif}}</style>"
        (folder / name).write_text(f"{opening}>{style}{rest}\n", encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images")
