"""Whether stored results are true.

A bundle is compared with its manifest, and each experiment in a bundle or in a folder with its own
records.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glue_bench.analysis.chance import Sums
from glue_bench.config import HELD_OUT
from glue_bench.data.metrics import is_collapsed, score_logits
from glue_bench.errors import UserError
from glue_bench.publish.bundle import open_bundle
from glue_bench.publish.check import REWRITE_ADVICE, Check
from glue_bench.publish.table_check import check_tables
from glue_bench.records.done import START_REPLACED, replaced_start
from glue_bench.records.finished import Finished
from glue_bench.records.labels import GOLD
from glue_bench.records.layout import CELLS, FAILURES, PLAN, labels_file
from glue_bench.records.plugin_files import find_plugin, kept_digests
from glue_bench.records.store import Store, experiments_in
from glue_bench.records.values import Job, Plan, PretrainingRecord, Record

DELETE_ADVICE = "delete its folder and run again"
WRONG_ID = "{0.kind}/{0.id}: its id is not that of what it says"
SCORE_TOLERANCE = 1e-6
"""How far recomputed scores may be from stored ones.

Runs score STS-B against labels in single precision.
"""


@dataclass(frozen=True)
class Verified:
    """An experiment, or the bundle around several, with its checks."""

    name: str
    checks: tuple[Check, ...]

    @property
    def faults(self) -> list[str]:
        """Every fault with its file."""
        return [fault for check in self.checks for fault in check.faults]


def verify_folder(path: Path) -> list[Verified]:
    """Check a bundle, an experiment's folder, or a folder of experiments.

    Raises UserError if it is none of these.
    """
    if not path.exists():
        raise UserError(f"no file or folder '{path}'")
    if path.is_dir():
        return [
            Verified(str(store.folder), check_experiment(store)) for store in experiments_in(path)
        ]
    with open_bundle(path) as bundle:
        manifest = bundle.manifest
        summary = f"{len(manifest.files)} files, by glue-bench {manifest.glue_bench}"
        verified = [Verified("bundle", (Check("digests", summary, bundle.faults),))]
        for name in manifest.experiments:
            checks = []
            for check in check_experiment(Store(bundle.folder / name)):
                faults = tuple(f"{name}/{fault}" for fault in check.faults)
                checks.append(replace(check, faults=faults))
            verified.append(Verified(name, tuple(checks)))
        return verified


def check_experiment(store: Store) -> tuple[Check, ...]:
    """Make all checks of an experiment's folder.

    A file that cannot be read is a fault, never an error.
    """
    try:
        plan = store.plan()
        finished = store.finished(plan)
        strays = store.records_outside(plan)
    except (UserError, OSError) as error:
        return (Check("plan", "cannot be read", (str(error),)),)

    records = [*finished.records.values(), *finished.outdated.values(), *strays]
    pretrainings = list(finished.pretrainings.values())
    jobs: list[Job] = [record.job for record in records]
    jobs += [record.job for record in pretrainings]

    checks = [
        _check_plan(plan),
        _check_records(store, plan, finished, jobs, damaged=finished.left_out - len(strays)),
        _check_ids(jobs),
        _check_each(
            "predictions",
            "give the scores of their records",
            records,
            lambda record: _has_right_scores(store, record, plan),
        ),
        _check_each(
            "pretrainings",
            "follow from what lies beside them",
            pretrainings,
            lambda record: _has_right_sums(store, record),
        ),
        _check_each(
            "weights",
            "started from the weights that are named",
            records,
            lambda record: _has_known_start(record, finished),
        ),
        _check_failures(store, plan, finished),
    ]

    digests = {job.plugin for job in (*plan.jobs, *jobs) if job.plugin}
    digests |= kept_digests(store.folder)
    if digests:
        plugins = _check_each(
            "plugins",
            "have the digests of their folders",
            sorted(digests),
            lambda digest: find_plugin(store.folder, digest) is not None,
        )
        checks.append(plugins)

    checks.append(check_tables(store.folder))
    return tuple(checks)


def _check_plan(plan: Plan) -> Check:
    """Compare the ids of planned jobs with those that follow from their settings."""
    wrong = [job for job in plan.jobs if job.id != job.true_id]
    advice = REWRITE_ADVICE.format(PLAN)
    faults = [f"{PLAN}: {WRONG_ID.format(job)}; {advice}" for job in wrong]
    right = len(plan.jobs) - len(wrong)
    return Check("plan", f"{right} jobs have the ids of what they say", tuple(faults))


def _check_ids(jobs: Sequence[Job]) -> Check:
    """Compare the ids of records with those that follow from their settings."""
    wrong = [job for job in jobs if job.id != job.true_id]
    faults = [f"{WRONG_ID.format(job)}; {DELETE_ADVICE}" for job in wrong]
    right = len(jobs) - len(wrong)
    return Check("ids", f"{right} follow from what the records say", tuple(faults))


def _check_records(
    store: Store, plan: Plan, finished: Finished, jobs: Sequence[Job], *, damaged: int
) -> Check:
    """List the records and the headers of labels that changed since they were written, or are gone.

    Args:
        store: The experiment's folder.
        plan: Its plan.
        finished: The records of the plan.
        jobs: The jobs of all records that can be read.
        damaged: The number of records outside the plan that cannot be read.
    """
    faults = list(finished.problems.values())
    if damaged:
        faults.append(f"{CELLS}/: {damaged} outside the plan cannot be believed; delete them")
    faults += _missing_starts(plan, finished)
    faults += _wrong_labels(store, plan)
    return Check("records", f"{len(jobs)} are as they were written", tuple(faults))


def _wrong_labels(store: Store, plan: Plan) -> Iterator[str]:
    """Yield a line about each file of labels whose header does not fit the plan.

    The digest of labels does not cover the header, which tells the rows of the baselines.
    """
    held_out_share = plan.experiment.finetuning.held_out_share
    for task, facts in plan.tasks.items():
        try:
            is_stored = bool(store.labels.read(task, facts.digest)[GOLD])
        except UserError:
            continue  # the check of predictions reports it
        if is_stored and not store.labels.fits(task, facts.digest, held_out_share):
            place = labels_file(task, facts.digest)
            advice = REWRITE_ADVICE.format("it")
            yield f"{place}: its header is not that of these settings; {advice}"


def _missing_starts(plan: Plan, finished: Finished) -> Iterator[str]:
    """Yield a line about each job without a record from which finished jobs started.

    An interrupted run never leaves this.
    """
    done = finished.done | finished.outdated.keys()
    starts: Counter[str] = Counter()
    for job in plan.jobs:
        if job.id in done:
            starts.update(job.prerequisites)

    for job in plan.jobs:
        if starts[job.id] and job.id not in done and job.id not in finished.problems:
            fault = f"no record, but finished runs started from it: {starts[job.id]}"
            yield f"{job.kind}/{job.id}: {fault}; run the experiment again"


def _check_failures(store: Store, plan: Plan, finished: Finished) -> Check:
    """List the files of failures that cannot be read.

    The error of such a file begins with its name.
    """
    errors = [failure.error for failure in store.failures(plan, finished.done)]
    unreadable = [error for error in errors if error.startswith(f"{FAILURES}/")]
    return Check("failures", f"{len(errors)} say why", tuple(unreadable))


def _check_each(
    name: str, success: str, values: Iterable[Any], is_checked: Callable[[Any], bool]
) -> Check:
    """Check each value on its own.

    Args:
        name: The name of the check.
        success: What the values that pass do, in words.
        values: Records, or the digests of plugins.
        is_checked: Raises an error that says what is wrong with a value. It returns False if too
            little is stored to check it.
    """
    passed = 0
    unknown = 0
    faults = []
    for value in values:
        try:
            if is_checked(value):
                passed += 1
            else:
                unknown += 1
        except UserError as error:
            faults.append(str(error))
        except (LookupError, TypeError, ValueError, OSError) as error:
            faults.append(f"{value.job.kind}/{value.job.id}: {error}; {DELETE_ADVICE}")
    result = f"{passed} {success}"
    if unknown:
        result = f"{result}, {unknown} unknown"
    return Check(name, result, tuple(faults))


def _has_right_scores(store: Store, record: Record, plan: Plan) -> bool:
    """Recompute a record's scores.

    Returns False if predictions or gold labels are not stored. Raises ValueError or LookupError if
    scores differ, and UserError if a file beside the record is not its own.
    """
    task = record.cell.task
    data = record.cell.data
    facts = plan.tasks.get(task)
    labels_digest = facts.labels if facts and facts.digest == data else None

    logits = store.logits(record)
    labels = store.labels.read(task, data, labels_digest)[GOLD]
    store.logits(record, test=True)  # raises if its test predictions are not its own
    store.models.find_whole(record)  # likewise

    if record.cell.is_trained:
        last_scores = dict(record.history[-1].scores)
        last_scores.pop(HELD_OUT, None)
        if record.scores != last_scores:
            raise ValueError("its scores are not those of its last epoch")

    if not logits or not labels:
        return False

    for split, scores in record.scores.items():
        for metric, value in score_logits(task, logits[split], labels[split]).items():
            stored = scores.get(metric)
            if not _are_equal([stored], [value]):
                raise ValueError(f"{split} gives {metric} {value:.6f}, the record says {stored}")
        if is_collapsed(task, logits[split]) != (split in record.collapsed):
            raise ValueError(f"it is wrong on whether {split} is collapsed")
    return True


def _has_right_sums(store: Store, record: PretrainingRecord) -> bool:
    """Recompute the validation loss and the measures of a pretraining.

    Returns False if its losses are not stored. Raises ValueError if they differ.
    """
    losses = store.losses(record)
    sums = {name: Sums(*arrays) for name, arrays in store.measure_sums(record).items()}
    if losses:
        mean = losses["loss_sum"].sum() / max(1, losses["count"].sum())
        if not _are_equal([record.validation_loss], [mean]):
            raise ValueError("its validation loss is not the mean of the losses beside it")
    measures = {measure.name: measure for measure in record.measures}
    for name in sorted(measures.keys() | sums.keys()):
        is_right = False
        if name in measures and name in sums:
            measure = measures[name]
            recomputed = sums[name]
            is_right = _are_equal(
                (measure.value, measure.standard_error, measure.n),
                (recomputed.value, recomputed.standard_error, recomputed.n),
            )
        if not is_right:
            raise ValueError(f"its {name} is not what the sums beside it give")
    return bool(losses or record.pretraining.is_search)


def _are_equal(stored: Sequence[float | None], recomputed: Sequence[float]) -> bool:
    """Whether numbers are equal up to SCORE_TOLERANCE; None is NaN."""
    return np.allclose(
        np.array(stored, dtype=float),
        recomputed,
        rtol=SCORE_TOLERANCE,
        atol=SCORE_TOLERANCE,
        equal_nan=True,
    )


def _has_known_start(record: Record, finished: Finished) -> bool:
    """Whether the weights from which a cell started are those of a record.

    It is the record of its pretraining or of its MNLI cell.
    Raises ValueError if they have been replaced since.
    """
    records = {**finished.records, **finished.outdated}
    start = replaced_start(record, records, finished.pretrainings)
    if start:
        raise ValueError(START_REPLACED.format(start=start))
    cell = record.cell
    if record.started_from is None:
        return False
    if not cell.prerequisites:
        return True
    if cell.mnli:
        source = records.get(cell.mnli)
        return source is not None and source.weights is not None
    pretraining = finished.pretrainings.get(cell.pretraining or "")
    return pretraining is not None and pretraining.weights is not None
