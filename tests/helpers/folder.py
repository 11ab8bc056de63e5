"""Finished experiments, made by hand in milliseconds, and every verb and function that reads them."""

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
from glue_bench.records.store import Labels, Store
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

    `bits` tell runs of one cell apart: their logits, scores, models, labels and measures are others.
    """

    def __init__(self, path: Path, *, pretrained: bool = True, bits: int = 0) -> None:
        self.store, self.path, self.pretrained, self.bits = Store(path), path, pretrained, bits
        self.store.prepare()
        self.cells, self.pretrainings = dict[str, Cell](), dict[str, Pretraining]()
        self.labels = dict[str, Labels]()

    def _draw(self, name: str) -> np.random.Generator:
        return np.random.default_rng([crc32(name.encode()), self.bits])

    def pretrain(self, arm: str, seed: int = 1, *, rate: float = 1e-3, search: bool = False, planned: bool = True,
                 loss: float = 4.0, seconds: float = 100.0) -> None:  # fmt: skip
        """A finished pretraining of an arm, or a run of its search for a rate, with its losses and measures."""
        job = pretraining_with(
            arm, seed, STEPS, variant=arm, is_search=search, settings={"learning_rates": [rate]}
        )
        self.pretrainings |= {job.id: job} if planned else {}
        draw, count, arrays = self._draw(job.id), np.full(12, 10), {}
        points = [{"step": step, "tokens": step, "seconds": step} for step in (1, STEPS)]
        losses = [
            LossPoint(**one, train_loss=loss, validation_loss=loss + 1 / one["step"])
            for one in points
        ]
        facts = {
            "tokens": 100 * STEPS,
            "seconds": seconds,
            "environment": ENVIRONMENT,
            "losses": tuple(losses),
        }
        facts |= {"train_loss": loss, "validation_loss": losses[-1].validation_loss}
        if not search:
            pieces = {
                "loss_sum": 10 * (loss + draw.normal(0, 0.1, 12)),
                "count": count,
                "document": np.arange(12),
            }
            right = draw.integers(5, 10, 12).astype(float)
            measure = Measure(
                name="swap_1", value=float(right.sum() / count.sum()), standard_error=0.01, n=12
            )
            facts |= {
                "weights": {STEPS: digest(f"weights {job.id}")},
                "measure_tokens": 100,
                "measures": (measure,),
            }
            arrays = {"losses": pieces, "sums": {"swap_1": np.stack([right, count])}}
            job = job.model_copy(update={"rate": rate})
        self.store.write(pretrained_of(job, **facts), **arrays)

    def run(self, arm: str, task: str, seed: int = 1, pretraining_seed: int = 1, *, rate: float = 1e-3,
            steps: int = STEPS, planned: bool = True, recorded: bool = True, like: str = "", right: float = 0.7,
            options: dict[str, Any] | None = None, data: str = "", **more: Any) -> str:  # fmt: skip
        """A cell of the plan, with all that a finished run leaves; `more` are fields of its record.

        It is `right` on such a share of examples, and its test predictions are those of the cell `like`.
        """
        start: dict[str, Any] = {"origin": "scratch"}
        if self.pretrained:
            named = [one.id for one in self.pretrainings.values()
                     if (one.arm, one.seed, one.is_search) == (arm, pretraining_seed, False)]  # fmt: skip
            start = {
                "steps": steps,
                "pretraining_seed": pretraining_seed,
                "pretraining": next(iter(named), None),
            }
        of_arm = {"arm": arm, "variant": arm, "options": options or {}, "checkpoint": "scratch {}"}
        of_task = {
            "task": task,
            "data": digest(task + data),
            "learning_rate": rate,
            "held_out_share": 0.1,
        }
        cell = cell_with(seed=seed, **of_arm, **of_task, **start)
        self.cells |= {cell.id: cell} if planned else {}
        facts, draw = TASKS[task], self._draw(cell.id)
        gold = np.arange(ROWS) % facts.num_labels
        labels = self._draw(task).permutation(gold) if self.bits else gold
        self.labels[task] = {"gold": dict.fromkeys(facts.columns, labels)}
        if not recorded:
            return cell.id
        history, logits, scores = [], {}, {}
        for epoch, share in enumerate((right + 0.15, right), 1):  # the first epoch is better
            logits = {split: _logits(draw, gold, share, task) for split in facts.columns}
            scores = {
                split: score(task, decide(task, said), gold) for split, said in logits.items()
            }
            held_out = {facts.metrics[0]: float(draw.random())}
            history.append(
                {"epoch": epoch, "train_loss": 1.0, "scores": scores | {"held_out": held_out}}
            )
        given = {
            "seconds": 5.0,
            "environment": ENVIRONMENT,
            "diagnostic": digest("ax") if task == "mnli" else None,
        }
        given |= {
            "scores": scores,
            "history": tuple(history),
            "started_from": digest(f"weights {cell.pretraining}"),
        }
        splits, other = (
            [*facts.test_splits, *["test_ax"] * (task == "mnli")],
            self._draw(f"{like or cell.id} t"),
        )
        tests = {split: other.random((TESTS, facts.num_labels), np.float32) for split in splits}

        def save(model: Path) -> None:
            (model / "config.json").write_text("{}")
            (model / "model.safetensors").write_text(f"the weights of {cell.id}, {self.bits}")

        self.store.write(record_of(cell, **given | more), save, logits=logits, tests=tests)
        return cell.id

    def fail(self, arm: str, task: str, seed: int, *, planned: bool = True) -> None:
        """A cell whose last attempt failed."""
        name = self.run(arm, task, seed, planned=planned, recorded=False)
        self.store.write_failure(Failure(id=name, error="gone wrong"))

    def plan(self, **protocol: Any) -> Path:
        """Write the plan, which asks for what is planned so far; the folder."""
        arms = [
            {"name": arm, "checkpoint": "scratch"}
            for arm in {cell.arm: None for cell in self.cells.values()}
        ]
        config = {"protocol": protocol, "finetuning": {"held_out_share": 0.1}, "arms": arms}
        config |= {"pretraining": {"segments": "pairs", "steps": STEPS}} if self.pretrained else {}
        plan = plan_with(
            *self.cells.values(), config=config, pretrainings=tuple(self.pretrainings.values())
        )
        self.store.write_plan(
            plan, {task: labels for task, labels in self.labels.items() if task in plan.tasks}
        )
        return self.path


def _logits(draw: np.random.Generator, gold: np.ndarray, right: float, task: str) -> np.ndarray:
    said, wrong = gold.copy(), draw.permutation(ROWS)[round(min(right, 1) * ROWS) :]
    said[wrong] = (said[wrong] + 1) % TASKS[task].num_labels
    return (np.eye(TASKS[task].num_labels)[said] + draw.random((ROWS, 1)) / 10).astype(np.float32)


def planned(folder: Path) -> list[dict[str, Any]]:
    """The cells that the plan asks for, each with the `state` that its files say and its `record`, if it has one."""
    cells: list[dict[str, Any]] = json.loads((folder / "plan.json").read_bytes())["cells"]
    for cell in cells:
        path = folder / "cells" / cell["id"] / "record.json"
        cell["record"] = json.loads(path.read_bytes()) if path.exists() else None
        failed = (folder / "failures" / f"{cell['id']}.json").exists()
        cell["state"] = "done" if cell["record"] else "failed" if failed else "missing"
    return cells


def prune(folder: Path) -> Path:
    """Delete all that the plan does not ask for; the folder."""
    plan = json.loads((folder / "plan.json").read_bytes())
    ids = {job["id"] for job in [*plan["cells"], *plan.get("pretrainings", ())]}
    kinds = ("cells", "pretrainings", "failures", "checkpoints")
    for path in [path for kind in kinds for path in folder.glob(f"{kind}/*")]:
        if path.name.removesuffix(".json") not in ids:
            path.unlink() if path.is_file() else shutil.rmtree(path)
    return folder


# Who reads


def verb(*words: object) -> str:
    """What `glue-bench` says with these words after it."""
    said = CliRunner().invoke(app, [str(word) for word in words])
    if said.exception and not isinstance(said.exception, UserError | SystemExit):
        raise said.exception
    return f"{said.output}{said.exception or ''}"


def written(out: Path, *patterns: str) -> str:
    """The files of a folder, or all below it, without the second at which a log was made; of an archive its SHA-256."""
    texts = []
    for path in sorted(
        {path for pattern in patterns or ["**/*"] for path in out.glob(pattern) if path.is_file()}
    ):
        zipped = path.suffix == ".zip"
        texts.append(
            f"{path.name}: {hashlib.sha256(path.read_bytes()).hexdigest() if zipped else path.read_text()}"
        )
    return re.sub(r'"retrieved_timestamp": "\d+"', "", "\n".join(texts))


def labelled_ax(out: Path) -> Path:
    """As many labelled pairs as runs have predicted, beside `out`."""
    labels = ("entailment", "neutral", "contradiction")
    lines = [
        "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tPremise\tHypothesis\tLabel"
    ]
    lines += [
        f"\t\tNegation\t\tpremise {row}\thypothesis {row}\t{labels[row % 3]}"
        for row in range(TESTS)
    ]
    path = out.with_name("diagnostic-full.tsv")
    path.write_text("\n".join(lines) + "\n")
    return path


VERBS = {
    "status": "status RUNS",
    "leaderboard": "leaderboard RUNS; leaderboard RUNS --format csv; leaderboard RUNS --format json",
    "report": "report RUNS -o OUT/report.html",
    "statistics": "statistics RUNS --equivalent 20 --format json",
    "power": "statistics RUNS --difference 20 --format json",
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


def told(value: Any) -> str:
    """A value as text, frames in full precision."""
    return str(value.to_csv() if hasattr(value, "to_csv") else value)


def stamps(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """When each file was changed last, and what is in it."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def read(name: str, folder: Path, out: Path) -> str:
    """What a reader says of a folder and writes into `out`, without paths. A refusal is an answer, too."""
    out.mkdir()
    before, places = stamps(folder), {"RUNS": folder, "OUT": out, "LABELS": labelled_ax(out)}
    try:
        if name.endswith("()"):
            said = told(FUNCTIONS[name[:-2]](folder))
        else:
            calls = (
                re.sub("RUNS|OUT|LABELS", lambda found: str(places[found[0]]), VERBS[name])
            ).split("; ")
            said = "".join(verb(*call.split()) for call in calls) + written(out)
    except UserError as error:
        said = f"refused: {error}"
    assert stamps(folder) == before, "it changed a file"
    return said.replace(str(out), "OUT").replace(str(folder), "FOLDER")
