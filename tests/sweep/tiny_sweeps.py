"""What the tests of sweeps share: settings, readers of results, a variant that raises on demand, runs aside."""

import random
import subprocess
from pathlib import Path
from typing import ClassVar

from forked import CLI, Forked

from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.records.values import Pretraining, PretrainingRecord, Record
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.run import Summary

SETTINGS = {
    **{"corpus": "demo", "steps": 10, "batch_tokens": 256, "length": 32, "learning_rate": 1e-3},
    **{"validations": 2, "validation_share": 0.05},
}


class Started(Observer):
    """Notes which jobs are handed out, and what is said."""

    def __init__(self) -> None:
        self.jobs, self.lines = list[str](), list[str]()

    def started(self, job) -> None:
        self.jobs.append(f"{job.arm} pretraining" if isinstance(job, Pretraining) else f"{job.arm} {job.task}")

    def say(self, line) -> None:
        self.lines.append(line)


def records(summary: Summary) -> dict[str, Record]:
    """The records of a sweep's plan, by arm and task."""
    store = Store(summary.folder)
    found = store.finished(store.plan()).records.values()
    return {f"{record.cell.arm} {record.cell.task}": record for record in found}


def pretrainings(summary: Summary) -> list[PretrainingRecord]:
    """The records of its pretrainings, in the plan's order."""
    store = Store(summary.folder)
    plan = store.plan()
    found = store.finished(plan).pretrainings
    return [found[job.id] for job in plan.pretrainings if job.id in found]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Moody(VARIANTS["add"]):
    """Raises `error` in the training step of this number (from 0), counted over all steps since it was told to."""

    error: ClassVar[BaseException | None] = None
    at = 0
    steps = 0

    def forward(self, token_ids, segment_ids):
        if self.training and token_ids.device.type != "meta":  # where operations are only counted
            Moody.steps += 1
            if Moody.error and Moody.steps > Moody.at:
                raise Moody.error
        return super().forward(token_ids, segment_ids)


# Runs in processes of their own, on a little data, for tests that disturb them

WORDS = ("cat", "dog", "horse", "fox", "tom", "anna", "old", "young", "chased", "helped", "called")
TABLES = ("leaderboard.csv", "scores.csv")


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


def start(config: Path, results: Path) -> Forked:
    return Forked(CLI, "run", config, "--results", results, GLUE_BENCH_CACHE=str(results / "cache"))


def finish(process: Forked | subprocess.Popen) -> str:
    output = "".join(said for said in process.communicate(timeout=240) if said)
    assert process.returncode == 0, output
    return output


def write_text(path: Path) -> None:
    """A text to pretrain on."""
    generator = random.Random(0)
    sentences = [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))) + " ." for _ in range(400)]
    path.write_text("\n".join(sentences))
