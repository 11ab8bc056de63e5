"""What can be checked of an experiment's folder: each check says what it looked at, and every fault with its file."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glue_bench.audit.identity import Known, known
from glue_bench.benchmark.metrics import is_collapsed, score_logits
from glue_bench.config import HELD_OUT
from glue_bench.errors import UserError
from glue_bench.records.identity import digest_of
from glue_bench.records.record import CellKey, PretrainingRecord, Record
from glue_bench.records.store import Store
from glue_bench.reporting.export import TABLES, tables
from glue_bench.reporting.papers import TABLES as PAPERS

AGAIN = "delete it and run again"
REWRITE = "run the experiment again, which writes its tables anew"
ROUNDING = 1e-6
"""How far recomputed scores may be from stored ones: runs score STS-B against labels in single precision."""


@dataclass(frozen=True)
class Check:
    """What was checked, in a few words what was found, and a line about each fault: file, what, and what to do."""

    name: str
    found: str
    faults: tuple[str, ...] = ()


def check_experiment(store: Store) -> list[Check]:
    """All checks of an experiment's folder; what cannot be read is a fault, never an error."""
    checks = [check_plan(store), check_records(store), check_pretraining(store)]
    records, (plan, _, pretraining) = store.scan_records()[0], checks
    if not (plan.faults or pretraining.faults):
        checks.append(check_ids(known(store, store.read_plan())))
    checks += [check_predictions(store, records), check_failures(store)]
    if not plan.faults:
        checks.append(check_tables(store))
    return checks


def check_plan(store: Store) -> Check:
    """plan.json is readable, and its cells are what their ids say."""
    try:
        plan = store.read_plan()
        if plan is None:
            return Check("plan", "none: tables show every record")
        states = [state for _, state in store.states()]
        # Plans of earlier versions do not hold all that ids are made of.
        digests = [plan.identity(cell).digest if plan.tasks else "" for cell in plan.cells]
    except UserError as error:
        return Check("plan", "unreadable", (_inside(store, error),))
    except KeyError as error:
        return Check("plan", "unreadable", (f"plan.json: edited (nothing is said of {error}); {REWRITE}",))
    cells = zip(plan.cells, digests, strict=True)
    edited = [cell.cell_id for cell, digest in cells if not _is_id(cell.cell_id, cell, digest)]
    faults = [f"plan.json: cell '{cell_id}' was edited; {REWRITE}" for cell_id in edited]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("done", "failed", "missing"))
    return Check("plan", f"{len(states)} cells: {counts}", tuple(faults))


def _is_id(cell_id: str, key: CellKey, digest: str) -> bool:
    """Whether the id is that of the cell, as far as this can be told where the digest is not known ("")."""
    return cell_id == key.id(digest) if digest else cell_id.startswith(key.id(""))


def check_records(store: Store) -> Check:
    """Records are as the run wrote them, by their own digests."""
    records, problems = store.scan_records()
    bare = sum(record.digest is None for record in records)
    older = f", {bare} of them by an earlier version, without a digest" if bare else ""
    return Check("records", f"{len(records)} as they were written{older}", tuple(problems))


def check_ids(cells: Known) -> Check:
    """Ids are hashes of what their records say."""
    faults, unknown = [], 0
    for name, record in cells.records.items():
        identity = record.identity(cells.pretrainings)
        unknown += not identity.tokenizer
        if not _is_id(name, record.cell, identity.digest if identity.tokenizer else ""):
            faults.append(f"records/{name}.json: its id is not that of what it says; {AGAIN}")
    older = f", {unknown} lack the tokenizer's digest (earlier version)" if unknown else ""
    return Check("ids", f"{len(cells.records) - unknown - len(faults)} follow from their records{older}", tuple(faults))


def check_pretraining(store: Store) -> Check:
    """Pretrainings are readable, their ids are hashes of what they say, and their validation losses are as stored."""
    try:
        records = store.read_pretrainings()
    except UserError as error:
        return Check("pretraining", "unreadable", (_inside(store, error),))
    faults = [
        f"pretraining/{record.pretraining_id}.json: its id is not that of what it says; {AGAIN}"
        for record in records
        if record.identity.digest != digest_of(record.pretraining_id)
    ]
    faults += [fault for record in records for fault in _validation_faults(store, record)]
    return Check("pretraining", f"{len(records)} follow from what they say", tuple(faults))


def _validation_faults(store: Store, record: PretrainingRecord) -> Iterator[str]:
    """What is wrong with the losses beside a pretraining's record; earlier versions stored none."""
    if record.validation_sha256 is None:
        return
    file = f"pretraining/{record.pretraining_id}.safetensors"
    path = store.folder / file
    if not path.is_file():
        yield f"{file}: missing; restore it, or delete its record and run again"
    elif hashlib.sha256(path.read_bytes()).hexdigest() != record.validation_sha256:
        yield f"{file}: changed since the run wrote it; delete it and its record and run again"
    else:
        losses = store.read_validation(record.pretraining_id)
        if not _is_close(record.validation_loss, losses["loss_sum"].sum() / losses["count"].sum()):
            yield f"{file}: its mean is not the validation loss of the record; delete both and run again"


def check_predictions(store: Store, records: Sequence[Record]) -> Check:
    """Predictions are those that the run stored, and give the recorded scores on the gold labels beside them."""
    faults, found = [], []
    for record in records:
        try:
            found.append(_recompute(store, record))
        except UserError as error:
            faults.append(str(error))
    paths = sorted((store.folder / "predictions").glob("*.safetensors"))
    orphans = [path.name for path in paths if not store.has_record(path.stem)]
    faults += [f"predictions/{name}: its record was deleted, or never written; run again" for name in orphans]
    note = f", {found.count(False)} have no gold labels here" if False in found else ""
    return Check("predictions", f"{found.count(True)} give the scores of their records{note}", tuple(faults))


def _recompute(store: Store, record: Record) -> bool:
    """Whether there are labels to recompute a record's scores.

    Raises:
        UserError: the predictions are not those of the record.
    """
    name, task = record.cell_id, record.cell.task
    file = f"predictions/{name}.safetensors"
    if not store.has_predictions(name):
        raise UserError(f"{file}: missing; restore it, or delete its record and run again")
    stored = (store.folder / file).read_bytes()
    if record.predictions_sha256 not in (None, hashlib.sha256(stored).hexdigest()):
        raise UserError(f"{file}: changed since the run wrote it; delete it and its record and run again")
    logits, labels = store.read_predictions(name), store.read_labels(task, record.data.digest)
    if not labels:
        return False
    try:
        _check_scores(record, logits, labels)
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{file}: {error}; delete it and its record and run again") from error
    return True


def _check_scores(record: Record, logits: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError or LookupError where the record is not what the logits (rows, labels) give."""
    task, last = record.cell.task, record.history[-1].scores
    if record.scores != {split: scores for split, scores in last.items() if split != HELD_OUT}:
        raise ValueError(f"the scores of records/{record.cell_id}.json are not those of its last epoch")
    for split, scores in record.scores.items():
        again = score_logits(task, logits[split], labels[split])
        for metric, value in again.items():
            if not _is_close(scores.get(metric), value):
                raise ValueError(f"{split} gives {metric} {value:.6f}, the record says {scores.get(metric)}")
        if is_collapsed(task, logits[split]) != (split in record.collapsed):
            raise ValueError(f"the record is wrong on whether {split} is collapsed")


def _is_close(stored: Any, value: float) -> bool:
    return isinstance(stored, int | float) and math.isclose(stored, value, rel_tol=ROUNDING, abs_tol=ROUNDING)


def check_failures(store: Store) -> Check:
    """Failures are readable, and say why."""
    try:
        failures = store.read_failures()
    except UserError as error:
        return Check("failures", "unreadable", (_inside(store, error),))
    faults = [failure.error.replace(f"{store.folder}/", "") for failure in failures if failure.damaged]
    bare = [failure for failure in failures if not (failure.cell_id and failure.error)]
    faults += [f"failures/: one does not say why; {AGAIN}" for _ in bare]
    return Check("failures", str(len(failures)), tuple(faults))


def check_tables(store: Store) -> Check:
    """Every table is, byte for byte, what the records give."""
    try:
        expected = tables(store.folder) | _papers(store)
    except UserError as error:
        return Check("tables", "cannot be recomputed", (_inside(store, error),))
    except (LookupError, TypeError, ValueError) as error:
        line = f"records/: no tables can be made of them ({type(error).__name__} {error}); get them anew"
        return Check("tables", "cannot be recomputed", (line,))
    present = {path.name: path.read_bytes() for path in store.folder.iterdir() if path.suffix in (".md", ".csv")}
    faults = [line for name, text in expected.items() for line in _compared(name, text.encode(), present.get(name))]
    more = [name for name in TABLES if name in present and name not in expected]
    faults += [f"{name}: not among the tables that the records give; {REWRITE}" for name in more]
    others = sorted(present.keys() - expected.keys() - set(TABLES))
    note = f"; not checked: {', '.join(others)}" if others else ""
    right = sum(present.get(name) == text.encode() for name, text in expected.items())
    return Check("tables", f"{right} recompute byte for byte{note}", tuple(faults))


def _papers(store: Store) -> dict[str, str]:
    """Published tables with this experiment's rows, of those that lie in its folder."""
    from glue_bench.reporting.papers.export import render

    return {f"{name}.md": render(name, store.folder) for name in PAPERS if (store.folder / f"{name}.md").is_file()}


def _compared(name: str, expected: bytes, found: bytes | None) -> list[str]:
    if found is None:
        return [f"{name}: missing; {REWRITE}"]
    if found == expected:
        return []
    lines, right = found.splitlines(), expected.splitlines()
    number = next(
        (i for i, (a, b) in enumerate(zip(lines, right, strict=False)) if a != b), min(len(lines), len(right))
    )
    return [f"{name}: line {number + 1} is not what the records give; {REWRITE}"]


def _inside(store: Store, error: UserError) -> str:
    """The error's text, with paths that start in the experiment's folder."""
    return str(error).replace(f"{store.folder}/", "")
