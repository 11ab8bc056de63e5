"""Runs in processes of their own, on a little data, for tests that disturb them."""

import random
import subprocess
from pathlib import Path

from forked import CLI, Forked

WORDS = ("cat", "dog", "horse", "fox", "tom", "anna", "old", "young", "chased", "helped", "called")
TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")


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


def write_text(path: Path) -> None:
    """A text to pretrain on."""
    generator = random.Random(0)
    sentences = [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))) + " ." for _ in range(400)]
    path.write_text("\n".join(sentences))
