"""The learning rate that a search chooses for a pretraining."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from glue_bench.records.values import PretrainingRecord


class RateChoice(NamedTuple):
    """The rate that a search chooses, None if every rate diverged; and the losses in words."""

    rate: float | None
    losses: str


def choose_rate(searches: Iterable[PretrainingRecord]) -> RateChoice:
    """Choose the rate with the lowest mean validation loss over the seeds; the lowest, if equal."""
    losses_by_rate: defaultdict[float, list[float]] = defaultdict(list)
    for record in searches:
        loss = math.inf if record.validation_loss is None else record.validation_loss
        losses_by_rate[record.pretraining.settings.learning_rate].append(loss)
    means = {}
    texts = []
    for rate, losses in sorted(losses_by_rate.items()):
        mean = sum(losses) / len(losses)
        if math.isfinite(mean):
            means[rate] = mean
        texts.append(f"{rate:g}: {mean:.4f}" if math.isfinite(mean) else f"{rate:g}: diverged")
    best = min(means, key=means.__getitem__, default=None)
    return RateChoice(best, ", ".join(texts))
