"""How long cells will take, from those that have ended and from what they were expected to cost."""

from collections.abc import Iterable, Mapping

GROUND = 3
"""The number of cells that must have ended before anything is said of the rest."""


class Estimate:
    """Seconds of cells that have not ended.

    Costs leave out scoring, loading and what each task's rows have of their own, so seconds per cost are learnt for
    each task; a task of which nothing has ended takes those of all others.
    """

    def __init__(self, costs: Mapping[str, float], tasks: Mapping[str, str]) -> None:
        """`costs` in any unit and `tasks`, by cell id. A cell without a cost is never estimated."""
        self.costs, self.tasks = costs, tasks
        self.ended = 0
        self._by_task: dict[str, tuple[float, float]] = {}
        self._all = (0.0, 0.0)

    def learn(self, cell_id: str, seconds: float) -> None:
        """A cell has ended after so many seconds."""
        cost = self.costs.get(cell_id)
        if not cost:
            return
        self.ended += 1
        task = self.tasks[cell_id]
        of_task = self._by_task.get(task, (0.0, 0.0))
        self._by_task[task] = of_task[0] + seconds, of_task[1] + cost
        self._all = self._all[0] + seconds, self._all[1] + cost

    def seconds_left(self, queued: Iterable[str], running: Mapping[str, float | None], at_once: int) -> float | None:
        """Until all have ended, `at_once` of them side by side; None without ground for it.

        `running` maps ids to seconds since they began, None where nobody knows: then half of it is taken as done.
        """
        waiting = list(queued)
        if self.ended < min(GROUND, len(self.costs)) or not self.ended:
            return None
        under_way = [
            seconds / 2 if since is None else max(seconds - since, 0.0)
            for seconds, since in ((self._seconds(cell_id), since) for cell_id, since in running.items())
        ]
        work = sum(map(self._seconds, waiting)) + sum(under_way)
        slots = max(1, min(at_once, len(waiting) + len(under_way)))
        return max(work / slots, *under_way, 0.0)

    def _seconds(self, cell_id: str) -> float:
        seconds, cost = self._by_task.get(self.tasks[cell_id], self._all)
        return self.costs.get(cell_id, 0.0) * seconds / cost
