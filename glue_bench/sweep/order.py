"""What jobs are expected to cost, and the order that lets many workers end together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from glue_bench.records.plan import Plan
from glue_bench.sweep.jobs import Job, PlannedCell
from glue_bench.training.inputs import Inputs

SPECIAL_TOKENS = 3
CHARACTERS_A_TOKEN = 4.0  # English in WordPieces; only ratios between tasks matter


def longest_first(jobs: Sequence[Job], cost: Callable[[Job], float]) -> list[Job]:
    """The longest jobs first, so that none of them is left to the end.

    One that others wait for counts with the longest chain of them: they can only come after it. Equals keep their
    order.
    """
    followers: dict[str, list[Job]] = {}
    for job in jobs:
        for name in job.after:
            followers.setdefault(name, []).append(job)

    @cache
    def chain(name: str) -> float:
        return max((cost(job) + chain(job.id) for job in followers.get(name, ())), default=0.0)

    return sorted(jobs, key=lambda job: -(cost(job) + chain(job.id)))


class Costs:
    """The expected operations of a job's training: tokens, of cells the `expected_tokens`, x operations a token."""

    def __init__(self, tokens: Mapping[str, float], operations: Mapping[str, float]) -> None:
        """`tokens` of a cell by the task's name, `operations` of each arm's encoder for a token by the arm's."""
        self.tokens, self.operations = tokens, operations

    def __call__(self, job: Job) -> float:
        if isinstance(job, PlannedCell):
            return self.tokens[job.cell.task] * self.operations[job.arm]
        return job.run.settings.steps * job.run.settings.batch_tokens * self.operations[job.arm]


def costs_of(plan: Plan) -> Costs:
    """What the jobs of a plan are expected to cost."""
    return Costs(plan.training_tokens, {name: facts.flops_per_token or 0 for name, facts in plan.arms.items()})


def expected_tokens(cells: Iterable[PlannedCell], inputs: Inputs) -> dict[str, int]:
    """About how many tokens a cell of each task trains on, over all epochs; from characters, nothing is tokenised."""
    settings = {planned.cell.task: planned.cell.hyperparameters for planned in cells}
    expected = {}
    for task, each in settings.items():
        frame = inputs.data(task).splits["train"]
        characters = frame[[column for column in ("text_a", "text_b") if column in frame]].map(len).sum(axis="columns")
        estimated = (characters / CHARACTERS_A_TOKEN + SPECIAL_TOKENS).clip(upper=each.max_length)
        in_epoch = -(-len(frame) // each.batch_size)
        expected[task] = round(float(estimated.sum()) * each.steps(in_epoch) / in_epoch)
    return expected
