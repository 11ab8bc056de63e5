"""The jobs that are left to run, in an order that lets many workers end together. No torch."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from glue_bench.records.done import NO_MODEL, lacks
from glue_bench.records.finished import Finished
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Job, Plan, Pretraining, PretrainingRecord
from glue_bench.sweep.rates import choose_rate
from glue_bench.sweep.weights import NeededWeights


@dataclass(frozen=True, kw_only=True)
class WorkLeft:
    """The work that is left for the chosen cells of a plan.

    Attributes:
        plan: the plan of the sweep.
        cells: the chosen cells.
        finished: the stored results of the plan.
        incomplete: the results that the plan asks for and that finished cells lack, by id.
        jobs: the jobs to run, each after the jobs that it waits for.
    """

    plan: Plan
    cells: Sequence[Cell]
    finished: Finished
    incomplete: Mapping[str, str]
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

    The work is cells, the MNLI cells and pretrainings that they start from, and the runs of rate
    searches. `records/done.py` says which records count and which are complete. Raises UserError if
    a file beside a record cannot be read.
    """
    needed = NeededWeights(plan)
    finished = store.finished(plan)
    incomplete = lacking_records(needed, store, finished)
    names = cells_to_run(cells, finished, incomplete)
    names |= sources_to_run(needed.sources_wanted(names), store, finished)
    steps = needed.checkpoints_wanted(names)
    chosen_pretrainings = {cell.pretraining for cell in cells if cell.pretraining}
    names |= pretrainings_to_run(plan, chosen_pretrainings, steps, store, finished)
    jobs = in_order(plan, names)
    return WorkLeft(plan=plan, cells=cells, finished=finished, incomplete=incomplete, jobs=jobs)


def lacking_records(needed: NeededWeights, store: Store, finished: Finished) -> dict[str, str]:
    """Return what the plan asks of finished cells and they lack: models or test predictions.

    Raises UserError where a model that is kept cannot be read.
    """
    plan = needed.plan
    incomplete = {}
    for cell in plan.cells:
        record = finished.records.get(cell.id)
        if record is None:
            continue
        reason = lacks(record, plan.tasks[cell.task])
        keeps = needed.keep and cell.is_trained
        if not reason and keeps and store.models.find(record) is None:
            reason = NO_MODEL
        if reason:
            incomplete[cell.id] = reason
    if not incomplete:  # the board is made only if it matters
        return {}
    asked = needed.cells_asked(store)
    for name in incomplete.keys() - asked:
        del incomplete[name]
    return incomplete


def cells_to_run(
    cells: Sequence[Cell], finished: Finished, incomplete: Collection[str]
) -> set[str]:
    """Return the chosen cells without a record that counts and is complete."""
    names: set[str] = set()
    for cell in cells:
        if cell.id not in finished.records or cell.id in incomplete:
            names.add(cell.id)
    return names


def sources_to_run(sources: Collection[str], store: Store, finished: Finished) -> set[str]:
    """Return the MNLI cells among `sources` whose model is not there."""
    names: set[str] = set()
    for name in sources:
        record = finished.records.get(name)
        if record is None or record.weights is None or store.models.find(record) is None:
            names.add(name)
    return names


def pretrainings_to_run(
    plan: Plan,
    chosen: Collection[str],
    steps: Mapping[str, Collection[int]],
    store: Store,
    finished: Finished,
) -> set[str]:
    """Return the pretrainings, and the runs of their searches, that have to run.

    Args:
        plan: the plan of the sweep.
        chosen: the pretrainings of chosen cells. A pretraining without a record runs, and its
            search, too.
        steps: the checkpoints that cells will start from, by pretraining. A pretraining runs if one
            of its checkpoints is not there.
        store: where checkpoints are.
        finished: the stored results of the plan.
    """
    recorded = finished.pretrainings
    names: set[str] = set()
    for job in plan.pretrainings:
        if job.id in chosen:
            names.update({job.id, *job.searches}.difference(recorded))
        record = recorded.get(job.id)
        if job.id in chosen and record and has_other_rate(record, recorded):
            names.add(job.id)
        digests = (record.weights if record else None) or {}
        for step in steps.get(job.id, ()):
            if not store.checkpoints.has(job.id, step, digests.get(step)):
                names.add(job.id)
    return names


def has_other_rate(
    record: PretrainingRecord, pretrainings: Mapping[str, PretrainingRecord]
) -> bool:
    """Return whether the search for a pretraining's rate ran again and chooses another rate.

    Args:
        record: the record of the pretraining.
        pretrainings: the records of pretrainings and searches, by id. If a search has no record,
            nothing is known.
    """
    searches = record.pretraining.searches
    if not searches or any(name not in pretrainings for name in searches):
        return False
    rate = choose_rate(pretrainings[name] for name in searches).rate
    return rate not in (None, record.pretraining.rate)


def in_order(plan: Plan, names: Collection[str]) -> list[Job]:
    """Sort the jobs with these ids: each after the jobs that it waits for, else as in the plan."""
    searches: list[Job] = []
    pretrainings: list[Job] = []
    sources: list[Job] = []
    followers: list[Job] = []
    for job in plan.pretrainings:
        if job.id in names:
            (searches if job.is_search else pretrainings).append(job)
    for cell in plan.cells:
        if cell.id in names:
            (sources if cell.mnli is None else followers).append(cell)
    return [*searches, *pretrainings, *sources, *followers]


def longest_first(jobs: Sequence[Job], plan: Plan) -> list[Job]:
    """Put the longest jobs first, so that none is left to the end. Equal jobs keep their order.

    Each of `jobs` comes after the jobs that it waits for. A job's length includes the longest chain
    of jobs that wait for it.
    """
    lengths: dict[str, float] = {}
    chains: defaultdict[str, float] = defaultdict(float)  # the longest wait after each job
    for job in reversed(jobs):
        lengths[job.id] = plan.cost(job) + chains[job.id]
        for job_id in job.prerequisites:
            chains[job_id] = max(chains[job_id], lengths[job.id])
    return sorted(jobs, key=lambda job: -lengths[job.id])
