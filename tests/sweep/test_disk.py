"""A disk that fills up, and one that is read-only, in earnest: one line, nothing half-written, nothing lost."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from forked import CLI, Forked

PROGRAM = Path(__file__).with_name("small_disk.py")
UNSHARE = ["unshare", "-m"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-rm"]
WORDS = ("cat", "dog", "horse", "fox", "tom", "anna", "old", "young", "chased", "helped", "called")


def mounts(place: Path) -> bool:
    """Whether a process may mount a tmpfs of its own here."""
    command = [*UNSHARE, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    except OSError:
        return False


@pytest.fixture
def config(tiny, write_yaml, tmp_path) -> Path:
    """Twelve cells on a little RTE in the classic layout, with pretraining before them."""
    draw = random.Random(0)

    def text() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(3, 12)))

    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    for name, rows in (("train", 120), ("dev", 40)):
        labels = [draw.choice(["entailment", "not_entailment"]) for _ in range(rows)]
        lines = [f"{row}\t{text()}\t{text()}\t{label}" for row, label in enumerate(labels)]
        content = "\n".join(["index\tsentence1\tsentence2\tlabel", *lines])
        (tmp_path / "glue" / "RTE" / f"{name}.tsv").write_text(f"{content}\n")
    (tmp_path / "text.txt").write_text("\n".join(f"{text()} ." for _ in range(400)))
    pretraining = {"corpus": str(tmp_path / "text.txt"), "steps": 3, "batch_tokens": 256, "length": 32}
    values = {"data": str(tmp_path / "glue"), "tasks": ["rte"], "arms": ["add", "untied"], "seeds": [1, 2, 3, 4, 5, 6]}
    return write_yaml(tiny(**values, pretraining=pretraining | {"validations": 1}))


def is_one_line(said: dict, *words: str) -> bool:
    """Exit status 2, an error of one line with these words, no traceback."""
    lines = [line for line in said["err"].splitlines() if line.startswith("error: ")]
    one = len(lines) == 1 and said["err"].endswith(lines[0] + "\n") and all(word in lines[0] for word in words)
    return said["status"] == 2 and one


def test_wherever_the_disk_gets_full_nothing_is_lost(config, tmp_path):
    """The only test of a disk that is full in earnest, and of one that is read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    if not mounts(place):
        pytest.skip("a process may not mount a tmpfs of its own here")
    whole = Forked(CLI, "run", config, "--results", tmp_path / "whole")
    command = [*UNSHARE, sys.executable, str(PROGRAM), str(place), str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    stopped = [said for said in found["full"] if said["status"] != 0]
    assert all(is_one_line(said, "cannot write", "No space left on device") for said in stopped), stopped
    assert [said["half"] for said in found["full"] if said["half"]] == []
    assert is_one_line(found["read_only"], "cannot write to", "Read-only file system"), found
    assert found["last"]["status"] == 0, found["last"]
    assert f"{found['kept']} were done before, 0 failed" in found["last"]["out"], found["last"]
    assert found["half"] == found["half_at_last"] == []
    errors = [said["err"].splitlines()[-1] for said in stopped]
    for what in ("/cache/", "/runs/tiny", "goes on from the last state"):  # all kinds of places have been full
        assert any(what in line for line in errors), errors
    _, err = whole.communicate(timeout=240)
    assert whole.returncode == 0, err
    names = ("leaderboard.csv", "scores.csv")
    assert found["tables"] == [(tmp_path / "whole" / "tiny" / name).read_text() for name in names]
