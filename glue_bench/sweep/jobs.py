"""What is left to do of a plan and why, and the order that lets many workers end together. No torch."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glue_bench.config import SCRATCH
from glue_bench.records.done import NO_MODEL, START_REPLACED, lacks, replaced_start
from glue_bench.records.finished import Finished
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Job, Plan, Pretraining
from glue_bench.sweep.weights import NeededWeights

PLACE_FIELDS = ("kind", "arm", "task", "seed", "pretraining_seed", "is_search")
"""Jobs that agree in these stand in the same place of two experiments."""
GONE_WEIGHTS = "its weights are gone, and others start from them"
DAMAGED = "its record is damaged"
GONE_RECORD = "its record is gone, and finished runs started from it"
NOT_RUN = "not run yet"
COMPUTES_OTHERWISE = "glue-bench computes otherwise since"
Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WorkLeft:
    """What chosen cells of a plan lack.

    Attributes:
        plan: of the sweep.
        cells: the chosen cells.
        finished: what is stored of the plan.
        lacking: what finished cells lack that the plan asks of them, by id.
        jobs: what is to run, each job after those that it waits for.
    """

    plan: Plan
    cells: Sequence[Cell]
    finished: Finished
    lacking: Mapping[str, str]
    jobs: Sequence[Job]

    @property
    def pretrainings(self) -> list[Pretraining]:
        """The pretrainings among the jobs."""
        return [job for job in self.jobs if isinstance(job, Pretraining)]

    @property
    def cell_jobs(self) -> list[Cell]:
        """The cells among the jobs, also those that were not chosen and others start from."""
        return [job for job in self.jobs if isinstance(job, Cell)]


def work_left(plan: Plan, cells: Sequence[Cell], store: Store) -> WorkLeft:
    """Find what is left to do of chosen `cells`, by what is stored.

    Left are cells, the MNLI cells and pretrainings whose weights these start from, and the runs of rate searches.
    `records/done.py` says what counts and what is lacking. Raises UserError where what is stored beside a record cannot
    be read.
    """
    needed = NeededWeights(plan)
    finished = store.finished(plan)
    lacking = lacking_records(needed, store, finished)
    names = cells_to_run(cells, finished, lacking)
    names |= sources_to_run(needed.sources_wanted(names), store, finished)
    steps = needed.checkpoints_wanted(names)
    chosen_pretrainings = {cell.pretraining for cell in cells if cell.pretraining}
    names |= pretrainings_to_run(plan, chosen_pretrainings, steps, store, finished)
    return WorkLeft(
        plan=plan, cells=cells, finished=finished, lacking=lacking, jobs=in_order(plan, names)
    )


def lacking_records(needed: NeededWeights, store: Store, finished: Finished) -> dict[str, str]:
    """What finished cells lack that the plan asks of them, by id: a model or test predictions.

    Raises UserError where a model that is kept cannot be read.
    """
    plan = needed.plan
    lacking = {}
    for cell in plan.cells:
        record = finished.records.get(cell.id)
        if record is None:
            continue
        reason = lacks(record, plan.tasks[cell.task])
        if not reason and needed.keep and store.models.find(record) is None:
            reason = NO_MODEL
        if reason:
            lacking[cell.id] = reason
    if not lacking:  # the board is made only where it matters
        return {}
    asked = needed.cells_asked(store)
    return {name: reason for name, reason in lacking.items() if name in asked}


def cells_to_run(cells: Sequence[Cell], finished: Finished, lacking: Collection[str]) -> set[str]:
    """The chosen cells without a record that counts, or with one that lacks something."""
    return {cell.id for cell in cells if cell.id not in finished.records or cell.id in lacking}


def sources_to_run(sources: Collection[str], store: Store, finished: Finished) -> set[str]:
    """The MNLI cells among `sources` whose model is not there."""

    def has_model(name: str) -> bool:
        record = finished.records.get(name)
        return (
            record is not None
            and record.weights is not None
            and store.models.find(record) is not None
        )

    return {name for name in sources if not has_model(name)}


def pretrainings_to_run(
    plan: Plan,
    chosen: Collection[str],
    steps: Mapping[str, Collection[int]],
    store: Store,
    finished: Finished,
) -> set[str]:
    """The pretrainings and the runs of their searches that have to run.

    Args:
        plan: of the sweep.
        chosen: the pretrainings of chosen cells, which run if they have no record, as do their searches.
        steps: the checkpoints that cells will start from, by pretraining; it runs if one of them is not there.
        store: where checkpoints are.
        finished: what is stored of the plan.
    """
    recorded = finished.pretrainings
    names: set[str] = set()
    for job in plan.pretrainings:
        if job.id in chosen:
            names.update({job.id, *job.searches}.difference(recorded))
        digests = (recorded[job.id].weights if job.id in recorded else None) or {}
        if not all(
            store.checkpoints.has(job.id, step, digests.get(step)) for step in steps.get(job.id, ())
        ):
            names.add(job.id)
    return names


def in_order(plan: Plan, names: Collection[str]) -> list[Job]:
    """The jobs of these ids, each after those that it waits for, else in the order of the plan."""
    searches = [job for job in plan.pretrainings if job.is_search and job.id in names]
    pretrainings = [job for job in plan.pretrainings if not job.is_search and job.id in names]
    sources = [cell for cell in plan.cells if cell.mnli is None and cell.id in names]
    followers = [cell for cell in plan.cells if cell.mnli is not None and cell.id in names]
    return [*searches, *pretrainings, *sources, *followers]


def reasons(work: WorkLeft, store: Store) -> dict[str, str]:
    """Why each job is to run, by its id."""
    plan = work.plan
    finished = work.finished
    failures = {failure.id: failure.error for failure in store.failures(plan, finished.done)}
    starts = {name for job in plan.jobs if job.id in finished.done for name in job.after}
    earlier = EarlierJobs(plan, store, finished)
    records = {**finished.records, **finished.outdated}

    def reason(job: Job) -> str:
        if job.id in failures:
            return f"it failed: {failures[job.id]}"
        if job.id in finished.outdated:
            start = replaced_start(finished.outdated[job.id], records, finished.pretrainings)
            is_pretraining = start in earlier.pretrainings
            return START_REPLACED.format(start="a pretraining" if is_pretraining else "an MNLI run")
        if job.id in work.lacking:
            return work.lacking[job.id]
        if job.id in finished.done:
            return GONE_WEIGHTS
        if job.id in finished.problems:
            return DAMAGED
        if job.id in starts:
            return GONE_RECORD
        return earlier.difference(job)

    return {job.id: reason(job) for job in work.jobs}


class EarlierJobs:
    """The finished jobs in a folder that the plan leaves out, to compare new jobs with."""

    def __init__(self, plan: Plan, store: Store, finished: Finished) -> None:
        cells = [record.cell for record in store.records_outside(plan)]
        started_from = sorted({cell.pretraining for cell in cells if cell.pretraining})
        records = [store.pretraining(name) for name in started_from]
        pretrainings = [record.pretraining for record in records if record]
        self.pretrainings = {job.id: job for job in (*plan.pretrainings, *pretrainings)}
        self.facts: defaultdict[tuple[Any, ...], list[Facts]] = defaultdict(list)
        """What decided each of them, by its place."""
        for cell in cells:
            self._add(cell)
        for job in pretrainings:
            if job.id not in finished.pretrainings:
                self._add(job)

    def difference(self, job: Job) -> str:
        """The facts in which a job differs from the most similar earlier one of its place."""
        return _difference(_facts(job, self.pretrainings), self.facts[_place(job)])

    def _add(self, job: Job) -> None:
        self.facts[_place(job)].append(_facts(job, self.pretrainings))


def _place(job: Job) -> tuple[Any, ...]:
    return tuple(getattr(job, name, None) for name in PLACE_FIELDS)


def _difference(now: Facts, stored: Sequence[Facts]) -> str:
    if not stored:
        return NOT_RUN
    apart = [{name for name in was | now if was.get(name) != now.get(name)} for was in stored]
    changed, was = min(zip(apart, stored, strict=True), key=lambda pair: len(pair[0]))
    if "pretraining.steps" in changed:
        changed.discard("steps")  # which says as much

    def text(value: Any) -> str:
        shown = value if isinstance(value, str) else json.dumps(value)
        return "-" if value is None else re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}", r"\1", shown)

    changes = (f"{name} {text(was.get(name))} -> {text(now.get(name))}" for name in sorted(changed))
    return ", ".join(changes) or COMPUTES_OTHERWISE


def _facts(job: Job, pretrainings: Mapping[str, Pretraining]) -> Facts:
    """What decides a job, named as in the experiment file; a pretraining that it starts from by its own facts."""

    def flat(document: Facts, before: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in document.items():
            if name == "checkpoint" and value.startswith(f"{SCRATCH} "):
                yield from flat({SCRATCH: json.loads(value.removeprefix(SCRATCH))})
            elif isinstance(value, dict):
                yield from flat(value, section if name == "settings" else f"{before}{name}.")
            elif name != "searches":
                yield before + name, value

    section = f"{job.section}."
    facts = dict(flat(job.hashed))
    start = pretrainings.get(facts.pop("pretraining", None) or "")
    return facts if start is None else _facts(start, pretrainings) | facts


def longest_first(jobs: Sequence[Job], plan: Plan) -> list[Job]:
    """Put the longest jobs first, so that none of them is left to the end. Equals keep their order.

    Each of `jobs` comes after those that it waits for. A job's length includes the longest chain of jobs that wait for
    it.
    """
    lengths: dict[str, float] = {}
    chains: defaultdict[str, float] = defaultdict(float)  # of those that wait for a job
    for job in reversed(jobs):
        lengths[job.id] = plan.cost(job) + chains[job.id]
        for name in job.after:
            chains[name] = max(chains[name], lengths[job.id])
    return sorted(jobs, key=lambda job: -lengths[job.id])
