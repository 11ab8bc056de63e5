"""Two processes under `accelerate launch` share the pretraining; the main one alone writes, prints and runs cells."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import Forked
from rich.console import Console
from safetensors.torch import load_file
from stored import documents
from test_kill import write_rte
from test_kill_pretraining import curves, write_text

from glue_bench.api import run
from glue_bench.records.store import Store

# The second process works on a disk of its own, as one on another machine may: results lie elsewhere for it.
OTHER_DISK = """
import os
import sys

if os.environ["RANK"] == "1":
    sys.argv[sys.argv.index("--results") + 1] = os.environ["OTHER_DISK"]
"""

CLI = """
from glue_bench import cli

cli.main()
"""

# A second process that is lost at a step of the second arm; states are saved at every step.
LOSES_ONE = """
import sys
import glue_bench.training.pretrain as p
from glue_bench import cli

advance = p._PretrainingRun._advance

def perhaps(self):
    if self.inner.config.variant == "untied" and self.state.step == 12 and self.runtime.process_index == 1:
        raise RuntimeError("lost")
    advance(self)

p.SAVE_SECONDS = 0
p._PretrainingRun._advance = perhaps
cli.main()
"""


SECONDS = 240.0


def launch(folder: Path, program: str, *arguments: str, other_disk: Path) -> subprocess.CompletedProcess:
    """`program` in two processes on the CPU, of which the second has its results on `other_disk`.

    The launcher takes CPU processes for those of GPUs it does not find.
    """
    (folder / "program.py").write_text(OTHER_DISK + program)
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    settings = ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    environment = os.environ | {
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "GLUE_BENCH_CACHE": str(folder / "cache"),
        "OTHER_DISK": str(other_disk),
    }
    command = [sys.executable, *launcher, *settings, str(folder / "program.py"), *arguments]
    launched = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said = launched.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:  # processes that wait for each other
        os.killpg(launched.pid, signal.SIGKILL)
        launched.communicate()
        raise
    return subprocess.CompletedProcess(command, launched.returncode, *said)


def two_processes(folder: Path, program: str, *arguments: str, other_disk: Path) -> list[tuple[int, str, str]]:
    """`program` in two processes that are told what the launcher tells them: each one's status and what it said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
        **{"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_DYNAMO_BACKEND": "no"},
        **{"GLUE_BENCH_CACHE": str(folder / "cache"), "OTHER_DISK": str(other_disk)},
    }
    processes = [Forked(OTHER_DISK + program, *arguments, RANK=rank, LOCAL_RANK=rank, **told) for rank in ("0", "1")]
    said = [process.communicate(timeout=SECONDS) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def numbers(points: list[list]) -> list[list[float]]:
    """A loss curve with 0 where no validation loss was measured."""
    return [[value or 0.0 for value in point] for point in points]


def checkpoint(results: Path, arm: str) -> dict[str, torch.Tensor]:
    (path,) = results.glob(f"tiny/checkpoints/{arm}-*/step-20/model.safetensors")
    return load_file(path)


@pytest.fixture
def experiment(tiny, tmp_path) -> dict:
    """Two arms without dropout; nine sequences a batch, so that the processes have four and five of them."""
    write_rte(tmp_path / "glue")
    write_text(tmp_path / "text.txt")
    return tiny(
        data=str(tmp_path / "glue"),
        tasks=["rte"],
        arms=["add", "untied"],
        scratch={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        pretraining={
            "corpus": str(tmp_path / "text.txt"),
            "steps": 20,
            "batch_tokens": 9 * 32,
            "micro_batch_tokens": 3 * 32,
            "length": 32,
            # With a large epsilon Adam's steps are proportional to the gradient, so that a wrong one shows.
            "adam_epsilon": 1.0,
            "learning_rate": 1.0,
            "clip_norm": 1e6,
            "validations": 2,
        },
    )


def test_two_processes_learn_what_one_does_and_one_lost_ends_both(experiment, write_yaml, tmp_path):
    """The second one first sees results of which none is missing, and then none: it is told, and leaves them alone."""
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    run(experiment, results=alone, console=Console(file=io.StringIO()))
    command = ["run", str(write_yaml(experiment)), "--results", str(shared)]

    finished = contents(alone)
    (left, _, _), (lost, _, why) = two_processes(tmp_path, LOSES_ONE, *command, other_disk=alone)
    assert left != 0
    assert lost != 0
    assert contents(alone) == finished
    assert "RuntimeError: lost" in why
    assert_untied_goes_on(shared)

    (status, out, err), other = two_processes(tmp_path, CLI, *command, other_disk=tmp_path / "empty")
    assert status == 0, err
    assert other == (0, "", "")  # the main one alone prints
    assert not (tmp_path / "empty").exists()
    said = [line for line in err.splitlines() if re.search(r"pretraining \w+:|checking|\[", line)]
    assert [re.sub(r"^[-\d]+ [:\d]+ ", "", line).split(",")[0] for line in said] == [
        "checking the experiment",
        "pretraining untied: step 20 of 20",
        "[1/2] add after 20 steps on rte",
        "[2/2] untied after 20 steps on rte",
    ]
    assert out.count("# Leaderboard: tiny") == 1
    assert out.count("2 cells run, 0 were done before, 0 failed, 0 left") == 1

    assert {record["processes"] for record in documents(Store(shared / "tiny"), "pretraining")} == {2}
    ours, theirs = curves(shared), curves(alone)
    for arm in ("add", "untied"):
        stream, tokens, points = theirs[arm]
        assert ours[arm][:2] == [stream, tokens]
        assert numbers(ours[arm][2]) == [pytest.approx(point, rel=1e-4) for point in numbers(points)]
        for name, tensor in checkpoint(alone, arm).items():
            torch.testing.assert_close(checkpoint(shared, arm)[name], tensor, rtol=1e-3, atol=1e-5)
    plan = json.loads((shared / "tiny" / "plan.json").read_text())
    assert len(plan["cells"]) == len(documents(Store(shared / "tiny"))) == 2


def assert_untied_goes_on(shared: Path) -> None:
    """No cell has run, and the arm that has lost a process has a state to go on from."""
    assert not documents(Store(shared / "tiny"))
    assert len(list(shared.glob("tiny/checkpoints/untied-*/resume.pt"))) == 1


@pytest.mark.slow
def test_the_launcher_ends_both_where_one_is_lost(experiment, write_yaml, tmp_path):
    shared = tmp_path / "shared"
    lost = launch(
        tmp_path, LOSES_ONE, "run", str(write_yaml(experiment)), "--results", str(shared), other_disk=tmp_path / "other"
    )
    assert lost.returncode != 0
    assert "RuntimeError: lost" in lost.stderr
    assert not (tmp_path / "other").exists()
    assert_untied_goes_on(shared)


@pytest.mark.slow
def test_two_processes_search_for_the_rate_that_one_finds(experiment, write_yaml, tmp_path):
    """The main process alone reads the searches' losses and chooses; the other one trains at what it is told."""
    pretraining = {name: value for name, value in experiment["pretraining"].items() if name != "learning_rate"}
    experiment["pretraining"] = pretraining | {"learning_rates": [0.5, 1.0], "rate_search": {"steps": 10}}
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    run(experiment, results=alone, console=Console(file=io.StringIO()))
    command = ["run", str(write_yaml(experiment)), "--results", str(shared)]
    (status, out, err), other = two_processes(tmp_path, CLI, *command, other_disk=tmp_path / "empty")

    assert status == 0, err
    assert other == (0, "", "")
    assert out.count("2 cells run, 0 were done before, 0 failed, 0 left") == 1
    found, expected = (documents(Store(results / "tiny"), "pretraining") for results in (shared, alone))
    assert len(found) == len(expected) == 6  # two arms, each with two searches and one pretraining
    chosen = [{each["pretraining_id"]: each.get("learning_rate") for each in records} for records in (found, expected)]
    assert chosen[0] == chosen[1]
    assert sum(rate is not None for rate in chosen[0].values()) == 2
