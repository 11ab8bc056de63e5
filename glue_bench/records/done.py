"""The one idea of "done": whether a record answers what its plan asks for. It reads no file.

A cell is done if it has a record, `replaced_start` finds nothing, and `lacks` finds nothing. A
record whose start was replaced counts nowhere: it is in no table, and the cell runs again. A record
that lacks something is in the tables, and the cell runs again if a submission takes it. A fact that
is not known contradicts nothing.
"""

from collections.abc import Mapping

from glue_bench.records.values import PretrainingRecord, Record, TaskFacts

START_REPLACED = "it started from weights of {start} that were made again later"
NO_MODEL = "its model is asked for, and is not there"
NO_PREDICTIONS = "its test predictions are asked for, and are not there"
OTHER_DIAGNOSTIC = "it has no predictions of the AX that the data have now"


def replaced_start(
    record: Record, records: Mapping[str, Record], pretrainings: Mapping[str, PretrainingRecord]
) -> str | None:
    """Find the job that has made other weights since a cell started from it.

    Args:
        record: the record of the cell.
        records: the records of the cells that the cell may have started from, by id.
        pretrainings: the records of the pretrainings, by id.

    Returns:
        The id of the MNLI cell that the cell started from, or of the pretraining before it. None if
        no weights were replaced.
    """
    source = record
    if record.cell.mnli:
        if record.cell.mnli not in records:
            return None
        source = records[record.cell.mnli]
        is_known = None not in (record.started_from, source.weights)
        if is_known and record.started_from != source.weights:
            return record.cell.mnli
    pretraining = pretrainings.get(source.cell.pretraining or "")
    if pretraining is None or pretraining.weights is None or source.started_from is None:
        return None
    is_same = pretraining.weights.get(source.cell.steps or 0) == source.started_from
    return None if is_same else pretraining.pretraining.id


def lacks(record: Record, asked: TaskFacts) -> str:
    """Say which of the `asked` test predictions a record lacks; the text is empty if none.

    The id of a cell covers its task's own test splits, so a record always has their predictions.
    The id does not cover AX.
    """
    if asked.predicts and record.tests is None:
        return NO_PREDICTIONS
    return OTHER_DIAGNOSTIC if predicts_other_diagnostic(record, asked) else ""


def predicts_other_diagnostic(record: Record, asked: TaskFacts) -> bool:
    """Return whether AX is asked for, and the record has no predictions of these sentences."""
    return asked.diagnostic not in (None, record.diagnostic)


def joined_weights(latest: Mapping[int, str], earlier: Mapping[int, str]) -> dict[int, str]:
    """Join the digests of a pretraining's weights by step with the digests of an earlier run.

    The id of a pretraining does not cover which checkpoints are kept. So a pretraining that runs
    again for another checkpoint may keep fewer checkpoints than before. Cells that started from the
    missing checkpoints still count if both runs have equal weights. Both runs keep the last step;
    if it is equal, all steps before it were equal.

    Args:
        latest: the digests of the latest run.
        earlier: the digests of the earlier run.

    Returns:
        The latest digests, together with the earlier digests if both runs have equal weights.
    """
    shared = latest.keys() & earlier.keys()
    is_same = bool(shared) and all(latest[step] == earlier[step] for step in shared)
    return {**earlier, **latest} if is_same else dict(latest)
