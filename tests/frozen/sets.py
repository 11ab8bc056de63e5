"""Where frozen values are kept, which of them belong to this machine, and how a set is made from commit d9d4906."""

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import torch

HERE = Path(__file__).parent
SETS = HERE / "sets"
COMMIT = "d9d4906"
BOUND = ("bits", "losses", "analysis")
"""Kinds whose values depend on the processor, on torch and on the number of threads."""


def key() -> str:
    """The kind of processor, what torch uses of it, torch's version and its threads."""
    facts: dict[str, str] = {}
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts = [facts.get(name, "") for name in ("vendor_id", "cpu family", "model")]
    processor = "-".join(filter(None, parts)) or platform.machine()
    used, version = torch.backends.cpu.get_cpu_capability().replace(" ", ""), torch.__version__.split("+")[0]
    return f"{processor}-{used}-torch{version}-{torch.get_num_threads()}thread"


def shared() -> Path | None:
    """The folder with real data and text beside the checkout, where there is one."""
    place = Path(os.environ.get("FROZEN_SHARED") or Path.cwd().parent / "shared")
    return place if place.is_dir() else None


def folder(kind: str) -> Path:
    """Where a kind's set is that this machine is compared with."""
    return SETS / kind / key() if kind in BOUND else SETS / kind


def others(kind: str) -> list[Path]:
    """The sets of other kinds of processor."""
    return [path for path in sorted((SETS / kind).iterdir()) if path.name != key()] if (SETS / kind).is_dir() else []


def read(place: Path) -> dict[str, pd.DataFrame]:
    """The frames of a set, by name."""
    return {path.stem: pd.read_parquet(path) for path in sorted(place.glob("*.parquet"))}


def write(place: Path, frames: dict[str, pd.DataFrame]) -> None:
    """Keep frames as a set."""
    place.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_parquet(place / f"{name}.parquet", compression="zstd", compression_level=19, index=False)


def make(kind: str) -> None:
    """Make a kind's set with the package of COMMIT, out of this repository's history, in a process of its own.

    Raises:
        subprocess.CalledProcessError: there is no such commit in the history, or the set cannot be made.
    """
    with tempfile.TemporaryDirectory() as clone:
        archive = subprocess.run(["git", "-C", HERE.parents[1], "archive", COMMIT], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", clone], input=archive.stdout, check=True)
        words = [sys.executable, HERE / "compare.py", "--make", kind]
        more = {"PYTHONPATH": clone, "FROZEN_SHARED": str(shared() or "")}
        subprocess.run(words, cwd=clone, env=os.environ | more, check=True)
