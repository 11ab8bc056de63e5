"""The reasons for which jobs are to run, as a dry run shows them. No torch."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from glue_bench.config import SCRATCH
from glue_bench.records.done import START_REPLACED, replaced_start
from glue_bench.records.finished import Finished
from glue_bench.records.store import Store
from glue_bench.records.values import Job, Plan, Pretraining
from glue_bench.sweep.jobs import WorkLeft, has_other_rate

GONE_WEIGHTS = "its weights are gone, and other jobs start from them"
OTHER_RATE = "its search ran again, and has chosen another learning rate"
DAMAGED = "its record is damaged"
LIES_ASIDE = "an interrupted run has set its result aside; the next run puts it back"
GONE_RECORD = "its record is gone, and finished runs started from it"
NOT_RUN = "not run yet"
COMPUTES_OTHERWISE = "glue-bench computes it differently now"
Facts = dict[str, Any]


class JobPlace(NamedTuple):
    """The place of a job in an experiment. Jobs of two experiments are compared by place."""

    kind: str
    arm: str
    task: str | None
    seed: int
    pretraining_seed: int | None
    is_search: bool


def reasons(work: WorkLeft, store: Store) -> dict[str, str]:
    """Return why each job is to run, by its id."""
    plan = work.plan
    finished = work.finished
    failures = {failure.id: failure.error for failure in store.failures(plan, finished.done)}
    started_from: set[str] = set()
    for job in plan.jobs:
        if job.id in finished.done:
            started_from.update(job.prerequisites)
    earlier = EarlierJobs(plan, store, finished)
    records = {**finished.records, **finished.outdated}

    def reason(job: Job) -> str:
        if job.id in failures:
            return f"it failed: {failures[job.id]}"

        if job.id in finished.outdated:
            start = replaced_start(finished.outdated[job.id], records, finished.pretrainings)
            is_pretraining = start in earlier.pretrainings
            return START_REPLACED.format(start="a pretraining" if is_pretraining else "an MNLI run")

        if job.id in work.incomplete:
            return work.incomplete[job.id]

        record = finished.pretrainings.get(job.id)
        if record and has_other_rate(record, finished.pretrainings):
            return OTHER_RATE

        if job.id in finished.done:
            return GONE_WEIGHTS
        if store.lies_aside(job):
            return LIES_ASIDE
        if job.id in finished.problems:
            return DAMAGED
        if job.id in started_from:
            return GONE_RECORD
        return earlier.difference(job)

    return {job.id: reason(job) for job in work.jobs}


class EarlierJobs:
    """The finished jobs in a folder that the plan leaves out, to compare new jobs with.

    Args:
        plan: the plan of the new jobs.
        store: the store of the folder.
        finished: the stored results of the plan.
    """

    def __init__(self, plan: Plan, store: Store, finished: Finished) -> None:
        cells = [record.cell for record in store.records_outside(plan)]
        started_from = sorted({cell.pretraining for cell in cells if cell.pretraining})
        records = [store.pretraining(name) for name in started_from]
        pretrainings = [record.pretraining for record in records if record]
        self.pretrainings = {job.id: job for job in (*plan.pretrainings, *pretrainings)}
        self.facts: defaultdict[JobPlace, list[Facts]] = defaultdict(list)
        """What decided each of them, by its place."""
        for cell in cells:
            self._add(cell)
        for job in pretrainings:
            if job.id not in finished.pretrainings:
                self._add(job)

    def difference(self, job: Job) -> str:
        """Return the facts that differ from the most similar earlier job of the job's place."""
        return _difference(_facts(job, self.pretrainings), self.facts[_place(job)])

    def _add(self, job: Job) -> None:
        self.facts[_place(job)].append(_facts(job, self.pretrainings))


def _place(job: Job) -> JobPlace:
    if isinstance(job, Pretraining):
        return JobPlace(job.kind, job.arm, None, job.seed, None, job.is_search)
    return JobPlace(job.kind, job.arm, job.task, job.seed, job.pretraining_seed, is_search=False)


def _difference(facts: Facts, candidates: Sequence[Facts]) -> str:
    """Return the changes from the candidate that differs in the fewest facts."""
    if not candidates:
        return NOT_RUN
    before = min(candidates, key=lambda candidate: len(_changed(candidate, facts)))
    changed = _changed(before, facts)
    if "pretraining.steps" in changed:
        changed.discard("steps")  # `pretraining.steps` says the same
    changes = []
    for name in sorted(changed):
        changes.append(f"{name} {_text(before.get(name))} -> {_text(facts.get(name))}")
    return ", ".join(changes) or COMPUTES_OTHERWISE


def _changed(before: Facts, after: Facts) -> set[str]:
    names = set()
    for name in before | after:
        if before.get(name) != after.get(name):
            names.add(name)
    return names


def _text(value: Any) -> str:
    """Write a fact as a person reads it: a digest is cut to twelve digits."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}", r"\1", text)


def _facts(job: Job, pretrainings: Mapping[str, Pretraining]) -> Facts:
    """Return the facts that decide a job and the pretraining before it, named as in the file."""
    facts = dict(_flat(job.hashed, f"{job.section}."))
    start = pretrainings.get(facts.pop("pretraining", None) or "")
    return facts if start is None else _facts(start, pretrainings) | facts


def _flat(document: Facts, section: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return the values of a job's document, with dotted names.

    Args:
        document: the document of a job, or a part of it.
        section: the beginning of the names of settings, as in the experiment file.
        prefix: the beginning of the names of a part.
    """
    for name, value in document.items():
        if name == "checkpoint" and value.startswith(f"{SCRATCH} "):
            sizes = json.loads(value.removeprefix(SCRATCH))
            yield from _flat({SCRATCH: sizes}, section)
        elif isinstance(value, dict):
            yield from _flat(value, section, section if name == "settings" else f"{prefix}{name}.")
        elif name != "searches":
            yield prefix + name, value
