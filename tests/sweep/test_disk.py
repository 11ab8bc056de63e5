"""A disk that fills up, in earnest: one line, nothing half-written, nothing lost."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = ["unshare", "-m"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-rm"]
MOUNT = "mount -t tmpfs -o size=16m tmpfs"
# The disk is in the mount namespace of this program alone, and gone when the program ends. From run
# to run there are some KiB more: the write that fails is of cache, plan, state or checkpoint.
PROGRAM = f"""
import contextlib, gc, io, json, os, pathlib, subprocess, sys
import glue_bench.api.experiments
from glue_bench import cli, verify
from glue_bench.training import pretrain

place, config = pathlib.Path(sys.argv[1]), sys.argv[2]
subprocess.run([*"{MOUNT}".split(), str(place)], check=True)
os.environ["GLUE_BENCH_CACHE"] = str(place / "cache")
glue_bench.api.experiments.write_page = os.fsync = lambda *_: None  # as in the tests' own process
pretrain.SAVE_SECONDS = 0  # a state at every step
sys.argv = ["glue-bench", "run", config, "--results", str(place / "runs")]
found = []
results = place / "runs" / "tiny"
while not found or (found[-1]["status"] == 2 and len(found) < 60):
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_bsize
    with contextlib.suppress(OSError), (place / "ballast").open("wb") as file:
        file.write(bytes(max(0, free - 16384 * len(found))))
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            status = end.code or 0
        except BaseException as error:
            status = repr(error)
    gc.collect()
    gc.freeze()  # the next run does not look through what this one has imported
    half = [str(path) for path in place.rglob(".*") if path.name != ".lock"]
    for path in results.rglob("*.json"):
        try:
            json.loads(path.read_bytes())
        except ValueError:
            half.append(str(path))
    records = {{path.parent.name: path.stat().st_mtime for path in results.glob("*/*/record.json")}}
    (place / "ballast").unlink()
    found.append({{"status": status, "err": err.getvalue(), "half": half, "records": records}})
print(json.dumps([*found, [verified.faults for verified in verify(results)]]))
"""


def run_on_a_small_disk(place: Path, config: Path) -> list:
    """What came of each run until one has ended well, and the faults that `verify` finds then."""
    command = [*UNSHARE, sys.executable, "-c", PROGRAM, str(place), str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_wherever_the_disk_gets_full_nothing_is_lost(tiny, write_yaml, tmp_path):
    """Four cells, with pretraining before them."""
    draw = random.Random(0)
    words = ("the", "old", "cat", "dog", "horse", "fox", "tom", "anna", "chased", "helped")
    sentences = [" ".join(draw.choices(words, k=8)) + " ." for _ in range(400)]
    (tmp_path / "text.txt").write_text("\n".join(sentences))

    corpus = {
        "corpus": str(tmp_path / "text.txt"),
        "steps": 3,
        "batch_tokens": 256,
        "length": 32,
        "validations": 1,
    }
    values = {"tasks": ["rte"], "arms": ["add", "untied"], "seeds": [1, 2], "limit": 40}
    config = write_yaml(tiny(**values, pretraining=corpus))

    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.name != "posix"
        or subprocess.run([*UNSHARE, *MOUNT.split(), str(place)], check=False).returncode
    ):
        pytest.skip("a process may not mount a tmpfs of its own here")

    *stopped, last, faults = run_on_a_small_disk(place, config)

    errors = []
    for run in stopped:
        error = run["err"].splitlines()[-1]
        errors.append(error)
        assert run["status"] == 2, run
        assert run["half"] == [], run
        assert run["err"].count("error: ") == 1, run
        assert "cannot write" in error
        assert "No space left on device" in error
        assert run["records"].items() <= last["records"].items()

    for place_of_error in ("/cache/", "/runs/tiny", "goes on from the last state"):
        assert any(place_of_error in line for line in errors), errors
    assert last["half"] == []
    assert len(last["records"]) == 6
    assert faults == [[]]
