"""SIGKILLs at random moments of a sweep on workers: nothing corrupt, nothing lost, nothing twice, the same tables.

    python benchmarks/kills.py [--workers-killed 60] [--drivers-killed 15] [--seed 0]

Runs a sweep of small cells inline, then the same one with `--workers 2` while its workers and its driver are killed,
and exits with 1 if one of these does not hold:

- every record is whole (its digest fits) at every moment at which it is looked at
- no record that was there is ever gone, or written a second time (its inode would change)
- the tables end up as those of the undisturbed sweep, byte for byte
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from glue_bench.records.store import Store

TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")
CELLS_A_KILL = 6
ARMS = ("add", "concat", "untied")
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
    "arms": list(ARMS),
    "tasks": ["mnli", "rte"],
    "finetuning": {
        "learning_rates": [1e-3],
        "epochs": 1,
        "batch_size": 16,
        "max_length": 32,
        "from_mnli": ["rte"],
    },
}


def main() -> None:
    """Run both sweeps, print what was found, fail if it is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers-killed", type=int, default=60)
    parser.add_argument("--drivers-killed", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    victims = ["worker"] * arguments.workers_killed + ["driver"] * arguments.drivers_killed
    generator = random.Random(arguments.seed)
    generator.shuffle(victims)
    with tempfile.TemporaryDirectory() as folder:
        found = disturb(victims, generator, Path(folder))
    print(json.dumps(found, indent=1))
    sound = not (found["corrupt"] or found["lost"] or found["repeated"]) and found["same_tables"]
    sys.exit(0 if sound and found["workers_killed"] == arguments.workers_killed else 1)


def disturb(victims: list[str], generator: random.Random, folder: Path) -> dict:
    """What is left of a sweep that loses these victims."""
    seeds = -(-len(victims) * CELLS_A_KILL // (2 * len(ARMS)))
    config = folder / "experiment.yaml"
    config.write_text(yaml.safe_dump({**EXPERIMENT, "seeds": list(range(1, seeds + 1))}))
    began = time.monotonic()
    with driver(config, folder / "whole") as whole:
        wait(whole)
    watch = Watch(Store(folder / "killed" / "kills"))
    killed = {"worker": 0, "driver": 0}
    while victims:
        with driver(config, folder / "killed", "--workers", "2") as process:
            while victims and process.poll() is None:
                if not watch.wait_for(generator.randint(1, CELLS_A_KILL), process):
                    break
                time.sleep(generator.uniform(0, 0.3))
                victim = victims.pop()
                if not kill(victim, process, generator):
                    victims.append(victim)
                    continue
                killed[victim] += 1
                watch.look()
                if victim == "driver":
                    break
            else:
                wait(process)
        if process.returncode == 0 and victims:
            break  # too few cells for so many kills
    with driver(config, folder / "killed", "--workers", "2") as process:  # also tries again what was lost three times
        wait(process)
    watch.look()
    watch.check_whole()
    return {
        "cells": len(watch.inodes),
        "workers_killed": killed["worker"],
        "drivers_killed": killed["driver"],
        "corrupt": len(watch.corrupt),
        "lost": len(watch.lost),
        "repeated": len(watch.repeated),
        "same_tables": all(same(folder, name) for name in TABLES),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


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

    def wait_for(self, more: int, process: subprocess.Popen) -> bool:
        """Until there are so many more records; false if the process ended before."""
        goal, since = len(self.inodes) + more, time.monotonic()
        while len(self.inodes) < goal:
            if process.poll() is not None:
                return False
            if time.monotonic() - since > 120:
                raise TimeoutError(f"no {more} cells in two minutes")
            time.sleep(0.02)
            self.look()
        self.check_whole()
        return True


def kill(victim: str, process: subprocess.Popen, generator: random.Random) -> bool:
    """SIGKILL for the driver or one of its workers; false if there is none."""
    if victim == "driver":
        process.kill()
        process.wait()
        return True
    found = workers(process)
    if not found:
        return False
    generator.choice(found).kill()
    return True


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    """The worker processes that descend from a driver."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if child.cmdline() and child.cmdline()[0].startswith("ray::Worker"):
                found.append(child)
        except psutil.Error:  # it has ended in between
            continue
    return found


@contextmanager
def driver(config: Path, results: Path, *options: str) -> Iterator[subprocess.Popen]:
    """`glue-bench run`, killed at the end if it still runs."""
    command = [sys.executable, "-m", "glue_bench.cli", "run", str(config), "--results", str(results), *options]
    environment = os.environ | {"GLUE_BENCH_CACHE": str(config.parent / "cache"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait(process: subprocess.Popen) -> None:
    process.wait(timeout=900)


def same(folder: Path, name: str) -> bool:
    paths = [folder / which / "kills" / name for which in ("whole", "killed")]
    return paths[0].read_bytes() == paths[1].read_bytes()


if __name__ == "__main__":
    main()
