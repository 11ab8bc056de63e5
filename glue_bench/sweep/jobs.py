"""What is left to do of a plan, what each job waits for, and the order that lets many workers end together."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from glue_bench.records.plan import Plan
from glue_bench.records.store import Store
from glue_bench.records.stored import Finished
from glue_bench.records.values import Job, Pretraining, PretrainingRecord


def todo(plan: Plan, store: Store, finished: Finished, asked: Collection[str]) -> list[Job]:
    """What has to run so that the cells `asked` for have records, each job after those that it waits for.

    Cells are asked for again where something is `lacking`. Others run for them, perhaps again: an MNLI cell without the
    model, or a pretraining without a checkpoint, that one of them starts from; and runs of a search without a record.
    """
    cells = {cell.id: cell for cell in plan.cells}
    sources = {source for name in asked if (source := cells[name].mnli)}
    runs = {*asked, *(name for name in sources if not _has_model(name, store, finished))}
    steps: dict[str | None, set[int | None]] = {}
    for name in runs:
        steps.setdefault(cells[name].pretraining, set()).add(cells[name].steps)
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


def search_losses(job: Pretraining, runs: Mapping[str, PretrainingRecord]) -> dict[float, float]:
    """By rate, the mean validation loss over the runs of a pretraining's search; infinite where one diverged."""
    losses: dict[float, list[float]] = {}
    for record in (runs[name] for name in job.searches if name in runs):
        loss = math.inf if record.validation_loss is None else record.validation_loss
        losses.setdefault(record.pretraining.settings.learning_rate, []).append(loss)
    return {rate: sum(each) / len(each) for rate, each in sorted(losses.items())}


def best_rate(losses: Mapping[float, float]) -> float | None:
    """The rate of the lowest loss, of equals the lower rate; None where each of them diverged."""
    finite = {rate: loss for rate, loss in losses.items() if math.isfinite(loss)}
    return min(finite, key=lambda rate: (finite[rate], rate), default=None)


def longest_first(jobs: Sequence[Job], plan: Plan) -> list[Job]:
    """The longest jobs first, so that none of them is left to the end.

    One that others wait for counts with the longest chain of them: they can only come after it. Equals keep their
    order.
    """
    cost, followers = costs(jobs, plan), dict[str, list[Job]]()
    for job in jobs:
        for name in job.after:
            followers.setdefault(name, []).append(job)

    @cache
    def chain(name: str) -> float:
        return max((cost[job.id] + chain(job.id) for job in followers.get(name, ())), default=0.0)

    return sorted(jobs, key=lambda job: -(cost[job.id] + chain(job.id)))


def costs(jobs: Sequence[Job], plan: Plan) -> dict[str, float]:
    """By id the expected operations of each job's training: tokens x operations a token."""
    return {job.id: _tokens(job, plan) * (plan.arms[job.arm].flops_per_token or 0) for job in jobs}


def _tokens(job: Job, plan: Plan) -> int:
    if isinstance(job, Pretraining):
        return job.settings.steps * job.settings.batch_tokens
    return plan.tokens[job.task]
