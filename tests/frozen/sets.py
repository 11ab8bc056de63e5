"""Where frozen values are kept, which of them belong to this machine, and how a set is made from commit d9d4906."""

import io
import os
import platform
import subprocess
import sys
import tarfile
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


def place(kind: str) -> Path:
    """The file of the set that this machine is compared with."""
    return SETS / (f"{kind}-{key()}.tar.xz" if kind in BOUND else f"{kind}.tar.xz")


def others(kind: str) -> list[Path]:
    """The sets of other kinds of processor."""
    return [path for path in sorted(SETS.glob(f"{kind}-*.tar.xz")) if path != place(kind)]


def read(path: Path) -> dict[str, pd.DataFrame]:
    """The frames of a set, by name."""
    with tarfile.open(path) as archive:
        contents = {member.name: archive.extractfile(member) for member in archive}
        return {name: pd.read_parquet(io.BytesIO(file.read())) for name, file in contents.items() if file}


def write(path: Path, frames: dict[str, pd.DataFrame]) -> None:
    """Keep frames as a set; the same bytes for the same frames."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:  # as one, since many frames have columns in common
        for name, frame in sorted(frames.items()):
            content = frame.to_parquet(compression=None, index=False)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


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
