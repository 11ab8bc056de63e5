"""Mishaps at random moments of a sweep: nothing is lost or repeated, no traceback, the same tables.

    python benchmarks/kills.py --engine inline --mishaps 200     # 15 minutes on two cores
    python benchmarks/kills.py --engine ray --mishaps 80 --place DIR
    python benchmarks/kills.py --engine slurm --mishaps 20       # where sbatch and squeue work

Runs a sweep of small pretrainings and cells undisturbed, then the same one over and over, while mishaps come every few
results: see MISHAPS. The disk is filled where the place has less than 1 GiB (`mount -t tmpfs -o size=64m tmpfs DIR`).
After one that ends the driver, the same command is given again. No job is hit twice, because one whose worker is lost
three times is a failure. It prints the mishaps of each kind, the `longest` seconds that the driver took to end, and:

    lost          records that were there and are not any more
    repeated      records that were written a second time
    other_tables  tables that are not those of the undisturbed sweep, byte for byte, but for clocks
    surprises     other exit statuses than those of STATUS, and tracebacks of ours. Any of these four: exit status 1
"""

import argparse
import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import psutil

import glue_bench.cli
from glue_bench.records.store import Store

CONTEXT = multiprocessing.get_context("forkserver")
IMPORTED = (
    "datasets",
    "glue_bench.cli",
    "glue_bench.sweep.run",
    "glue_bench.pages.files",
    "sklearn.metrics",
)
CONTEXT.set_forkserver_preload([*IMPORTED])
MISHAPS = {
    "driver": "SIGKILL to the process that was started",
    "terminate": "SIGTERM to it",
    "interrupt": "SIGINT to it",
    "disk": "no room on the disk of the results",
    "worker": "SIGKILL to a worker",
    "ended": "SIGTERM to a worker",
    "hang": "SIGSTOP to a worker, which is given up",
    "head": "SIGKILL to the head of the Ray cluster",
    "cancelled": "scancel of a Slurm job",
}
KINDS = {
    "inline": ("driver", "terminate", "interrupt", "disk"),
    "ray": ("driver", "terminate", "interrupt", "disk", "head", *("worker", "ended", "hang") * 3),
    "slurm": ("driver", "terminate", "interrupt", *("worker", "hang", "cancelled") * 2),
}
OPTIONS = {"inline": (), "ray": ("--workers", "2"), "slurm": ("--slurm", "minutes=1")}
SIGNALS = {"driver": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
WORKERS = {"worker": signal.SIGKILL, "ended": signal.SIGTERM, "hang": signal.SIGSTOP}
STATUS = {"driver": 137, "terminate": 143, "interrupt": 130, "disk": 2, "head": 1}
"""How the driver ends after those mishaps that end it."""
LIMIT_SECONDS = 1800.0  # no driver takes so long, even on a busy machine
EXPERIMENT = """
name: kills
data: demo
limit: 48
scratch: {vocab_size: 200, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32,
          max_position_embeddings: 32}
arms: [add, untied]
tasks: [mnli, rte]
seeds: [1, 2, 3, 4, 5, 6]
pretraining: {corpus: demo, steps: 20, batch_tokens: 128, length: 16, validations: 2, learning_rates: [1e-3, 2e-3],
              rate_search: {steps: 5}}
finetuning: {learning_rates: [1e-3], epochs: 2, batch_size: 8, max_length: 32, from_mnli: [rte]}
resources: {give_up_after: 60}  # on a busy machine a job may be silent for half a minute
"""


@dataclass
class Found:
    """What came about, and what should not have."""

    mishaps: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    sweeps: int = 0
    drivers: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    other_tables: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.repeated or self.other_tables or self.surprises)


class Driver:
    """`glue-bench run`, its output in a file, forked from a process that has everything imported: it starts at once."""

    def __init__(self, place: Path, results: str, engine: str) -> None:
        self.output = place / "output.txt"
        words = [
            "glue-bench",
            "run",
            str(place / "kills.yaml"),
            "--results",
            str(place / results),
            *OPTIONS[engine],
        ]
        self.process = CONTEXT.Process(
            target=drive, args=(words, str(place / "cache"), self.output)
        )
        self.process.start()

    def wait(self) -> tuple[int | None, str]:
        """Its exit status as a shell has it, None if it had to be killed, and what it printed."""
        self.process.join(LIMIT_SECONDS)
        status = (
            self.process.exitcode
            if (self.process.exitcode or 0) >= 0
            else 128 - self.process.exitcode
        )
        self.process.kill()
        self.process.join()
        return status, self.output.read_text(errors="replace")


def drive(words: list[str], cache: str, output: Path) -> None:
    """In the process."""
    for stream in (1, 2):
        os.dup2(
            os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC * (stream == 1) | os.O_APPEND),
            stream,
        )
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background ignores it
    os.environ |= {
        "GLUE_BENCH_CACHE": cache,
        "OMP_NUM_THREADS": "1",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "15",
    }
    sys.argv = words
    glue_bench.cli.main()


class Records:
    """The records of a folder: which there are, and whether each is the file that it was."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.inodes = folder, dict[str, int]()

    def look(self, found: Found) -> int:
        """How many there are."""
        seen = {
            path.parent.name: path.stat().st_ino for path in self.folder.glob("*/[!.]*/record.json")
        }
        found.lost += sorted(self.inodes.keys() - seen.keys())
        found.repeated += sorted(
            name for name, inode in self.inodes.items() if seen.get(name, inode) != inode
        )
        self.inodes = seen
        return len(seen)


def main() -> None:
    """Disturb sweeps; print what was found; fail if it is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=[*KINDS], default="inline")
    parser.add_argument("--mishaps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--place",
        type=Path,
        help="a folder on a small disk, or one that all nodes of a cluster see",
    )
    given = parser.parse_args()
    found, draw = Found(), random.Random(given.seed)
    with tempfile.TemporaryDirectory(dir=given.place) as folder:
        place = Path(folder)
        (place / "kills.yaml").write_text(EXPERIMENT)
        status, said = Driver(place, "whole", "inline").wait()
        if status != 0:
            raise RuntimeError(said)
        while found.mishaps.total() < given.mishaps and found.is_sound:
            disturb(place, given.engine, given.mishaps, draw, found)
    print(json.dumps(vars(found), indent=1))
    sys.exit(0 if found.is_sound else 1)


def disturb(place: Path, engine: str, most: int, draw: random.Random, found: Found) -> None:
    """One sweep, from nothing to its end."""
    shutil.rmtree(place / "runs", ignore_errors=True)
    records, hit, status = Records(place / "runs" / "kills"), set[str](), None
    while status != 0 and found.is_sound:
        driver, last = Driver(place, "runs", engine), None
        found.drivers += 1
        while last not in STATUS and found.mishaps.total() < most:
            if not wait_for(draw.randint(1, 5), records, driver, found):
                break
            time.sleep(draw.uniform(0, 0.5))
            is_small = shutil.disk_usage(place).total < 2**30
            last = draw.choice([kind for kind in KINDS[engine] if kind != "disk" or is_small])
            if driver.process.is_alive() and cause(last, driver, place, draw, hit):
                found.mishaps[last] += 1
        began = time.monotonic()
        status, said = driver.wait()
        (place / "ballast").unlink(missing_ok=True)
        records.look(found)
        if last in STATUS:
            found.longest[last] = round(
                max(found.longest.get(last, 0.0), time.monotonic() - began), 1
            )
        if status not in (0, STATUS.get(last)) or ("Traceback" in said and last != "head"):
            found.surprises.append(f"{last}: exit status {status}: {said[-3000:]}")
    found.sweeps += 1
    whole, runs = tables(place / "whole" / "kills"), tables(place / "runs" / "kills")
    found.other_tables += sorted(
        name for name in whole.keys() | runs.keys() if whole.get(name) != runs.get(name)
    )


def wait_for(more: int, records: Records, driver: Driver, found: Found) -> bool:
    """Until there are so many more records; false if the driver ends before."""
    goal = records.look(found) + more
    while driver.process.is_alive() and records.look(found) < goal:
        time.sleep(0.05)
    return driver.process.is_alive()


def cause(kind: str, driver: Driver, place: Path, draw: random.Random, hit: set[str]) -> bool:
    """Whether the mishap came about. `hit` are the jobs whose worker has had one."""
    if kind in SIGNALS:
        os.kill(driver.process.pid, SIGNALS[kind])
        return True
    if kind == "disk":
        with suppress(OSError):
            (place / "ballast").write_bytes(bytes(shutil.disk_usage(place).free))
        return True
    if kind == "cancelled":
        return cancel(place / "runs" / "kills", draw, hit)
    found = victims(kind, driver, place)
    return any(strike(kind, process, place, hit) for process in draw.sample(found, len(found)))


def strike(kind: str, process: psutil.Process, place: Path, hit: set[str]) -> bool:
    """Whether the process got its signal. A worker is stopped first, so that it is known which job it is at."""
    with suppress(psutil.NoSuchProcess):
        if kind == "head":
            process.kill()
            return True
        if process.status() == psutil.STATUS_STOPPED:  # it hangs already
            return False
        process.suspend()
        time.sleep(0.01)
        under_way = Store(place / "runs" / "kills").progress.read()
        job = next((each.id for each in under_way if each.worker.endswith(f":{process.pid}")), None)
        is_hit = job is not None and job not in hit
        if is_hit:
            hit.add(job)
            process.send_signal(WORKERS[kind])
        if kind != "hang" or not is_hit:
            process.resume()
        return is_hit
    return False


def cancel(folder: Path, draw: random.Random, hit: set[str]) -> bool:
    """Whether a Slurm job was cancelled; with it the first of its jobs that has no record is lost."""
    live = subprocess.run(
        ["squeue", "--me", "-h", "-r", "-o", "%i"], capture_output=True, text=True, check=False
    )
    done = {path.parent.name for path in folder.glob("*/[!.]*/record.json")}
    sent = (
        json.loads((folder / "slurm.json").read_text()) if (folder / "slurm.json").exists() else {}
    )
    first = {
        name: next((job for job in sent.get(name, ()) if job not in done), None)
        for name in live.stdout.split()
    }
    fit = [name for name, job in first.items() if job is not None and job not in hit]
    if not fit:
        return False
    name = draw.choice(fit)
    hit.add(str(first[name]))
    return subprocess.run(["scancel", name], check=False).returncode == 0


def victims(kind: str, driver: Driver, place: Path) -> list[psutil.Process]:
    """The head of the driver's Ray cluster, or its workers, or the processes of its Slurm jobs."""
    title = "gcs_server" if kind == "head" else "ray::Slot"
    below = psutil.Process(driver.process.pid).children(recursive=True)
    found = [one for one in below if title in command(one)]
    title = f"submitit.core._submit {place}/runs/kills/slurm/%A"
    return found or [one for one in psutil.process_iter() if command(one).endswith(title)]


def command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def tables(folder: Path) -> dict[str, str]:
    """The tables of a run without seconds and bytes."""
    frames = {
        path.name: pd.read_csv(path, dtype=str, keep_default_na=False)
        for path in folder.glob("*.csv")
    }
    return {
        name: frame.filter(regex="^(?!.*(second|memory))").to_csv()
        for name, frame in frames.items()
    }


if __name__ == "__main__":
    main()
