"""What cells are expected to cost, and the order that lets many workers end together."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from glue_bench.config import Cell
from glue_bench.sweep.plan import PlannedCell
from glue_bench.training.inputs import Inputs

SPECIAL_TOKENS = 3
CHARACTERS_A_TOKEN = 4.0  # English in WordPieces; only ratios between tasks matter


def longest_first(cells: Sequence[PlannedCell], cost: Callable[[Cell], float]) -> list[PlannedCell]:
    """The longest cells first, so that none of them is left to the end.

    One that others start from counts with the longest of them: they can only come after it. Equals keep their order.
    """
    after: dict[str, float] = {}
    costs = {planned.id: cost(planned.cell) for planned in cells}
    for planned in cells:
        if planned.mnli:
            after[planned.mnli] = max(after.get(planned.mnli, 0.0), costs[planned.id])
    return sorted(cells, key=lambda planned: -(costs[planned.id] + after.get(planned.id, 0.0)))


class Costs:
    """The expected operations of a cell's training: tokens, of `expected_tokens`, x operations a token."""

    def __init__(self, tokens: Mapping[str, float], operations: Mapping[str, float]) -> None:
        """`tokens` by the task's name, `operations` of each arm's encoder for a token by the arm's."""
        self.tokens, self.operations = tokens, operations

    def __call__(self, cell: Cell) -> float:
        return self.tokens[cell.task] * self.operations[cell.arm.name]


def expected_tokens(cells: Iterable[PlannedCell], inputs: Inputs) -> dict[str, int]:
    """About how many tokens a cell of each task trains on, over all epochs; from characters, nothing is tokenised."""
    settings = {planned.cell.task: planned.cell.hyperparameters for planned in cells}
    return {task: _tokens(task, each.max_length, inputs) * each.epochs for task, each in settings.items()}


def _tokens(task: str, max_length: int, inputs: Inputs) -> int:
    frame = inputs.data(task).splits["train"]
    texts = frame[[column for column in ("text_a", "text_b") if column in frame]]
    characters = texts.map(len).sum(axis="columns")
    estimated = characters / CHARACTERS_A_TOKEN + SPECIAL_TOKENS
    return round(float(estimated.clip(upper=max_length).sum()))
