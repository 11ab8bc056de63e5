"""A disk that fills up, and one that is read-only, in earnest: one line, nothing half-written, nothing lost."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from forked import Forked
from tiny_sweeps import TABLES, finish, start, write_rte, write_text

PROGRAM = Path(__file__).with_name("small_disk.py")
UNSHARE = ["unshare", "-m"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-rm"]


@pytest.fixture(scope="module")
def _mounts(tmp_path_factory) -> None:
    place = tmp_path_factory.mktemp("probe")
    try:
        command = [*UNSHARE, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        reason = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        reason = str(error)
    if reason:
        pytest.skip(f"a process may not mount a tmpfs of its own here: {reason}")


@pytest.fixture
def config(tiny, write_yaml, tmp_path) -> Path:
    """Twelve cells, with pretraining before them."""
    write_rte(tmp_path / "glue")
    write_text(tmp_path / "text.txt")
    pretraining = {"corpus": str(tmp_path / "text.txt"), "steps": 3, "batch_tokens": 256, "length": 32}
    return write_yaml(
        tiny(
            data=str(tmp_path / "glue"),
            tasks=["rte"],
            arms=["add", "untied"],
            seeds=[1, 2, 3, 4, 5, 6],
            pretraining=pretraining | {"validations": 1},
        )
    )


def is_one_line(said: dict, *words: str) -> bool:
    """Exit status 2, an error of one line with these words, no traceback."""
    lines = [line for line in said["err"].splitlines() if line.startswith("error: ")]
    one = len(lines) == 1 and said["err"].endswith(lines[0] + "\n") and all(word in lines[0] for word in words)
    return said["status"] == 2 and one


@pytest.mark.usefixtures("_mounts")
def test_wherever_the_disk_gets_full_nothing_is_lost(config, tmp_path):
    """The only test of a disk that is full in earnest, and of one that is read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    process = Forked(PROGRAM.read_text(), place, config)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    found = json.loads(out)
    finish(start(config, tmp_path / "whole"))
    stopped = [said for said in found["full"] if said["status"] != 0]
    assert all(is_one_line(said, "cannot write", "No space left on device") for said in stopped), stopped
    assert [said["half"] for said in found["full"] if said["half"]] == []
    assert is_one_line(found["read_only"], "cannot write results to", "Read-only file system"), found
    assert found["last"]["status"] == 0, found["last"]
    assert f"{found['kept']} were done before, 0 failed" in found["last"]["out"], found["last"]
    assert found["half"] == found["half_at_last"] == []
    assert found["tables"] == [(tmp_path / "whole" / "tiny" / name).read_text() for name in TABLES]
    errors = [said["err"].splitlines()[-1] for said in stopped]
    for what in ("/cache/", "/runs/tiny"):  # both kinds of places have been full
        assert any(what in line for line in errors), errors
    assert any("goes on from the last state" in line for line in errors), errors
