"""One JSON file of what was run on a GPU: written after every item, read again when the run goes on.

    {"machine": {...}, "parts": {PART: {"startup_seconds": s, "items": {ITEM: {"status": ..., "figures": {...}}}}}}

An item's status is `passed` (every figure within its limit), `refuted` (one is not), `measured` (it has no limits),
`failed` (its traceback is there), `running` (its process has ended in it), or `not reached` (in the part's time). It
has the `device` that it was run on and whether the run was `tiny`: what was done otherwise counts as not done.
"""

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from glue_bench.files import write_atomically

Figures = dict[str, Any]
Item = Callable[[], Figures]
GOOD = ("passed", "measured")


class Results:
    """The file. `since` is when this run began; with `again` what was done before it counts as not done.

    `where` is what each item keeps of the device; an earlier run's item counts as done if it has the same.
    """

    def __init__(self, path: Path, since: float, again: bool = False) -> None:
        self.path, self.since, self.again = path, since, again
        self.where: dict[str, Any] = {}
        self.content: dict[str, Any] = {"machine": {}, "parts": {}}
        self.reload()

    def reload(self) -> None:
        """What another process has written."""
        if self.path.exists():
            self.content = json.loads(self.path.read_text())

    def write(self) -> None:
        """All of it, at once."""
        write_atomically(self.path, (json.dumps(self.content, indent=1) + "\n").encode())

    def items(self, part: str) -> dict[str, Any]:
        """What is known of a part's items."""
        return self.content["parts"].setdefault(part, {"items": {}})["items"]

    def attended(self, part: str, item: str) -> bool:
        """Whether there is nothing left to do for it: done here before, or tried in this run."""
        record = self.items(part).get(item)
        if record is None or record["at"] >= self.since:
            return record is not None
        return record["status"] in GOOD and not self.again and record | self.where == record

    def tried(self, part: str) -> int:
        """How many of a part's items this run has come to."""
        return sum(record["at"] >= self.since for record in self.items(part).values())

    def put(self, part: str, item: str, status: str, **more: Any) -> None:
        """Keep an item's record and write the file."""
        self.items(part)[item] = {"status": status, "at": time.time(), **self.where, **more}
        self.write()

    def ended_in(self, part: str, status: str, reason: str) -> None:
        """Its process has ended: the status of the item that was running, and why."""
        for name, record in self.items(part).items():
            if record["status"] == "running":
                self.put(part, name, status, error=reason)

    def good(self, part: str) -> bool:
        """Whether all of a part was run, and nothing of it failed or was refuted."""
        return bool(self.items(part)) and all(record["status"] in GOOD for record in self.items(part).values())


def run_items(
    results: Results, part: str, items: Mapping[str, Item], deadline: float, say: Callable[[str], None]
) -> bool:
    """Run what is not attended to, up to the deadline (by `time.time`); false if the device is lost to this process."""
    for name, work in items.items():
        if results.attended(part, name):
            continue
        if time.time() > deadline:
            results.put(part, name, "not reached")
            continue
        results.put(part, name, "running")
        began = time.perf_counter()
        try:
            with mock.patch.dict(os.environ):
                figures = work()
            results.put(part, name, verdict(figures), seconds=round(time.perf_counter() - began, 2), **figures)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            results.put(part, name, "failed", error=said, traceback=traceback.format_exc())
        say(f"{part}: {name}: {results.items(part)[name]['status']} ({time.perf_counter() - began:.1f} s)")
        if not clean_up():
            return False
    return True


def verdict(found: Figures) -> str:
    """`found` has `figures`, and `limits` of some of them. A figure that is NaN is within no limit."""
    limits = found.get("limits", {})
    if not limits:
        return "measured"
    return "passed" if all(found["figures"][name] <= limit for name, limit in limits.items()) else "refuted"


def clean_up() -> bool:
    """Leave nothing of an item to the next one; false if the device no longer answers this process."""
    import torch

    from glue_bench.training.engine import ENGINES
    from glue_bench.training.memory import release_memory
    from glue_bench.training.runtime import settle_anew

    ENGINES.drop()
    settle_anew()
    try:
        release_memory()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
