"""What is left to do of a plan and why, and the order that lets many workers end together."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from glue_bench.records.store import Finished, Store
from glue_bench.records.values import Cell, Job, Plan, Pretraining, PretrainingRecord

DIGITS = 12  # of a digest
Facts = dict[str, Any]


def todo(plan: Plan, store: Store, finished: Finished, asked: Collection[str]) -> list[Job]:
    """What has to run so that the cells `asked` for have records, each job after those that it waits for.

    Cells are asked for again where something is `lacking`. Others run for them, perhaps again: an MNLI cell without the
    model, or a pretraining without a checkpoint, that one of them starts from; and runs of a search without a record.
    """
    cells = {cell.id: cell for cell in plan.cells}
    sources = {source for name in asked if (source := cells[name].mnli)}
    runs = {*asked, *(name for name in sources if not _has_model(name, store, finished))}
    steps = defaultdict[str | None, set[int | None]](set)
    for name in runs:
        steps[cells[name].pretraining].add(cells[name].steps)
    trained = [job for job in plan.pretrainings if job.id in steps and not _holds(job, steps[job.id], store, finished)]
    searches = {name for job in trained for name in job.searches}.difference(finished.pretrainings)
    before = [job for job in plan.pretrainings if job.id in searches]
    chosen = [cell for cell in plan.cells if cell.id in runs]
    return [*before, *trained, *sorted(chosen, key=lambda cell: cell.mnli is not None)]


def _has_model(cell: str, store: Store, finished: Finished) -> bool:
    record = finished.records.get(cell)
    return record is not None and record.weights is not None and store.model(record) is not None


def _holds(job: Pretraining, steps: Collection[int | None], store: Store, finished: Finished) -> bool:
    """Whether a pretraining has a record, and the checkpoints after these steps, of the run that it records."""
    record = finished.pretrainings.get(job.id)
    weights = record.weights if record else None
    return weights is not None and all(store.holds(job.id, step, weights.get(step)) for step in steps if step)


def lacking(
    plan: Plan, store: Store, finished: Finished, tested: Collection[str], choose: Callable[[], Collection[str]]
) -> set[str]:
    """Finished cells that have not left what the experiment asks for: a model, or test predictions. They run again.

    With `keep: all` these are all such cells, else the chosen ones, which a submission takes. `tested` are the tasks
    whose data have test splits.
    """
    tuning, found = plan.experiment.finetuning, set()
    for name, record in finished.records.items():
        has_model = not tuning.keep or store.model(record) is not None
        has_tests = not tuning.predicts_test or record.tests is not None or record.cell.task not in tested
        if not (has_model and has_tests):
            found.add(name)
    return found if tuning.keep == "all" or not found else found & {*choose()}


def reasons(jobs: Sequence[Job], plan: Plan, store: Store, finished: Finished) -> dict[str, str]:
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
            if job.id in starts:
                return "its weights are gone, and others start from them"
            return "it has left no model or no test predictions, which are asked for"
        if job.id in damaged:
            return "its record is damaged"
        return _difference(_facts(job, pretrainings), others[_place(job)])

    return {job.id: why(job) for job in jobs}


def _difference(now: Facts, stored: Sequence[Facts]) -> str:
    """The facts in which a job differs from the most similar one of its place that is stored."""
    if not stored:
        return "not run yet"
    apart = [{name for name in was | now if was.get(name) != now.get(name)} for was in stored]
    changed, was = min(zip(apart, stored, strict=True), key=lambda pair: len(pair[0]))
    if "pretraining.steps" in changed:
        changed.discard("steps")  # which says as much
    changes = (f"{name} {_text(was.get(name))} -> {_text(now.get(name))}" for name in sorted(changed))
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


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return value[:DIGITS] if isinstance(value, str) else json.dumps(value)


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
