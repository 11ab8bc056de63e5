"""What cells are expected to cost, and the order that lets many workers end together."""

from collections.abc import Callable, Mapping, Sequence

from glue_bench.config import Cell
from glue_bench.sweep.plan import PlannedCell
from glue_bench.training.workspace import Workspace

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
    """The expected operations of a cell's training: tokens x epochs x operations a token. Tokens are estimated."""

    def __init__(self, workspace: Workspace, operations: Mapping[str, float]) -> None:
        """`operations` of each arm's encoder for a token, by the arm's name."""
        self.workspace = workspace
        self.operations = operations
        self._tokens: dict[tuple[str, int], float] = {}

    def __call__(self, cell: Cell) -> float:
        settings = cell.hyperparameters
        return self._tokens_of(cell.task, settings.max_length) * settings.epochs * self.operations[cell.arm.name]

    def _tokens_of(self, task: str, max_length: int) -> float:
        key = (task, max_length)
        if key not in self._tokens:
            frame = self.workspace.data(task).splits["train"]
            texts = frame[[column for column in ("text_a", "text_b") if column in frame]]
            characters = texts.map(len).sum(axis="columns")
            estimated = characters / CHARACTERS_A_TOKEN + SPECIAL_TOKENS
            self._tokens[key] = float(estimated.clip(upper=max_length).sum())
        return self._tokens[key]
