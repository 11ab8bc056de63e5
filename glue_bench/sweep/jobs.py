"""What is left to do of a plan and why, and the order that lets many workers end together. No torch."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Job, Plan, Pretraining, PretrainingRecord

DIGITS = 12  # of a digest
Facts = dict[str, Any]


class Todo:
    """What chosen `cells` of a plan lack, by what is stored.

    `left` are the ids of those that are not done. They have no record, or have not left the model or the test
    predictions that the experiment asks for: with `keep: all` of every cell, else of those that a submission takes.
    `jobs` has to run for them, each after those that it waits for. So others run, too, perhaps again: an MNLI cell
    without the model, or a pretraining without a checkpoint, that one of them starts from; and runs of a search without
    a record. `tested` are the tasks whose data have test splits.

    Raises:
        UserError: what is stored beside a record cannot be read.
    """

    def __init__(self, plan: Plan, cells: Sequence[Cell], store: Store, tested: Collection[str]) -> None:
        self.plan, self.cells, self.store, self.finished = plan, cells, store, store.finished(plan)
        records, tuning, lacking = self.finished.records, plan.experiment.finetuning, set()
        for name, record in records.items():
            has_model = not tuning.keep or store.model(record) is not None
            has_tests = not tuning.predicts_test or record.tests is not None or record.cell.task not in tested
            if not (has_model and has_tests):
                lacking.add(name)
        if lacking and tuning.keep != "all":
            lacking &= {*chosen(store)}
        self.left = {cell.id for cell in cells if cell.id not in records or cell.id in lacking}
        self.jobs = self._jobs()

    def _jobs(self) -> list[Job]:
        cells, starts = {cell.id: cell for cell in self.plan.cells}, self.plan.pretrainings
        sources = {source for name in self.left if (source := cells[name].mnli)}
        runs = self.left | {name for name in sources if not self._has_model(name)}
        steps = defaultdict[str | None, set[int | None]](set)
        for name in runs:
            steps[cells[name].pretraining].add(cells[name].steps)
        trained = [job for job in starts if job.id in steps and not self._has_weights(job.id, steps[job.id])]
        searches = {name for job in trained for name in job.searches}.difference(self.finished.pretrainings)
        tuned = [cell for cell in self.plan.cells if cell.id in runs]
        before = [job for job in starts if job.id in searches]
        return [*before, *trained, *sorted(tuned, key=lambda cell: cell.mnli is not None)]

    def _has_model(self, cell: str) -> bool:
        record = self.finished.records.get(cell)
        return record is not None and record.weights is not None and self.store.model(record) is not None

    def _has_weights(self, name: str, steps: Collection[int | None]) -> bool:
        """Whether a pretraining has a record, and the checkpoints after these steps, of the run that it records."""
        record = self.finished.pretrainings.get(name)
        weights = record.weights if record else None
        return weights is not None and all(self.store.holds(name, step, weights.get(step)) for step in steps if step)

    def reasons(self) -> dict[str, str]:
        """By id why each of the jobs is to run."""
        plan, store, finished = self.plan, self.store, self.finished
        failures = {failure.id: failure.error for failure in store.failures(plan)}
        damaged = {line.split("/")[1] for line in finished.problems}
        starts = {name for job in self.jobs for name in job.after}
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
                if job.id in starts:
                    return "its weights are gone, and others start from them"
                return "it has left no model or no test predictions, which are asked for"
            if job.id in damaged:
                return "its record is damaged"
            return _difference(_facts(job, pretrainings), others[_place(job)])

        return {job.id: why(job) for job in self.jobs}


def chosen(store: Store) -> Collection[str]:
    """The finished cells that a submission takes, by the plan that is stored."""
    from glue_bench.tables.board import open_board
    from glue_bench.tables.submission import chosen_runs

    return chosen_runs(open_board(store.folder)) if store.has_plan else ()


def _difference(now: Facts, stored: Sequence[Facts]) -> str:
    """The facts in which a job differs from the most similar one of its place that is stored."""
    if not stored:
        return "not run yet"
    apart = [{name for name in was | now if was.get(name) != now.get(name)} for was in stored]
    changed, was = min(zip(apart, stored, strict=True), key=lambda pair: len(pair[0]))
    if "pretraining.steps" in changed:
        changed.discard("steps")  # which says as much

    def text(value: Any) -> str:
        return "-" if value is None else value[:DIGITS] if isinstance(value, str) else json.dumps(value)

    changes = (f"{name} {text(was.get(name))} -> {text(now.get(name))}" for name in sorted(changed))
    return ", ".join(changes) or "glue-bench computes otherwise since"


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


def best_rate(runs: Collection[PretrainingRecord]) -> tuple[float | None, str]:
    """The learning rate of the lowest mean loss over the runs of a pretraining's search, and these losses in words.

    Of equals it is the lower rate; None where each of them diverged.
    """
    losses = defaultdict[float, list[float]](list)
    for record in runs:
        loss = math.inf if record.validation_loss is None else record.validation_loss
        losses[record.pretraining.settings.learning_rate].append(loss)
    means = {rate: sum(each) / len(each) for rate, each in sorted(losses.items())}
    best = min((rate for rate in means if math.isfinite(means[rate])), key=means.__getitem__, default=None)
    told = (f"{rate:g}: {f'{loss:.4f}' if math.isfinite(loss) else 'diverged'}" for rate, loss in means.items())
    return best, ", ".join(told)


def longest_first(jobs: Sequence[Job], plan: Plan) -> list[Job]:
    """The longest jobs first, so that none of them is left to the end.

    One that others wait for counts with the longest chain of them: they can only come after it. Equals keep their
    order.
    """
    cost, followers = costs(jobs, plan), defaultdict[str, list[Job]](list)
    for job in jobs:
        for name in job.after:
            followers[name].append(job)

    @cache
    def chain(name: str) -> float:
        return max((cost[job.id] + chain(job.id) for job in followers[name]), default=0.0)

    return sorted(jobs, key=lambda job: -(cost[job.id] + chain(job.id)))


def costs(jobs: Sequence[Job], plan: Plan) -> dict[str, float]:
    """By id the expected operations of each job's training: tokens x operations a token."""
    tokens = {
        job.id: plan.tokens[job.task] if isinstance(job, Cell) else job.settings.steps * job.settings.batch_tokens
        for job in jobs
    }
    return {job.id: tokens[job.id] * (plan.arms[job.arm].flops_per_token or 0) for job in jobs}
