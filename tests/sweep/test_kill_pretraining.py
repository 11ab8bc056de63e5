"""SIGKILL in the middle of pretraining, start again: the weights are those of an uninterrupted run, bit for bit."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from forked import Forked
from test_kill import TABLES, WORDS, finish, start, write_rte

KILLS = 2
# States to continue from after every step, so that kills hit the writing of one too.
COMMAND = "import glue_bench.training.pretrain as p; from glue_bench.cli import main; p.SAVE_SECONDS = 0; main()"

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")]


def write_text(path: Path) -> None:
    generator = random.Random(0)
    sentences = [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))) + " ." for _ in range(400)]
    path.write_text("\n".join(sentences))


def newest(folder: Path) -> int:
    """When a state was last saved, in nanoseconds."""
    times = [0]
    for path in folder.glob("tiny/checkpoints/*/resume.pt"):
        try:
            times.append(path.stat().st_mtime_ns)
        except FileNotFoundError:  # that arm has just ended
            continue
    return max(times)


def kill_in_pretraining(process: Forked, results: Path, delay: float) -> None:
    """SIGKILL `delay` seconds after the process saved its first state."""
    before, deadline = newest(results), time.monotonic() + 240
    while newest(results) <= before and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def weights(results: Path) -> dict[str, bytes]:
    folder = results / "tiny" / "checkpoints"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("model.safetensors")}


def curves(results: Path) -> dict[str, list]:
    """Streams and losses of all arms."""
    records = [json.loads(path.read_text()) for path in (results / "tiny" / "pretraining").glob("*.json")]
    points = ("step", "tokens", "train_loss", "validation_loss")
    return {r["arm"]: [r["stream"], r["tokens"], [[p[key] for key in points] for p in r["losses"]]] for r in records}


def test_killed_pretraining_ends_with_the_bits_of_an_uninterrupted_one(tiny, write_yaml, tmp_path):
    write_rte(tmp_path / "glue")
    write_text(tmp_path / "text.txt")
    pretraining = {"corpus": str(tmp_path / "text.txt"), "steps": 60, "batch_tokens": 256, "length": 32}
    config = write_yaml(
        tiny(
            data=str(tmp_path / "glue"),
            tasks=["rte"],
            arms=["add", "untied"],
            pretraining=pretraining | {"learning_rate": 1e-3, "checkpoints": [25], "validations": 3},
        )
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(config, whole, COMMAND))
    delays = [random.uniform(0, 0.4) for _ in range(KILLS)]
    print("seconds after the first state at each kill:", delays)  # shown if the test fails
    waiting = 0
    for delay in delays:
        kill_in_pretraining(start(config, killed, COMMAND), killed, delay)
        waiting += bool(newest(killed))
    assert waiting, "every kill came too late"
    output = finish(start(config, killed, COMMAND))
    assert "2 cells run, 0 were done before, 0 failed, 0 left" in output
    assert len(weights(whole)) == 4
    assert weights(killed) == weights(whole)
    assert curves(killed) == curves(whole)
    for name in TABLES:
        assert (killed / "tiny" / name).read_bytes() == (whole / "tiny" / name).read_bytes()
    left = {path.name for path in (killed / "tiny" / "checkpoints").glob("*/*")}
    assert left == {"identity.json", "step-25", "step-60"}
