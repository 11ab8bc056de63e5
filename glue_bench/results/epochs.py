"""Which epoch of a run is reported, and by which value its learning rate competes."""

import math
from statistics import fmean

from glue_bench.config import HELD_OUT, Protocol
from glue_bench.data.tasks import TASKS
from glue_bench.records.record import Epoch, Record, Scores


def reported(record: Record, protocol: Protocol) -> Scores:
    """A run's validation scores, split -> metric -> value (0 to 1), after the epoch that the protocol reports."""
    if protocol.epoch == "last" or not record.history:
        return record.scores
    return _epoch(record, protocol).scores


def is_last(record: Record, protocol: Protocol) -> bool:
    """Whether the epoch that the protocol reports is the run's last, of which its stored predictions are."""
    return protocol.epoch == "last" or not record.history or _epoch(record, protocol) is record.history[-1]


def choosing_value(record: Record, protocol: Protocol) -> float:
    """The value (0 to 100) by which the run's rate competes: its main metric on the set that chooses.

    The mean over MNLI's two validation sets. NaN where the run has no such score, or an undefined one.
    """
    scores = record.scores
    if record.history and (protocol.epoch == "best" or protocol.choose_on == HELD_OUT):
        scores = _epoch(record, protocol).scores
    return _choosing(record, scores, protocol)


def points(value: float | None) -> float:
    """A stored score from 0 to 100; null, an undefined score, is NaN."""
    return math.nan if value is None else 100.0 * value


def _epoch(record: Record, protocol: Protocol) -> Epoch:
    history = record.history
    if protocol.epoch == "last":
        return history[-1]
    values = [_choosing(record, epoch.scores, protocol) for epoch in history]
    # The first of equals: an epoch that is no better has only cost time. An undefined score loses to any other.
    return history[max(range(len(values)), key=lambda i: (not math.isnan(values[i]), values[i], -i))]


def _choosing(record: Record, scores: Scores, protocol: Protocol) -> float:
    task = TASKS[record.cell.task]
    splits = [HELD_OUT] if protocol.choose_on == HELD_OUT else [name for name in task.columns if name in scores]
    values = [points(scores.get(split, {}).get(task.metrics[0])) for split in splits]
    return fmean(values) if values else math.nan
