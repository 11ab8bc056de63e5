"""Which cell runs next: after the one that it starts from, and never one that another sweep runs or has run."""

import heapq
import time
from collections.abc import Callable, Sequence

from glue_bench.records.store import Store
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.plan import PlannedCell
from glue_bench.sweep.stop import Stop

LOOK_SECONDS = 1.0


class Schedule:
    """Hands out each cell once, claimed, in the order given.

    A cell waits for the MNLI cell that it starts from, if that one is among them. One that another sweep has claimed
    is asked for again now and then; if the other one finishes it, or it fails there, it is `ended_elsewhere`.
    """

    def __init__(
        self,
        cells: Sequence[PlannedCell],
        *,
        store: Store,
        claims: Claims,
        stop: Stop,
        is_done: Callable[[PlannedCell], bool],
        ended_elsewhere: Callable[[PlannedCell], None],
        say: Callable[[str], None],
    ) -> None:
        self.store, self.claims, self.stop = store, claims, stop
        self.is_done, self.ended_elsewhere, self.say = is_done, ended_elsewhere, say
        self._said = False
        self.left = len(cells)
        self._failures = {planned.id: store.failure_stamp(planned.id) for planned in cells}
        ids = {planned.id for planned in cells}
        self._places = {planned.id: place for place, planned in enumerate(cells)}
        self._ready = [(place, planned) for place, planned in enumerate(cells) if planned.mnli not in ids]
        self._blocked: dict[str, list[tuple[int, PlannedCell]]] = {}
        for place, planned in enumerate(cells):
            if planned.mnli in ids:
                self._blocked.setdefault(str(planned.mnli), []).append((place, planned))
        self._claimed_elsewhere: list[tuple[int, PlannedCell]] = []
        self._look_at = 0.0

    @property
    def open(self) -> bool:
        """Whether there are cells that may still be handed out."""
        return bool(self._ready or self._blocked or self._claimed_elsewhere) and not self.stop.asked

    def take(self) -> PlannedCell | None:
        """The next cell, now claimed; None if there is none at the moment."""
        self._look_again()
        while self._ready and not self.stop.asked:
            place, planned = heapq.heappop(self._ready)
            if not self.claims.take(planned.id):
                self._claimed_elsewhere.append((place, planned))
            elif self.is_done(planned) or self.store.failure_stamp(planned.id) != self._failures[planned.id]:
                self.end(planned)
                self.ended_elsewhere(planned)
            else:
                return planned
        if self._claimed_elsewhere and not self._said:
            self._said = True
            self.say("other cells are being run by another sweep; waiting for them")
        return None

    def end(self, planned: PlannedCell) -> None:
        """The cell has ended, in whatever way, and what is left of it is stored."""
        self.claims.release(planned.id)
        self.left -= 1
        for waiting in self._blocked.pop(planned.id, ()):
            heapq.heappush(self._ready, waiting)

    def lost(self, planned: PlannedCell) -> None:
        """The cell has ended, but another sweep has taken its claim over meanwhile: that one's result counts."""
        self._claimed_elsewhere.append((self._places[planned.id], planned))

    def _look_again(self) -> None:
        if self._claimed_elsewhere and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            for waiting in self._claimed_elsewhere:
                heapq.heappush(self._ready, waiting)
            self._claimed_elsewhere = []
