"""Mishaps at random moments of a sweep on workers: nothing corrupt, lost or repeated, no traceback, the same tables.

    python benchmarks/kills.py [--mishaps 100 | --hours 8] [--kinds worker,hang,...] [--seed 0] [--log FILE]
                               [--inline 0.8]

Runs a sweep of small cells undisturbed, then the same one over and over, while one of these comes about every few
cells:

    worker     SIGKILL to a worker; the sweep goes on
    hang       SIGSTOP to a worker, at work or getting ready, which is given up; the sweep goes on
    driver     SIGKILL to the process that was started, which is started again, as after all that follow
    terminate  SIGTERM to it: exit status 143
    interrupt  SIGINT to it: exit status 130
    head       SIGKILL to the head of its Ray cluster: exit status 1
    disk       no room is left on the disk of the results: exit status 2; where a tmpfs may be mounted

Each process that is started runs the cells in itself with the probability `--inline`, else with `--workers 2`. The
first costs a second of a core; the second about thirty, for Ray and the imports of its workers, so that workers, which
may be lost without an end of the sweep, are its most frequent victims.

Exits with 1 if one of these does not hold:

- every record is whole (its digest fits), and no other exit status and no traceback is seen
- no record that was there is ever gone, or written a second time (its inode would change)
- the tables of each sweep end up as those of the undisturbed one, byte for byte

What was found is printed, with the `longest` that a process took to end after each kind, in seconds, and written to
the log, a JSON file, whenever a process has ended; where the log is there already, it is added to, until there were so
many mishaps, or hours.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

from drivers import Driver
from glue_bench.records.store import Store

TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")
CELLS_A_MISHAP = 2
SECONDS = 3600.0  # no driver takes so long, even at the lowest priority
UNSHARED = "KILLS_UNSHARED"
SEEDS = 10
DISK = "64m"
SIGNALS = {"driver": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
BELOW = {
    "worker": (signal.SIGKILL, "ray::Worker"),
    "hang": (signal.SIGSTOP, "ray::Worker."),
    "head": (signal.SIGKILL, "gcs_server"),
}
STATUS = {"driver": -signal.SIGKILL, "terminate": 143, "interrupt": 130, "head": 1, "disk": 2}
KINDS = ("worker", "hang", *STATUS)
SHARES = {"worker": 5, "hang": 3}
"""How much likelier these are than others, with workers."""
EXPERIMENT = {
    "name": "kills",
    "data": "demo",
    "checkpoint": "scratch",
    "scratch": {
        "vocab_size": 200,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    },
    "arms": ["add", "concat", "untied"],
    "tasks": ["mnli", "rte"],
    "seeds": list(range(1, SEEDS + 1)),
    "finetuning": {
        "learning_rates": [1e-3],
        "epochs": 1,
        "batch_size": 16,
        "max_length": 32,
        "from_mnli": ["rte"],
    },
    "resources": {"give_up_after": 4},
}


def main() -> None:
    """Run the sweeps, print what was found, fail if it is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mishaps", type=int, default=60)
    parser.add_argument("--hours", type=float, help="in place of a number of mishaps")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--inline", type=float, default=0.0)
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if kind in arguments.kinds.split(",")]
    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder), "disk" in kinds) as mounted:
        place = Path(folder)
        if "disk" in kinds and not mounted:
            kinds.remove("disk")
            print("no tmpfs may be mounted here: the disk is never full", file=sys.stderr)
        found = Found.read(arguments.log)

        def more() -> bool:
            hours = found.minutes / 60
            return hours < arguments.hours if arguments.hours else sum(found.mishaps.values()) < arguments.mishaps

        generator = random.Random(f"{arguments.seed} {found.drivers}")
        disturb(place, kinds, generator, found, more, arguments.log, arguments.inline)
    found.write(arguments.log)
    print(json.dumps(found.document(), indent=1))
    sys.exit(0 if found.is_sound else 1)


@contextmanager
def small_disk(place: Path, wanted: bool) -> Iterator[bool]:
    """A small disk at this place, of this process and its children alone, which begins anew for it; if it may be."""
    if not (wanted and os.environ.get(UNSHARED)):
        yield wanted and unshared(place)
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], check=True)
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # a folder under it cannot be removed


def unshared(place: Path) -> bool:
    """False where nothing may be mounted; else this program begins anew where only it sees what is."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    probe = [*unshare, "mount", "-t", "tmpfs", "tmpfs", str(place)]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        return False
    place.rmdir()
    os.execvpe(unshare[0], [*unshare, sys.executable, *sys.argv], os.environ | {UNSHARED: "1"})


@dataclass
class Found:
    """What came about, and what should not have."""

    mishaps: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    inline: int = 0
    sweeps: int = 0
    cells: int = 0
    corrupt: int = 0
    lost: int = 0
    repeated: int = 0
    other_tables: int = 0
    surprises: list[str] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)
    before: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, log: Path | None) -> "Found":
        """What earlier runs with this log have found."""
        if log is None or not log.exists():
            return cls()
        told = json.loads(log.read_text())
        kept = {name: value for name, value in told.items() if name not in ("total", "minutes", "mishaps")}
        return cls(Counter(told["mishaps"]), **kept, before=told["minutes"])

    @property
    def minutes(self) -> float:
        return round(self.before + (time.monotonic() - self.began) / 60, 1)

    @property
    def is_sound(self) -> bool:
        return not (self.corrupt or self.lost or self.repeated or self.other_tables or self.surprises)

    def document(self) -> dict:
        values = {name: value for name, value in self.__dict__.items() if name not in ("began", "before")}
        return {"total": sum(self.mishaps.values()), **values, "minutes": self.minutes}

    def write(self, log: Path | None) -> None:
        if log:
            log.write_text(json.dumps(self.document(), indent=1) + "\n")


def disturb(
    place: Path,
    kinds: list[str],
    generator: random.Random,
    found: Found,
    more: Callable[[], bool],
    log: Path | None,
    inline: float,
) -> None:
    """Sweep after sweep, while there are to be more mishaps."""
    config, cache = place / "experiment.yaml", place / "cache"
    config.write_text(yaml.safe_dump(EXPERIMENT))
    status, said = Driver("run", config, "--results", place / "whole", cache=cache).wait(SECONDS)
    if status != 0:
        raise RuntimeError(said)
    while more():
        shutil.rmtree(place / "runs", ignore_errors=True)
        watch = Watch(Store(place / "runs" / "kills"))
        status, sound = None, True
        while status != 0 and sound:
            alone = generator.random() < inline
            workers = () if alone else ("--workers", "2")
            driver = Driver("run", config, "--results", place / "runs", *workers, cache=cache)
            found.drivers, found.inline = found.drivers + 1, found.inline + alone
            weights = {kind: 1 if alone else SHARES.get(kind, 1) for kind in kinds if not (alone and kind in BELOW)}
            kind = mishaps(driver, watch, weights, generator, found.mishaps, more)
            ending = time.monotonic()
            status, said = driver.wait(SECONDS)
            if kind:
                found.longest[kind] = round(max(found.longest.get(kind, 0.0), time.monotonic() - ending), 1)
            (place / "ballast").unlink(missing_ok=True)
            watch.look()
            sound = judge(kind, status, said, found)
            found.write(log)
        watch.check_whole()
        found.sweeps, found.cells = found.sweeps + 1, found.cells + len(watch.inodes)
        found.corrupt, found.lost = found.corrupt + len(watch.corrupt), found.lost + len(watch.lost)
        found.repeated += len(watch.repeated)
        found.other_tables += sum(not same(place, name) for name in TABLES)


def mishaps(
    driver: Driver, watch: "Watch", kinds: dict[str, int], generator: random.Random, counts: Counter, more: Callable
) -> str | None:
    """Cause them until one ends the driver, and say which; None where it ends by itself."""
    while more() and watch.wait_for(generator.randint(1, 2 * CELLS_A_MISHAP), driver):
        time.sleep(generator.uniform(0, 0.3))
        [kind] = generator.choices([*kinds], [*kinds.values()])
        if driver.runs and cause(kind, driver, watch.store.folder.parent.parent, generator):
            counts[kind] += 1
            if kind in STATUS:
                return kind
    return None


def cause(kind: str, driver: Driver, place: Path, generator: random.Random) -> bool:
    """Whether it came about."""
    if kind in SIGNALS:
        driver.send(SIGNALS[kind])
        return True
    if kind == "disk":
        room = os.statvfs(place)
        with suppress(OSError), (place / "ballast").open("wb") as file:
            file.write(bytes(room.f_bavail * room.f_bsize))
        return True
    number, title = BELOW[kind]
    if victims := driver.below(title):
        with suppress(psutil.NoSuchProcess):
            generator.choice(victims).send_signal(number)
            return True
    return False


def judge(kind: str | None, status: int | None, said: str, found: Found) -> bool:
    """Take note of what a driver should not have done. One that was at its end may end as if nothing had been."""
    too_often = status == 1 and "its worker was lost 3 times" in said
    expected = status == 0 or (too_often if kind is None else status == STATUS[kind])
    sound = expected and "Traceback" not in said
    if not sound:
        found.surprises.append(f"{kind}: exit status {status}: {said[-2000:]}")
    if kind and status == 0:
        found.mishaps[kind] -= 1
    return sound


class Watch:
    """The records of a sweep: which there are, and whether each is the file that it was."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inodes: dict[str, int] = {}
        self.lost: set[str] = set()
        self.repeated: set[str] = set()
        self.corrupt: set[str] = set()

    def look(self) -> None:
        """Take note of every record."""
        folder = self.store.folder / "records"
        found = {entry.name: entry.inode() for entry in os.scandir(folder)} if folder.is_dir() else {}
        found = {name: inode for name, inode in found.items() if not name.startswith(".")}
        self.lost |= self.inodes.keys() - found.keys()
        self.repeated |= {name for name, inode in self.inodes.items() if found.get(name, inode) != inode}
        self.inodes |= {name: inode for name, inode in found.items() if name not in self.inodes}

    def check_whole(self) -> None:
        """Read every record and its predictions."""
        records, problems = self.store.scan_records()
        self.corrupt |= set(problems)
        for record in records:
            try:
                self.store.read_predictions(record.cell_id)
            except Exception as error:
                self.corrupt.add(f"{record.cell_id}: {error}")

    def wait_for(self, more: int, driver: Driver) -> bool:
        """Until there are so many more records; false if the driver ended before, or takes too long."""
        goal, since = len(self.inodes) + more, time.monotonic()
        while len(self.inodes) < goal:
            if not driver.runs or time.monotonic() - since > SECONDS:
                return False
            time.sleep(0.02)
            self.look()
        self.check_whole()
        return True


def same(place: Path, name: str) -> bool:
    paths = [place / which / "kills" / name for which in ("whole", "runs")]
    return all(path.exists() for path in paths) and paths[0].read_bytes() == paths[1].read_bytes()


if __name__ == "__main__":
    main()
