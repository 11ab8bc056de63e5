"""What an experiment asks for, and what of it is left to do."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from glue_bench.data.task_data import known_labels
from glue_bench.files import results_written_to
from glue_bench.records.store import Store
from glue_bench.sweep.encoders import is_pretrained
from glue_bench.sweep.jobs import Job, PlannedCell, PlannedPretraining
from glue_bench.sweep.older import as_stored
from glue_bench.sweep.options import RunOptions
from glue_bench.sweep.order import costs_of, longest_first
from glue_bench.sweep.plan import in_order, plan_cells, pretrainings_of, select
from glue_bench.sweep.records import make_plan
from glue_bench.training.inputs import Inputs


@dataclass(frozen=True)
class Work:
    """The cells of a sweep, by what is stored.

    `cells` are all that the experiment asks for, `chosen` those of them that `only` selects. The `waiting` ones are to
    be run, in this order; an MNLI cell that has a record is among them if its encoder is needed again. `pretraining`
    are those whose checkpoints these cells lack, or the record of how they were made. `jobs` are both, in the order in
    which they are begun, `costs` the operations that each of them is expected to take.
    """

    cells: Sequence[PlannedCell]
    chosen: Sequence[PlannedCell]
    unfinished: Sequence[PlannedCell]
    waiting: Sequence[PlannedCell]
    pretraining: Sequence[PlannedPretraining]
    jobs: Sequence[Job] = ()
    costs: dict[str, float] = field(default_factory=dict)

    @property
    def all_jobs(self) -> list[Job]:
        """Pretrainings, then cells."""
        return [*self.pretraining, *self.waiting]


def plan_work(inputs: Inputs, store: Store, options: RunOptions) -> Work:
    """Check the experiment and compare its cells with what is stored.

    Raises:
        UserError: as `plan_cells` and `select`.
    """
    asked = plan_cells(inputs.experiment, inputs)
    renewed = select(asked, options.only) if options.again else ()
    cells = as_stored(asked, inputs, store, renewed)
    chosen = select(cells, options.only)
    unfinished = [planned for planned in chosen if not store.has_record(planned.id)]
    waiting = in_order(unfinished, cells, inputs)
    lacking = [job for job in pretrainings_of(waiting, inputs) if not is_pretrained(job, inputs, store)]
    # Runs of rate searches only where their result is still needed.
    searches = {name for job in lacking for name in job.searches}
    return Work(cells, chosen, unfinished, waiting, [job for job in lacking if not job.is_search or job.id in searches])


def write_plan(work: Work, inputs: Inputs, store: Store, options: RunOptions) -> Work:
    """Store the plan, and the gold labels without which no statistic can be recomputed from the folder alone.

    Returns the work with its jobs and what they cost: pretrainings first, or, where jobs run side by side, in the order
    that lets all workers end together.

    Raises:
        UserError: the folder cannot be written.
    """
    store.prepare()
    plan = make_plan(inputs.experiment, inputs, list(work.cells))
    with results_written_to(store.folder):
        store.write_plan(plan)
        for task in inputs.experiment.tasks:
            data = inputs.data(task)
            if labels := known_labels(data):
                store.write_labels(task, data.digest, labels)
    cost, jobs = costs_of(plan), work.all_jobs
    costs = {job.id: cost(job) for job in jobs}
    return replace(work, jobs=longest_first(jobs, cost) if options.side_by_side else jobs, costs=costs)
