"""What can be checked of an experiment's folder: each check says what it looked at, and every fault with its file."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from glue_bench.analysis.chance import Sums
from glue_bench.audit.identity import REWRITE, Known, known, planned_identity
from glue_bench.config import HELD_OUT
from glue_bench.data.metrics import is_collapsed, score_logits
from glue_bench.errors import UserError
from glue_bench.files import read_file
from glue_bench.records.disk import LARGEST_ARRAYS
from glue_bench.records.identity import digest_of
from glue_bench.records.intrinsic import IntrinsicRecord
from glue_bench.records.record import CellKey, PretrainingRecord, Record
from glue_bench.records.store import Store
from glue_bench.tables.export import TABLES, find, tables
from glue_bench.tables.papers import beside_named, paper_page
from glue_bench.tables.published import TABLES as PAPERS

AGAIN = "delete it and run again"
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
    plan, pretraining = _checked("plan", check_plan, store), _checked("pretraining", check_pretraining, store)
    checks = [plan, check_records(store), pretraining, _checked("intrinsic", check_intrinsic, store)]
    if not (plan.faults or pretraining.faults):
        checks.append(check_ids(known(store, store.read_plan())))
    checks += [check_predictions(store), _checked("failures", check_failures, store)]
    return checks if plan.faults else [*checks, _checked("tables", check_tables, store)]


def _checked(name: str, check: Callable[[Store], Check], store: Store) -> Check:
    try:
        return check(store)
    except (UserError, OSError) as error:
        said = str(error) if isinstance(error, UserError) else f"{error.filename}: {error.strerror}"
        return Check(name, "cannot be read", (said.replace(f"{store.folder}/", ""),))


def check_plan(store: Store) -> Check:
    """plan.json is readable, and its cells are what their ids say."""
    plan = store.read_plan()
    if plan is None:
        return Check("plan", "none: tables show every record")
    states = [state for _, state in store.states()]
    # Plans of earlier versions do not hold all that ids are made of.
    digests = [planned_identity(plan, cell).digest if plan.tasks else "" for cell in plan.cells]
    cells = zip(plan.cells, digests, strict=True)
    edited = [cell.cell_id for cell, digest in cells if not _is_id(cell.cell_id, cell, digest)]
    faults = [f"plan.json: cell '{cell_id}' was edited; {REWRITE}" for cell_id in edited]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("done", "failed", "missing"))
    return Check("plan", f"{len(states)} cells: {counts}", tuple(faults))


def _is_id(cell_id: str, key: CellKey, digest: str) -> bool:
    """Whether the id is that of the cell, as far as this can be told where the digest is not known ("")."""
    if digest:
        return cell_id in (key.id(digest), key.former_id(digest))
    return cell_id.startswith(key.id(""))


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
        if not _is_id(name, record.cell, identity.digest if identity.tokenizer else ""):
            faults.append(f"records/{name}.json: its id is not that of what it says; {AGAIN}")
        else:
            unknown += not identity.tokenizer
    older = f", {unknown} lack the tokenizer's digest (earlier version)" if unknown else ""
    return Check("ids", f"{len(cells.records) - unknown - len(faults)} follow from their records{older}", tuple(faults))


def check_pretraining(store: Store) -> Check:
    """Pretrainings are readable, their ids are hashes of what they say, and their validation losses are as stored."""
    records = store.read_pretrainings()
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
    elif hashlib.sha256(read_file(path, LARGEST_ARRAYS)).hexdigest() != record.validation_sha256:
        yield f"{file}: changed since the run wrote it; delete it and its record and run again"
    else:
        try:
            losses, said = store.read_validation(record.pretraining_id), record.validation_loss
        except UserError as error:
            yield str(error)
            return
        mean = losses["loss_sum"].sum() / losses["count"].sum()
        if said is None or not math.isclose(said, mean, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"{file}: its mean is not the validation loss of the record; delete both and run again"


def check_intrinsic(store: Store) -> Check:
    """The measures of pretrained encoders are what the sums beside them give."""
    records = store.intrinsic.read()
    faults = [fault for record in records for fault in _measure_faults(store, record)]
    return Check("intrinsic", f"{len(records)} follow from the sums beside them", tuple(faults))


def _measure_faults(store: Store, record: IntrinsicRecord) -> Iterator[str]:
    try:
        sums = store.intrinsic.read_sums(record.pretraining_id)
    except UserError as error:
        yield str(error)
        return
    given = {measure.name: (measure.value, measure.standard_error, measure.n) for measure in record.measures}
    found = {name: Sums(*both) for name, both in sums.items() if both.ndim == 2 and len(both) == 2}
    for name in sorted(given.keys() | sums.keys()):
        if name not in given or name not in found or not _are_alike(given[name], found[name]):
            file = f"intrinsic/{record.pretraining_id}.json"
            yield f"{file}: its {name} is not what the sums beside it give; delete both and run again"


def _are_alike(said: tuple[float, float | None, int], sums: Sums) -> bool:
    value, error, n = (math.nan if number is None else number for number in said)
    pairs = ((value, sums.value), (error, sums.standard_error))
    near = [math.isclose(*pair, rel_tol=ROUNDING, abs_tol=ROUNDING) or all(map(math.isnan, pair)) for pair in pairs]
    return all(near) and n == sums.n


def check_predictions(store: Store) -> Check:
    """Predictions are those that the run stored, and give the recorded scores on the gold labels beside them."""
    faults, found = [], []
    for record in store.scan_records()[0]:
        try:
            found.append(_recompute(store, record))
        except UserError as error:
            faults.append(str(error))
        except OSError as error:
            faults.append(f"predictions/{record.cell_id}.safetensors: {error.strerror}; {AGAIN}")
    paths = sorted((store.folder / "predictions").glob("*.safetensors"))
    orphans = [path.name for path in paths if not store.has_record(path.stem)]
    faults += [f"predictions/{name}: its record was deleted, or never written; run again" for name in orphans]
    faults += _test_faults(store)
    note = f", {found.count(False)} have no gold labels here" if False in found else ""
    return Check("predictions", f"{found.count(True)} give the scores of their records{note}", tuple(faults))


def _test_faults(store: Store) -> list[str]:
    """What is wrong with predictions of test splits, which no score is made of."""
    faults = []
    for name in store.tests.cells():
        try:
            store.tests.read(name)
        except UserError as error:
            faults.append(str(error))
        if not store.has_record(name):
            faults.append(f"test_predictions/{name}.safetensors: its record was deleted, or never written; run again")
    return faults


def _recompute(store: Store, record: Record) -> bool:
    """Whether there are labels to recompute a record's scores.

    Raises:
        UserError: the predictions are not those of the record.
    """
    name, both = record.cell_id, "delete it and its record and run again"
    file = f"predictions/{name}.safetensors"
    if not store.has_predictions(name):
        raise UserError(f"{file}: missing; restore it, or delete its record and run again")
    stored = read_file(store.folder / file, LARGEST_ARRAYS)
    if record.predictions_sha256 not in (None, hashlib.sha256(stored).hexdigest()):
        raise UserError(f"{file}: changed since the run wrote it; {both}")
    logits, labels = store.read_predictions(name), store.read_labels(record.cell.task, record.data.digest)
    try:
        if labels:
            _check_scores(record, logits, labels)
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{file}: {error}; {both}") from error
    return bool(labels)


def _check_scores(record: Record, logits: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError or LookupError where the record is not what the logits (rows, labels) give."""
    task, last = record.cell.task, record.history[-1].scores
    if record.scores != {split: scores for split, scores in last.items() if split != HELD_OUT}:
        raise ValueError(f"the scores of records/{record.cell_id}.json are not those of its last epoch")
    for split, scores in record.scores.items():
        for metric, value in score_logits(task, logits[split], labels[split]).items():
            said = scores.get(metric)
            if said is None or not math.isclose(said, value, rel_tol=ROUNDING, abs_tol=ROUNDING):
                raise ValueError(f"{split} gives {metric} {value:.6f}, the record says {said}")
        if is_collapsed(task, logits[split]) != (split in record.collapsed):
            raise ValueError(f"the record is wrong on whether {split} is collapsed")


def check_failures(store: Store) -> Check:
    """Failures are readable, and say why."""
    failures = store.read_failures()
    faults = [failure.error.replace(f"{store.folder}/", "") for failure in failures if failure.damaged]
    bare = [failure for failure in failures if not (failure.cell_id and failure.error)]
    faults += [f"failures/: one does not say why; {AGAIN}" for _ in bare]
    return Check("failures", str(len(failures)), tuple(faults))


def check_tables(store: Store) -> Check:
    """Every table is, byte for byte, what the records give: its own, and published ones with its rows beside them."""
    folder = store.folder
    try:
        names = [name for name in PAPERS if (folder / f"{name}.md").is_file()]
        papers = {f"{name}.md": paper_page(beside_named(name, folder)).to_markdown() for name in names}
        expected = {name: text.encode() for name, text in (tables(find(folder)) | papers).items()}
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"records/: no tables can be made ({type(error).__name__} {error}); get them anew") from error
    present = {path.name: read_file(path) for path in folder.iterdir() if path.suffix in (".md", ".csv")}
    wrong = {name: content for name, content in expected.items() if present.get(name) != content}
    faults = [f"{name}: {_wrong(content, present.get(name))}; {REWRITE}" for name, content in wrong.items()]
    more = [name for name in TABLES if name in present and name not in expected]
    faults += [f"{name}: not among the tables that the records give; {REWRITE}" for name in more]
    others = sorted(present.keys() - expected.keys() - set(TABLES))
    note = f"; not checked: {', '.join(others)}" if others else ""
    return Check("tables", f"{len(expected) - len(wrong)} recompute byte for byte{note}", tuple(faults))


def _wrong(expected: bytes, found: bytes | None) -> str:
    if found is None:
        return "missing"
    lines = list(zip_longest(found.splitlines(), expected.splitlines()))
    number = next((number for number, (was, right) in enumerate(lines, 1) if was != right), len(lines))
    return f"line {number} is not what the records give"
