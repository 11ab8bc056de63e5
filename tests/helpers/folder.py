"""Finished experiments, made by hand in milliseconds, and every verb and function that reads
them.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from typer.testing import CliRunner

import glue_bench
from glue_bench.cli import app
from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.records.labels import Labels
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Failure, LossPoint, Measure, Pretraining
from helpers.stored import cell_with, digest, plan_with, pretrained_of, pretraining_with, record_of

ROWS, TESTS, STEPS = 40, 12, 8
"""Examples of each validation split, of each test split; steps of a pretraining."""
ENVIRONMENT = {
    "glue_bench": "0.1.0",
    "processor": "this one",
    "device": "cpu",
    "precision": "float32",
    "threads": 1,
}


class Folder:
    """The folder of an experiment. What is not `planned` is of an earlier plan.

    `bits` tell runs of one cell apart: their logits, scores, models, labels and measures are
    others.
    """

    def __init__(self, path: Path, *, pretrained: bool = True, bits: int = 0) -> None:
        self.store = Store(path)
        self.path = path
        self.pretrained = pretrained
        self.bits = bits
        self.store.prepare()
        self.cells: dict[str, Cell] = {}
        self.pretrainings: dict[str, Pretraining] = {}
        self.labels: dict[str, Labels] = {}

    def _draw(self, name: str) -> np.random.Generator:
        return np.random.default_rng([crc32(name.encode()), self.bits])

    def pretrain(
        self,
        arm: str,
        *,
        seed: int = 1,
        rate: float = 1e-3,
        search: bool = False,
        planned: bool = True,
        loss: float = 4.0,
        seconds: float = 100.0,
    ) -> None:
        """Store a finished pretraining of an arm, or a run of its search for a rate, with losses
        and measures.
        """
        settings = {"learning_rates": [rate]}
        job = pretraining_with(arm, seed, STEPS, variant=arm, is_search=search, settings=settings)
        if planned:
            self.pretrainings[job.id] = job

        points: list[LossPoint] = []
        for step in (1, STEPS):
            validation_loss = loss + 1 / step
            point = LossPoint(
                step=step,
                tokens=step,
                seconds=step,
                train_loss=loss,
                validation_loss=validation_loss,
            )
            points.append(point)

        facts = {
            "tokens": 100 * STEPS,
            "seconds": seconds,
            "environment": ENVIRONMENT,
            "losses": tuple(points),
            "train_loss": loss,
            "validation_loss": points[-1].validation_loss,
        }

        if search:
            self.store.write(pretrained_of(job, **facts))
            return

        draw = self._draw(job.id)
        counts = np.full(12, 10)
        losses = {
            "loss_sum": 10 * (loss + draw.normal(0, 0.1, 12)),
            "count": counts,
            "document": np.arange(12),
        }
        right = draw.integers(5, 10, 12).astype(float)
        share = float(right.sum() / counts.sum())
        measure = Measure(name="swap_1", value=share, standard_error=0.01, n=12)

        facts |= {
            "weights": {STEPS: digest(f"weights {job.id}")},
            "measure_tokens": 100,
            "measures": (measure,),
        }

        record = pretrained_of(job.model_copy(update={"rate": rate}), **facts)
        self.store.write(record, losses=losses, sums={"swap_1": np.stack([right, counts])})

    def _start(self, arm: str, pretraining_seed: int, steps: int) -> dict[str, Any]:
        """Return what a cell starts from: the pretraining of its arm, or random weights."""
        if not self.pretrained:
            return {"origin": "scratch"}
        start: dict[str, Any] = {
            "steps": steps,
            "pretraining_seed": pretraining_seed,
            "pretraining": None,
        }
        for job in self.pretrainings.values():
            if (job.arm, job.seed, job.is_search) == (arm, pretraining_seed, False):
                start["pretraining"] = job.id
                break
        return start

    def run(
        self,
        arm: str,
        task: str,
        *,
        seed: int = 1,
        pretraining_seed: int = 1,
        rate: float = 1e-3,
        steps: int = STEPS,
        planned: bool = True,
        recorded: bool = True,
        like: str = "",
        right: float = 0.7,
        options: dict[str, Any] | None = None,
        data: str = "",
        **facts: Any,
    ) -> str:
        """Add a cell to the plan, with all that a finished run leaves, and return its id.

        Args:
            arm: the cell's arm.
            task: the cell's task.
            seed: the cell's seed.
            pretraining_seed: the seed of the pretraining that it starts from.
            rate: its learning rate.
            steps: the steps of pretraining after which it starts.
            planned: whether the plan asks for it.
            recorded: whether it has a record.
            like: the id of a cell whose test predictions it has.
            right: the share of examples that it gets right.
            options: of its variant.
            data: tells contents of the task's data apart.
            **facts: fields of its record.
        """
        cell = cell_with(
            seed=seed,
            arm=arm,
            variant=arm,
            options=options or {},
            checkpoint="scratch {}",
            task=task,
            data=digest(task + data),
            learning_rate=rate,
            held_out_share=0.1,
            **self._start(arm, pretraining_seed, steps),
        )

        if planned:
            self.cells[cell.id] = cell

        gold = np.arange(ROWS) % TASKS[task].num_labels
        labels = self._draw(task).permutation(gold) if self.bits else gold
        self.labels[task] = {"gold": dict.fromkeys(TASKS[task].columns, labels)}

        if recorded:
            self._record(cell, gold, right, like or cell.id, facts)
        return cell.id

    def _record(
        self, cell: Cell, gold: np.ndarray, right: float, like: str, facts: dict[str, Any]
    ) -> None:
        task = TASKS[cell.task]
        draw = self._draw(cell.id)
        history: list[dict[str, Any]] = []
        logits: dict[str, np.ndarray] = {}
        scores: dict[str, Any] = {}
        for epoch, share in enumerate((right + 0.15, right), 1):  # the first epoch is better
            for split in task.columns:
                logits[split] = _logits(draw, gold, share, cell.task)
                scores[split] = score(cell.task, decide(cell.task, logits[split]), gold)
            held_out = {task.metrics[0]: float(draw.random())}
            epoch_scores = scores | {"held_out": held_out}
            history.append({"epoch": epoch, "train_loss": 1.0, "scores": epoch_scores})
        is_mnli = cell.task == "mnli"
        values = {
            "seconds": 5.0,
            "environment": ENVIRONMENT,
            "diagnostic": digest("ax") if is_mnli else None,
            "scores": scores,
            "history": tuple(history),
            "started_from": digest(f"weights {cell.pretraining}"),
        }
        test_draw = self._draw(f"{like} t")
        test_splits = [*task.test_splits, "test_ax"] if is_mnli else task.test_splits
        tests: dict[str, np.ndarray] = {}
        for split in test_splits:
            tests[split] = test_draw.random((TESTS, task.num_labels), np.float32)

        def save(model: Path) -> None:
            (model / "config.json").write_text("{}")
            (model / "model.safetensors").write_text(f"the weights of {cell.id}, {self.bits}")

        self.store.write(record_of(cell, **values | facts), save, logits=logits, tests=tests)

    def fail(self, arm: str, task: str, *, seed: int, planned: bool = True) -> None:
        """Add a cell whose last attempt failed."""
        name = self.run(arm, task, seed=seed, planned=planned, recorded=False)
        self.store.write_failure(Failure(id=name, error="gone wrong"))

    def plan(self, **protocol: Any) -> Path:
        """Write the plan, which asks for what is planned so far, and return the folder."""
        names = dict.fromkeys(cell.arm for cell in self.cells.values())
        config: dict[str, Any] = {
            "protocol": protocol,
            "finetuning": {"held_out_share": 0.1},
            "arms": [{"name": name, "checkpoint": "scratch"} for name in names],
        }
        if self.pretrained:
            config["pretraining"] = {"segments": "pairs", "steps": STEPS}
        pretrainings = tuple(self.pretrainings.values())
        plan = plan_with(*self.cells.values(), config=config, pretrainings=pretrainings)
        labels = {task: self.labels[task] for task in self.labels if task in plan.tasks}
        self.store.write_plan(plan, labels)
        return self.path


def _logits(draw: np.random.Generator, gold: np.ndarray, right: float, task: str) -> np.ndarray:
    count = TASKS[task].num_labels
    predicted = gold.copy()
    wrong = draw.permutation(ROWS)[round(min(right, 1) * ROWS) :]
    predicted[wrong] = (predicted[wrong] + 1) % count
    logits = np.eye(count)[predicted] + draw.random((ROWS, 1)) / 10
    return logits.astype(np.float32)


def planned(folder: Path) -> list[dict[str, Any]]:
    """Return the planned cells, each with the `state` that its files say and its `record`, if it
    has one.
    """
    cells: list[dict[str, Any]] = json.loads((folder / "plan.json").read_bytes())["cells"]
    for cell in cells:
        path = folder / "cells" / cell["id"] / "record.json"
        cell["record"] = json.loads(path.read_bytes()) if path.exists() else None
        if cell["record"]:
            cell["state"] = "done"
        elif (folder / "failures" / f"{cell['id']}.json").exists():
            cell["state"] = "failed"
        else:
            cell["state"] = "missing"
    return cells


def prune(folder: Path) -> Path:
    """Delete all that the plan does not ask for, and return the folder."""
    plan = json.loads((folder / "plan.json").read_bytes())
    ids = {job["id"] for job in [*plan["cells"], *plan.get("pretrainings", ())]}
    for kind in ("cells", "pretrainings", "failures", "checkpoints"):
        for path in list(folder.glob(f"{kind}/*")):
            if path.name.removesuffix(".json") in ids:
                continue
            if path.is_file():
                path.unlink()
            else:
                shutil.rmtree(path)
    return folder


# Who reads


def call_verb(*words: object) -> str:
    """Call `glue-bench` with these words after it, and return what it prints."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, UserError | SystemExit):
        raise result.exception
    return f"{result.output}{result.exception or ''}"


def written_text(out: Path, *patterns: str) -> str:
    """Return the files of a folder that fit a pattern, or all files below it, as text.

    The second at which a log was made is left out. An archive is shown by its SHA-256.
    """
    texts: list[str] = []
    paths: set[Path] = set()
    for pattern in patterns or ["**/*"]:
        paths.update(out.glob(pattern))
    for path in sorted(paths):
        if path.suffix == ".zip":
            texts.append(f"{path.name}: {hashlib.sha256(path.read_bytes()).hexdigest()}")
        elif path.is_file():
            texts.append(f"{path.name}: {path.read_text()}")
    return re.sub(r'"retrieved_timestamp": "\d+"', "", "\n".join(texts))


def labelled_ax(out: Path) -> Path:
    """Write as many labelled pairs as runs have predicted, beside `out`, and return their file."""
    columns = [
        "Lexical Semantics",
        "Predicate-Argument Structure",
        "Logic",
        "Knowledge",
        "Premise",
        "Hypothesis",
        "Label",
    ]
    labels = ("entailment", "neutral", "contradiction")
    lines = ["\t".join(columns)]
    for row in range(TESTS):
        lines.append(f"\t\tNegation\t\tpremise {row}\thypothesis {row}\t{labels[row % 3]}")
    path = out.with_name("diagnostic-full.tsv")
    path.write_text("\n".join(lines) + "\n")
    return path


VERBS = {
    "status": "status RUNS",
    "leaderboard": "; ".join(
        ["leaderboard RUNS", "leaderboard RUNS --format csv", "leaderboard RUNS --format json"]
    ),
    "report": "report RUNS -o OUT/report.html",
    "statistics": "statistics RUNS --equivalent 20 --format json",
    "power": "statistics RUNS --difference 20 --format json",
    "compare": "compare RUNS --format json",
    "table": "table tupe-1 RUNS",
    "submit": "submit RUNS --arm add --fill -o OUT/add.zip",
    "diagnostics": "leaderboard RUNS --format json --diagnostic LABELS",
    "card": "card RUNS --arm add -o OUT/card",
    "export": "export RUNS --format eee --organization us -o OUT",
}
"""Verbs that read the folder of an experiment, RUNS, and perhaps write into another one."""
FUNCTIONS: dict[str, Callable[[Path], Any]] = {
    "status": glue_bench.status,
    "predictions": glue_bench.predictions,
    "leaderboard": glue_bench.leaderboard,
    "statistics": glue_bench.statistics,
    "table": lambda folder: glue_bench.table("tupe-1", folder),
}
"""Functions that give a frame. What the others do is what their verbs do (test_verbs.py)."""
READERS = [*VERBS, *(f"{name}()" for name in FUNCTIONS)]


def as_text(value: Any) -> str:
    """Return a value as text, frames in full precision."""
    return str(value.to_csv() if hasattr(value, "to_csv") else value)


def stamps(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Return when each file was changed last, and what is in it."""
    files: dict[Path, tuple[int, bytes]] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            files[path] = (path.stat().st_mtime_ns, path.read_bytes())
    return files


def answer_of(name: str, folder: Path, out: Path) -> str:
    """Return what a reader says of a folder and writes into `out`."""
    if name.endswith("()"):
        function = FUNCTIONS[name[:-2]]
        return as_text(function(folder))
    places = {"RUNS": folder, "OUT": out, "LABELS": labelled_ax(out)}
    words = re.sub("RUNS|OUT|LABELS", lambda match: str(places[match[0]]), VERBS[name])
    printed = "".join(call_verb(*call.split()) for call in words.split("; "))
    return printed + written_text(out)


def read(name: str, folder: Path, out: Path) -> str:
    """Return what a reader says of a folder and writes into `out`, without paths.

    A refusal is an answer, too.
    """
    out.mkdir()
    before = stamps(folder)
    try:
        text = answer_of(name, folder, out)
    except UserError as error:
        text = f"refused: {error}"
    assert stamps(folder) == before, "it changed a file"
    return text.replace(str(out), "OUT").replace(str(folder), "FOLDER")
