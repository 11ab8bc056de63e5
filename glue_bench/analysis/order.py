"""How much does a model use the order of words? The intrinsic measures, on the text that is read here.

The swap test's chance is 50%, which an encoder without positions has exactly; the rises of the loss are then 0. See
`swap`, `shuffle` and `start` for the formulas.
"""

import math
from typing import Any

import pandas as pd

from glue_bench.analysis.intrinsic import intrinsic_sums
from glue_bench.analysis.measured import LeftOut, Measured, ratio_interval, share_interval
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.swap import DISTANCES
from glue_bench.analysis.text import HeldOut

LARGE = 2e7  # weights of the blocks from which on only neighbouring words are swapped, in fewer sequences
SEQUENCES, FEWER = 128, 16


def measure_order(subject: Subject) -> Measured:
    """order.swap.1 and its like, each with its 95% interval where it has one, and the frame `order`.

    Raises:
        LeftOut: there is no masked-LM head, or no text.
    """
    if subject.no_masks:
        raise LeftOut(subject.no_masks)
    assert subject.head is not None, "no_masks says so"
    weights = sum(weight.numel() for weight in subject.model.blocks.parameters())
    large = weights > LARGE
    text = HeldOut(subject.reading.packed(FEWER if large else SEQUENCES), subject.tokenizer)
    distances = DISTANCES[:1] if large else DISTANCES
    numbers: dict[str, Any] = {"sequences": len(text.probes)}
    rows = []
    for measure, sums in intrinsic_sums(subject.head, text, subject.positions, distances).items():
        kind, _, size = measure.rpartition("_")
        chance = math.nan if kind == "validation" else 0.5 if kind == "swap" else 0.0
        rows.append((measure, sums.value, sums.standard_error, chance, sums.n))
        interval = share_interval(sums) if kind == "swap" else ratio_interval(sums)
        for suffix, value in (("", sums.value), *([("_interval", interval)] if interval else [])):
            if size.isdecimal():
                numbers.setdefault(kind + suffix, {})[size] = value
            else:
                numbers[measure + suffix] = value
    if lacking := [str(distance) for distance in distances if str(distance) not in numbers.get("swap", {})]:
        reason = f"the text has no two words to swap at a distance of {', '.join(lacking)}"
        numbers["swap"] = numbers.get("swap", {}) | dict.fromkeys(lacking) | {"left_out": reason}
    numbers["chance"] = {"swap": 0.5, "shuffle": 0.0, "reverse": 0.0, "start": 0.0}
    frame = pd.DataFrame(rows, columns=["measure", "value", "standard_error", "chance", "n"])
    return Measured({"order": numbers}, {"order": frame})
