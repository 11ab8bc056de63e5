"""The one idea of "done": whether a record answers what its plan asks for. It reads no file.

A cell is done if it has a record, `replaced_start` finds nothing, and `lacks` finds nothing. A
record whose start was replaced counts nowhere: it is in no table, and the cell runs again. A record
that lacks something is in the tables, and the cell runs again if a submission takes it. A fact that
is not known contradicts nothing.
"""

from collections.abc import Mapping

from glue_bench.records.values import PretrainingRecord, Record, TaskFacts

START_REPLACED = "it started from weights of {start} that were made again since"
NO_MODEL = "it has left no model, which is asked for"
NO_PREDICTIONS = "it has left no test predictions, which are asked for"
OTHER_DIAGNOSTIC = "it has predicted another AX than the data have now, or none"


def replaced_start(
    record: Record, records: Mapping[str, Record], pretrainings: Mapping[str, PretrainingRecord]
) -> str | None:
    """Find the job that has made other weights since a cell started from it.

    Args:
        record: of the cell.
        records: of the cells that it may have started from, by id.
        pretrainings: records of the pretrainings, by id.

    Returns:
        The id of the MNLI cell that it started from, or of the pretraining before it; else None.
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
    """Say which test predictions a record lacks that are `asked` for; an empty text if none.

    The id of a cell covers its task's own test splits, so their predictions are those of the data.
    It does not cover AX.
    """
    if asked.predicts and record.tests is None:
        return NO_PREDICTIONS
    return OTHER_DIAGNOSTIC if predicts_other_diagnostic(record, asked) else ""


def predicts_other_diagnostic(record: Record, asked: TaskFacts) -> bool:
    """Whether AX is asked for, and the record has predictions of other sentences, or none."""
    return asked.diagnostic not in (None, record.diagnostic)


def joined_weights(latest: Mapping[int, str], earlier: Mapping[int, str]) -> dict[int, str]:
    """Join the digests of a pretraining's weights by step with those of an earlier run of it.

    Which checkpoints are kept is no part of an id, so a pretraining that is run for another
    checkpoint may keep fewer than before. Cells that started from the others still count if both
    runs have made equal weights: both keep the last step, and if that is equal, all steps before it
    were equal.

    Args:
        latest: the digests of the latest run.
        earlier: the digests of the earlier run.

    Returns:
        The latest digests, and the earlier ones beside them if both runs have equal weights.
    """
    shared = latest.keys() & earlier.keys()
    is_same = bool(shared) and all(latest[step] == earlier[step] for step in shared)
    return {**earlier, **latest} if is_same else dict(latest)
