"""SIGKILL at random moments, start again: nothing finished is repeated, and the tables are the same bytes."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from forked import CLI, Forked

KILLS = 3
WORDS = ("cat", "dog", "horse", "fox", "tom", "anna", "old", "young", "chased", "helped", "called")
TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")


def write_rte(folder: Path) -> None:
    """A little RTE in the classic layout."""
    generator = random.Random(0)
    (folder / "RTE").mkdir(parents=True)
    for name, rows in (("train", 120), ("dev", 40), ("test", 10)):
        lines = ["index\tsentence1\tsentence2" + ("" if name == "test" else "\tlabel")]
        for row in range(rows):
            texts = [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))) for _ in range(2)]
            label = [] if name == "test" else [generator.choice(["entailment", "not_entailment"])]
            lines.append("\t".join([str(row), *texts, *label]))
        (folder / "RTE" / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def start(config: Path, results: Path, code: str = CLI) -> Forked:
    return Forked(code, "run", config, "--results", results, GLUE_BENCH_CACHE=str(results / "cache"))


def finish(process: Forked | subprocess.Popen) -> str:
    output = "".join(said for said in process.communicate(timeout=240) if said)
    assert process.returncode == 0, output
    return output


def records(results: Path) -> dict[str, tuple[int, bytes]]:
    """Every finished record with the time it was written and its content."""
    paths = (results / "tiny" / "records").glob("*.json")
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def kill_after(process: Forked, results: Path, count: int, delay: float) -> None:
    """SIGKILL once there are `count` records, `delay` seconds later."""
    deadline = time.monotonic() + 240
    while len(list((results / "tiny" / "records").glob("*.json"))) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_killed_sweep_ends_as_an_uninterrupted_one(tiny, write_yaml, tmp_path):
    write_rte(tmp_path / "glue")
    config = write_yaml(
        tiny(
            data=str(tmp_path / "glue"),
            arms=["add", "concat", "untied", "none"],
            tasks=["rte"],
            seeds=[1, 2, 3],
            finetuning={"epochs": 2},
        )
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(config, whole))
    moments = [(1 + 2 * kill, random.uniform(0, 0.3)) for kill in range(KILLS)]
    print("records and seconds at each kill:", moments)  # shown if the test fails
    kept: dict[str, tuple[int, bytes]] = {}
    for count, delay in moments:
        kill_after(start(config, killed), killed, count, delay)
        found = records(killed)
        assert kept.items() <= found.items()
        kept = found
    assert len(kept) < 12, "every kill came too late"
    output = finish(start(config, killed))
    assert f"{12 - len(kept)} cells run, {len(kept)} were done before" in output
    assert kept.items() <= records(killed).items()
    for name in TABLES:
        assert (killed / "tiny" / name).read_bytes() == (whole / "tiny" / name).read_bytes()
    predictions = sorted(path.name for path in (whole / "tiny" / "predictions").iterdir())
    assert len(predictions) == 12
    for name in predictions:
        ours, theirs = (folder / "tiny" / "predictions" / name for folder in (killed, whole))
        assert ours.read_bytes() == theirs.read_bytes()
