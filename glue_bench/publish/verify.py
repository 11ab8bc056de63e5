"""Whether stored results are true: a bundle against its manifest, and every experiment in it or in a folder."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from glue_bench.analysis.chance import Sums
from glue_bench.board.compare import open_comparison
from glue_bench.config import HELD_OUT
from glue_bench.data.metrics import is_collapsed, score_logits
from glue_bench.errors import UserError
from glue_bench.files import read_file
from glue_bench.pages.files import tables
from glue_bench.pages.papers import PAPERS, named_page
from glue_bench.pages.render import to_markdown
from glue_bench.publish.bundle import TABLE_FILES, open_bundle
from glue_bench.records.done import START_REPLACED, replaced_start
from glue_bench.records.plugin_files import find_plugin, kept_digests
from glue_bench.records.store import Finished, Store, experiments_in
from glue_bench.records.values import Job, Plan, PretrainingRecord, Record

AGAIN = "delete its folder and run again"
REWRITE = "run the experiment again, which writes {} anew"
WRONG_ID = "{0.kind}/{0.id}: its id is not that of what it says"
ROUNDING = 1e-6
"""How far recomputed scores may be from stored ones: runs score STS-B against labels in single precision."""


@dataclass(frozen=True)
class Check:
    """What was checked, in a few words what was found, and a line about each fault: file, what, and what to do."""

    name: str
    found: str
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """An experiment, or the bundle around several, and what was checked of it."""

    name: str
    checks: tuple[Check, ...]

    @property
    def faults(self) -> list[str]:
        """Every fault with its file."""
        return [fault for check in self.checks for fault in check.faults]


def verify_folder(path: Path) -> list[Verified]:
    """Check a bundle, an experiment's folder, or a folder of experiments. Raises UserError if it is none of these."""
    if not path.exists():
        raise UserError(f"no file or folder '{path}'")
    if path.is_dir():
        return [Verified(str(store.folder), _check(store)) for store in experiments_in(path)]
    with open_bundle(path) as bundle:
        files = f"{len(bundle.manifest.files)} files, by glue-bench {bundle.manifest.glue_bench}"
        verified = [Verified("bundle", (Check("digests", files, bundle.faults),))]
        for name in bundle.manifest.experiments:
            checks = _check(Store(bundle.folder / name))
            prefixed = (
                replace(check, faults=tuple(f"{name}/{fault}" for fault in check.faults))
                for check in checks
            )
            verified.append(Verified(name, tuple(prefixed)))
        return verified


def _check(store: Store) -> tuple[Check, ...]:
    """All checks of an experiment's folder; what cannot be read is a fault, never an error."""
    try:
        plan = store.plan()
        finished, strays = store.finished(plan), store.strays(plan)
    except (UserError, OSError) as error:
        return (Check("plan", "cannot be read", (str(error),)),)
    records = [*finished.records.values(), *finished.outdated.values(), *strays]
    pretrainings = [*finished.pretrainings.values()]
    errors = [failure.error for failure in store.failures(plan, finished.done)]
    damaged = finished.left_out - len(strays)
    outside = (
        (f"cells/: {damaged} outside the plan cannot be believed; delete them",) if damaged else ()
    )
    gone = _gone(plan, finished)
    jobs: list[Job] = [
        *(record.job for record in records),
        *(record.job for record in pretrainings),
    ]
    planned, recorded = (
        [WRONG_ID.format(job) for job in some if job.id != job.true_id]
        for some in (plan.jobs, jobs)
    )
    of_plan = f"{len(plan.jobs) - len(planned)} jobs have the ids of what they say"
    of_records = f"{len(jobs) - len(recorded)} follow from what the records say"
    digests = {job.plugin for job in (*plan.jobs, *jobs) if job.plugin}
    digests |= kept_digests(store.folder)
    plugins = _each(
        "plugins",
        "have the digests of their folders",
        sorted(digests),
        lambda digest: find_plugin(store.folder, digest) is not None,
    )
    return (
        Check(
            "plan",
            of_plan,
            tuple(f"plan.json: {fault}; {REWRITE.format('plan.json')}" for fault in planned),
        ),
        Check(
            "records",
            f"{len(jobs)} are as they were written",
            (*finished.problems.values(), *outside, *gone),
        ),
        Check("ids", of_records, tuple(f"{fault}; {AGAIN}" for fault in recorded)),
        _each(
            "predictions",
            "give the scores of their records",
            records,
            lambda record: _scores(store, record, plan),
        ),
        _each(
            "pretrainings",
            "follow from what lies beside them",
            pretrainings,
            lambda each: _sums(store, each),
        ),
        _each(
            "weights",
            "started from the weights that are named",
            records,
            lambda each: _start(each, finished),
        ),
        Check(
            "failures",
            f"{len(errors)} say why",
            tuple(each for each in errors if each.startswith("failures/")),
        ),
        *([plugins] if digests else []),
        _check_tables(store),
    )


def _gone(plan: Plan, finished: Finished) -> Iterator[str]:
    """A line about each job that finished ones started from, and that has no record: no unfinished run is like that."""
    done = finished.done | finished.outdated.keys()
    started = Counter(name for job in plan.jobs if job.id in done for name in job.after)
    for job in plan.jobs:
        if started[job.id] and job.id not in done and job.id not in finished.problems:
            what = f"no record, but finished runs started from it: {started[job.id]}"
            yield f"{job.kind}/{job.id}: {what}; run the experiment again"


def _each(name: str, holds: str, values: Iterable[Any], look: Callable[[Any], bool]) -> Check:
    """`look` says whether enough is known to check a record, and raises an error with what is wrong with it."""
    known, faults = [], []
    for value in values:
        try:
            known.append(look(value))
        except UserError as error:
            faults.append(str(error))
        except (LookupError, TypeError, ValueError, OSError) as error:
            faults.append(f"{value.job.kind}/{value.job.id}: {error}; {AGAIN}")
    unknown = f", {known.count(False)} unknown" if False in known else ""
    return Check(name, f"{known.count(True)} {holds}{unknown}", tuple(faults))


def _scores(store: Store, record: Record, plan: Plan) -> bool:
    """Whether predictions and gold labels are there to recompute a record's scores; all beside it is as stored."""
    task, data, last = record.cell.task, record.cell.data, record.history[-1].scores
    facts = plan.tasks.get(task)
    named = facts.labels if facts and facts.digest == data else None
    logits, labels = store.logits(record), store.labels(task, data, named)["gold"]
    store.logits(record, test=True)
    store.model(record, whole=True)
    if record.scores != {split: scores for split, scores in last.items() if split != HELD_OUT}:
        raise ValueError("its scores are not those of its last epoch")
    if not logits or not labels:
        return False
    for split, scores in record.scores.items():
        for metric, value in score_logits(task, logits[split], labels[split]).items():
            if not _alike([scores.get(metric)], [value]):
                raise ValueError(
                    f"{split} gives {metric} {value:.6f}, the record says {scores.get(metric)}"
                )
        if is_collapsed(task, logits[split]) != (split in record.collapsed):
            raise ValueError(f"it is wrong on whether {split} is collapsed")
    return True


def _sums(store: Store, record: PretrainingRecord) -> bool:
    """Whether there are losses and sums to recompute the validation loss and the measures of a pretraining."""
    losses = store.losses(record)
    sums = {name: Sums(*both) for name, both in store.sums(record).items()}
    if losses:
        mean = losses["loss_sum"].sum() / max(1, losses["count"].sum())
        if not _alike([record.validation_loss], [mean]):
            raise ValueError("its validation loss is not the mean of the losses beside it")
    stored = {each.name: (each.value, each.standard_error, each.n) for each in record.measures}
    for name in sorted(stored.keys() | sums.keys()):
        each = sums.get(name)
        if (
            name not in stored
            or each is None
            or not _alike(stored[name], (each.value, each.standard_error, each.n))
        ):
            raise ValueError(f"its {name} is not what the sums beside it give")
    return bool(losses or record.pretraining.is_search)


def _alike(stored: Sequence[float | None], recomputed: Sequence[float]) -> bool:
    """Whether numbers are equal up to ROUNDING; None is NaN."""
    return np.allclose(
        np.array(stored, dtype=float), recomputed, rtol=ROUNDING, atol=ROUNDING, equal_nan=True
    )


def _start(record: Record, finished: Finished) -> bool:
    """Whether it is known which weights the cell started from: those of its pretraining or MNLI cell have a record."""
    records = {**finished.records, **finished.outdated}
    if start := replaced_start(record, records, finished.pretrainings):
        raise ValueError(START_REPLACED.format(start=start))
    cell = record.cell
    if record.started_from is None or not cell.after:
        return record.started_from is not None
    if cell.mnli:
        source = records.get(cell.mnli)
        return source is not None and source.weights is not None
    pretraining = finished.pretrainings.get(cell.pretraining or "")
    return pretraining is not None and pretraining.weights is not None


def _check_tables(store: Store) -> Check:
    """Every table is, byte for byte, what the records give: its own, and published ones with its rows beside them."""
    folder = store.folder
    try:
        names = {f"{name}.md": name for name in PAPERS if (folder / f"{name}.md").is_file()}
        papers = {file: to_markdown(named_page(name, folder)) for file, name in names.items()}
        expected = {
            name: text.encode() for name, text in (tables(open_comparison(folder)) | papers).items()
        }
    except (LookupError, TypeError, ValueError, UserError) as error:
        return Check(
            "tables", "cannot be made", (f"cells/: no tables can be made ({error}); get them anew",)
        )
    good, faults, rewrite = 0, list[str](), REWRITE.format("its tables")
    for name in TABLE_FILES:
        path, right = folder / name, expected.get(name)
        try:
            was = read_file(path) if path.exists() else None
        except OSError as error:
            faults.append(f"{name}: cannot be read ({error}); {rewrite}")
            continue
        if was == right:
            good += right is not None
        elif was is None or right is None:
            wrong = "missing" if was is None else "not among the tables that the records give"
            faults.append(f"{name}: {wrong}; {rewrite}")
        else:
            lines = enumerate(zip_longest(was.splitlines(), right.splitlines()), 1)
            number = next((number for number, (old, new) in lines if old != new), 1)
            faults.append(f"{name}: line {number} is not what the records give; {rewrite}")
    others = sorted(
        {path.name for path in folder.iterdir() if path.suffix in (".md", ".csv")} - {*TABLE_FILES}
    )
    note = f"; not checked: {', '.join(others)}" if others else ""
    return Check("tables", f"{good} recompute byte for byte{note}", tuple(faults))
