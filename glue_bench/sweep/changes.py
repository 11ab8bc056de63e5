"""Why a job runs: what it lacks, or in which facts it differs from the nearest record that is stored."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from glue_bench.records.plan import Plan
from glue_bench.records.stored import Finished, Stored
from glue_bench.records.values import Cell, Job, Pretraining

NEW = "not run yet"
DAMAGED = "its record is damaged"
GONE = "its weights are gone, and others start from them"
LACKING = "it has left no model or no test predictions, which are asked for"
OTHERWISE = "glue-bench computes otherwise since"
DIGITS = 12  # of a digest
Facts = dict[str, Any]


def reasons(jobs: Sequence[Job], plan: Plan, store: Stored, finished: Finished) -> dict[str, str]:
    """By id why each of these jobs is to run."""
    failures = {failure.id: failure.error for failure in store.failures(plan)}
    damaged = {line.split("/")[1] for line in finished.problems}
    starts = {name for job in jobs for name in job.after}
    earlier = [record.cell for record in store.strays(plan)]
    begun = {cell.pretraining for cell in earlier if cell.pretraining}
    made = [record.pretraining for name in sorted(begun) if (record := store.pretraining(name))]
    pretrainings = {job.id: job for job in (*plan.pretrainings, *made)}
    others = defaultdict[tuple[Any, ...], list[Facts]](list)
    stored: list[Job] = [*earlier, *(job for job in made if job.id not in finished.pretrainings)]
    for other in stored:
        others[_place(other)].append(_facts(other, pretrainings))

    def why(job: Job) -> str:
        if job.id in failures:
            return f"it failed: {failures[job.id]}"
        if job.id in finished.records or job.id in finished.pretrainings:
            return GONE if job.id in starts else LACKING
        return DAMAGED if job.id in damaged else _difference(_facts(job, pretrainings), others[_place(job)])

    return {job.id: why(job) for job in jobs}


def _difference(now: Facts, stored: Sequence[Facts]) -> str:
    """The facts in which a job differs from the most similar one of its place that is stored."""
    if not stored:
        return NEW
    apart = [{name for name in was | now if was.get(name) != now.get(name)} for was in stored]
    changed, was = min(zip(apart, stored, strict=True), key=lambda pair: len(pair[0]))
    if "pretraining.steps" in changed:
        changed.discard("steps")  # which says as much
    return (
        ", ".join(f"{name} {_text(was.get(name))} -> {_text(now.get(name))}" for name in sorted(changed)) or OTHERWISE
    )


def _place(job: Job) -> tuple[Any, ...]:
    if isinstance(job, Cell):
        return job.arm, job.task, job.seed, job.pretraining_seed
    return job.arm, job.seed, job.is_search


def _facts(job: Job, pretrainings: Mapping[str, Pretraining]) -> Facts:
    """What decides a job, named as in the experiment file; a pretraining that it starts from by its own facts."""
    section = "finetuning." if isinstance(job, Cell) else "pretraining."
    facts = {name.replace("settings.", section, 1): value for name, value in _flat(job.hashed)}
    start = pretrainings.get(facts.pop("pretraining", None) or "")
    return facts if start is None else _facts(start, pretrainings) | facts


def _flat(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif not (isinstance(value, list) and name == "searches"):
            yield before + name, value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return value[:DIGITS] if isinstance(value, str) else json.dumps(value)
