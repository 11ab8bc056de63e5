"""Made-up frames with the columns of the real ones, and a look at what a figure shows."""

import numpy as np
import pandas as pd
from matplotlib.text import Text

from glue_bench.reporting.figures.style import paper_style

COLUMNS = ("average", "cola", "sst2", "mrpc", "stsb", "qqp", "mnli_m", "mnli_mm", "qnli", "rte", "validation_loss")
WORDS = ("concat-projection", "untied", "relative", "disentangled", "sinusoidal", "rotary")


def arm_names(arms):
    return ["add", *(f"{word}-{option}" for option in ("1", "half", "tables") for word in WORDS)][:arms]


def contrasts(arms=4, columns=2, reference="add"):
    """Each fourth difference is missing, each fifth has no interval, and verdicts come in turn."""
    rows = [
        {"column": column, "arm": arm, "reference": reference, "difference": place - 3.0, "place": place}
        for column in COLUMNS[:columns]
        for place, arm in enumerate(arm_names(arms)[1:])
    ]
    frame = pd.DataFrame(rows)
    frame["difference"] = frame["difference"].where(frame.index % 4 != 3)
    half = frame["difference"].abs() * np.where(frame["place"] % 2 == 1, 0.5, 1.5)
    half = (half + 0.1).where(frame.index % 5 != 4)
    verdict = np.where(frame["place"] % 2 == 1, np.where(frame["difference"] > 0, "better", "worse"), "")
    return frame.assign(low=frame["difference"] - half, high=frame["difference"] + half, verdict=verdict)


def losses(arms=2, seeds=1, points=5):
    rows = [
        (arm, seed, step, 1000 * step, 9.0 / step + place, 10.0 / step + place + 0.1 * seed, 1.0)
        for place, arm in enumerate(arm_names(arms))
        for seed in range(1, seeds + 1)
        for step in range(1, points + 1)
    ]
    names = ["arm", "pretraining_seed", "step", "tokens", "train_loss", "validation_loss", "seconds"]
    return pd.DataFrame(rows, columns=names)


def budgets(arms=2, seeds=2):
    """The last arm never comes so far; the second misses it with its first seed."""
    frame = pd.DataFrame(
        {"arm": arm, "tokens": 8e6, "tokens_to_reference": 8e6 - 1e6 * place - 1e5 * seed, "place": place, "seed": seed}
        for place, arm in enumerate(arm_names(arms))
        for seed in range(seeds)
    )
    missed = (frame["place"] == arms - 1) | ((frame["place"] == 1) & (frame["seed"] == 0))
    frame["tokens_to_reference"] = frame["tokens_to_reference"].mask(missed).round().astype("Int64")
    return frame.assign(flops_per_token=2.5e6, tokens_per_second=1e4)


def scores(arms=2, steps=(1000, 2000)):
    return pd.DataFrame(
        {"arm": arm, "steps": step, "average": 40.0 + place + step / 1000, "average_std": 0.5, "parameters": 10**place}
        for place, arm in enumerate(arm_names(arms))
        for step in steps
    )


def read(figure):
    """Draw a figure without pixels; all texts in it, of which each must lie inside the figure."""
    with paper_style():
        figure.draw_without_rendering()
    axes = [axis for one in figure.axes for axis in (one.xaxis, one.yaxis)]
    beyond = [label for axis in axes for label in _beyond(axis)]
    found = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible() and text not in beyond]
    page = figure.bbox.padded(2)
    for text in found:
        box = text.get_window_extent()
        assert page.count_contains(box.corners()) == 4, f"'{text.get_text()}' is cut off: {box} of {page}"
    return [text.get_text() for text in found]


def _beyond(axis):
    """Labels of ticks that are not drawn: those outside the axis."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [tick.label1 for tick in ticks if not low <= tick.get_loc() <= high]
