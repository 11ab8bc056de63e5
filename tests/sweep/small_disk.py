"""A program: sweeps on a disk of its own that fills up, and on one that is read-only. Prints what came of each.

    unshare -m python small_disk.py MOUNTPOINT EXPERIMENT.yaml

The disk is a tmpfs in the mount namespace of this process; it is gone when the process ends, however it ends.
"""

import contextlib
import gc
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import glue_bench.api
from glue_bench import cli
from glue_bench.training import pretrain

STEP = 8  # KiB more from run to run: the write that fails is of the cache, the plan, a state, a checkpoint, a record
ENOUGH = 2  # records on the disk when it becomes read-only


def mount(place: Path, *options: str) -> None:
    """A tmpfs, or with other options the same one again."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)], check=True)


def run(*words: object) -> dict:
    """What `glue-bench run` does, in this process."""
    sys.argv = ["glue-bench", "run", *map(str, words)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
            status: object = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException as error:
            status = repr(error)
    gc.collect()  # the maps of files that a failure left in a cycle: one open for writing keeps a disk from read-only
    gc.freeze()  # the next run does not look through what this one has imported
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def left_half_written(place: Path) -> list[str]:
    """Files that are neither absent nor whole."""
    found = [str(path) for path in place.rglob(".*") if path.name != ".lock"]
    for path in (place / "runs" / "tiny").rglob("*.json"):
        try:
            json.loads(path.read_bytes())
        except ValueError:
            found.append(str(path))
    return found


def main() -> None:
    """Mount, fill, run, free, run."""
    place, config = Path(sys.argv[1]), sys.argv[2]
    mount(place, "size=16m")
    os.environ["GLUE_BENCH_CACHE"] = str(place / "cache")
    glue_bench.api.write_page = os.fsync = lambda *_: None  # as in the tests' own process
    pretrain.SAVE_SECONDS = 0  # a state at every step
    command, results = (config, "--results", place / "runs"), place / "runs" / "tiny"
    found: dict = {"full": []}

    def count() -> int:
        return len(list(results.glob("cells/*/record.json")))

    def fill_until(done: Callable[[], bool]) -> None:
        room = 0
        while not done():
            status = os.statvfs(place)
            with contextlib.suppress(OSError), (place / "ballast").open("wb") as file:
                file.write(b"\0" * (status.f_bavail * status.f_bsize - room * 1024))
            found["full"].append({**run(*command), "half": left_half_written(place)})
            (place / "ballast").unlink()
            room += STEP

    fill_until(lambda: any("from the last state" in said["err"] for said in found["full"]))
    found["pretrained"] = run(*command, "--only", "seed=1")
    before = count()
    fill_until(lambda: count() >= before + ENOUGH)
    found["kept"] = count()
    mount(place, "remount", "ro")
    found["read_only"] = run(*command)
    mount(place, "remount", "rw")
    found["half"] = left_half_written(place)
    found["last"] = run(*command)
    found["half_at_last"] = left_half_written(place)
    found["tables"] = [(results / name).read_text() for name in ("leaderboard.csv", "scores.csv")]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
