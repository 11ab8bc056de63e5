"""What is left to do of a plan and why, and the order that lets many workers end together. No torch."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from glue_bench.config import SCRATCH
from glue_bench.records.done import NO_MODEL, START_REPLACED, lacks, replaced_start
from glue_bench.records.store import Finished, Store
from glue_bench.records.values import Cell, Job, Plan, Pretraining

PLACE = ("kind", "arm", "task", "seed", "pretraining_seed", "is_search")
Facts = dict[str, Any]


class Todo:
    """What chosen `cells` of a plan lack, by what is stored: `jobs`, each after those that it waits for.

    These are cells without a record that counts, or without the model or the test predictions that the experiment asks
    for: with `keep: all` of every cell, else of those that a submission takes; an MNLI cell without the model, or a
    pretraining without a checkpoint, that one of them starts from; and what any chosen cell comes from that has no
    record: pretrainings and runs of their searches. `records/done.py` says what counts and what is lacking.
    Raises UserError where what is stored beside a record cannot be read.
    """

    def __init__(self, plan: Plan, cells: Sequence[Cell], store: Store) -> None:
        self.plan, self.cells, self.store = plan, cells, store
        self.finished = self.store.finished(plan)
        records, trained = self.finished.records, self.finished.pretrainings
        self.lacking = lacking_records(self.store, plan, self.finished)
        runs = {cell.id for cell in cells if cell.id not in records or cell.id in self.lacking}
        planned = {cell.id: cell for cell in plan.cells}
        steps = defaultdict[str, set[int]](set)
        for source in filter(None, [planned[name].mnli for name in runs]):
            record = records.get(source)
            if record is None or record.weights is None or self.store.model(record) is None:
                runs.add(source)
        for cell in map(planned.__getitem__, runs):
            if cell.pretraining and cell.steps:
                steps[cell.pretraining].add(cell.steps)
        weights = {name: record.weights or {} for name, record in trained.items()}  # of the run that it records
        named = {cell.pretraining for cell in cells}
        wanted = [
            job
            for job in plan.pretrainings
            if (job.id in named and job.id not in trained)
            or not all(self.store.holds(job.id, step, weights.get(job.id, {}).get(step)) for step in steps[job.id])
        ]
        searches = {name for job in plan.pretrainings if job.id in named for name in job.searches}.difference(trained)
        before = [job for job in plan.pretrainings if job.id in searches]
        tuned = sorted((cell for cell in plan.cells if cell.id in runs), key=lambda cell: cell.mnli is not None)
        self.jobs: list[Job] = [*before, *wanted, *tuned]

    def reasons(self) -> dict[str, str]:
        """By id why each of the jobs is to run."""
        plan, store, finished = self.plan, self.store, self.finished
        failures = {failure.id: failure.error for failure in store.failures(plan, finished.done)}
        done = finished.done
        started = {name for job in plan.jobs if job.id in done for name in job.after}
        earlier = [record.cell for record in store.strays(plan)]
        begun = sorted({cell.pretraining for cell in earlier if cell.pretraining})
        made = [record.pretraining for name in begun if (record := store.pretraining(name))]
        pretrainings = {job.id: job for job in (*plan.pretrainings, *made)}

        stored_records = {**finished.records, **finished.outdated}

        def place(job: Job) -> tuple[Any, ...]:
            return tuple(getattr(job, name, None) for name in PLACE)

        others: list[Job] = [*earlier, *(job for job in made if job.id not in finished.pretrainings)]
        stored = defaultdict[tuple[Any, ...], list[Facts]](list)
        for other in others:
            stored[place(other)].append(_facts(other, pretrainings))

        def why(job: Job) -> str:
            if job.id in failures:
                return f"it failed: {failures[job.id]}"
            if job.id in finished.outdated:
                start = replaced_start(finished.outdated[job.id], stored_records, finished.pretrainings)
                return START_REPLACED.format(start="a pretraining" if start in pretrainings else "an MNLI run")
            if job.id in self.lacking:
                return self.lacking[job.id]
            if job.id in done:
                return "its weights are gone, and others start from them"
            if job.id in finished.problems:
                return "its record is damaged"
            if job.id in started:
                return "its record is gone, and finished runs started from it"
            return _difference(_facts(job, pretrainings), stored[place(job)])

        return {job.id: why(job) for job in self.jobs}


def lacking_records(store: Store, plan: Plan, finished: Finished) -> dict[str, str]:
    """By id what finished cells lack that the plan asks of them: a model or test predictions.

    With `keep: all` these are asked of every cell, else of those that a submission takes. Raises UserError where a
    model that is kept cannot be read.
    """
    keep = plan.experiment.finetuning.keep
    lacking = {}
    for cell in plan.cells:
        record = finished.records.get(cell.id)
        if record is None:
            continue
        reason = lacks(record, plan.tasks[cell.task])
        if not reason and keep and store.model(record) is None:
            reason = NO_MODEL
        if reason:
            lacking[cell.id] = reason
    if lacking and keep != "all":
        taken = chosen(store, plan)
        lacking = {name: reason for name, reason in lacking.items() if name in taken}
    return lacking


def chosen(store: Store, plan: Plan) -> Collection[str]:
    """The finished cells of a plan that a submission takes."""
    from glue_bench.board.board import make_board
    from glue_bench.board.chosen import chosen_runs
    from glue_bench.board.results import read_results

    return chosen_runs(make_board(read_results(store.folder, plan)))


def _difference(now: Facts, stored: Sequence[Facts]) -> str:
    """The facts in which a job differs from the most similar one of its place that is stored."""
    if not stored:
        return "not run yet"
    apart = [{name for name in was | now if was.get(name) != now.get(name)} for was in stored]
    changed, was = min(zip(apart, stored, strict=True), key=lambda pair: len(pair[0]))
    if "pretraining.steps" in changed:
        changed.discard("steps")  # which says as much

    def text(value: Any) -> str:
        shown = value if isinstance(value, str) else json.dumps(value)
        return "-" if value is None else re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}", r"\1", shown)

    changes = (f"{name} {text(was.get(name))} -> {text(now.get(name))}" for name in sorted(changed))
    return ", ".join(changes) or "glue-bench computes otherwise since"


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

    section = "finetuning." if isinstance(job, Cell) else "pretraining."
    facts = dict(flat(job.hashed))
    start = pretrainings.get(facts.pop("pretraining", None) or "")
    return facts if start is None else _facts(start, pretrainings) | facts


def longest_first(jobs: Sequence[Job], plan: Plan) -> list[Job]:
    """The longest jobs first, so that none of them is left to the end. Each of `jobs` comes after those it waits for.

    One that others wait for counts with the longest chain of them. Equals keep their order.
    """
    length, after = costs(plan), defaultdict[str, float](float)
    for job in reversed(jobs):
        length[job.id] += after[job.id]
        for name in job.after:
            after[name] = max(after[name], length[job.id])
    return sorted(jobs, key=lambda job: -length[job.id])


def costs(plan: Plan) -> dict[str, float]:
    """By id the expected operations of each job's training: tokens x operations a token."""
    tokens = {
        job.id: plan.tokens[job.task] if isinstance(job, Cell) else job.settings.steps * job.settings.batch_tokens
        for job in plan.jobs
    }
    return {job.id: tokens[job.id] * (plan.arms[job.arm].flops_per_token or 0) for job in plan.jobs}
