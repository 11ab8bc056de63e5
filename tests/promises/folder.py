"""Finished experiments, made by hand in milliseconds: of the promises, this file alone knows what is on the disk."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import TASKS
from glue_bench.files import write_checksums
from glue_bench.records.intrinsic import IntrinsicRecord, Measure
from glue_bench.records.plan import Plan
from glue_bench.records.predicted import Predicted
from glue_bench.records.record import FailureRecord, LossPoint, PretrainingRecord, Record
from glue_bench.records.store import Store

ROWS, TESTS = 40, 12
"""Examples of each validation split, and of each test split."""
STEPS = 8
SHAPE = {
    **{"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16},
    **{"embedding_size": 8, "vocab_size": 100},
}
ENVIRONMENT = {"glue_bench": "0.1.0", "processor": "this one", "device": "cpu", "precision": "float32", "threads": 1}
KINDS = {"predictions": "predictions", "tests": "test_predictions", "model": "models"}
"""What a run leaves beside its record, and where."""


class Folder:
    """The folder of an experiment. What is not `planned` is of an earlier plan.

    `bits` tell runs of one cell apart: their logits, scores, models and measures are others.
    """

    def __init__(self, path: Path, *, source: str = "tsv", pretrained: bool = True) -> None:
        self.store, self.path, self.source, self.pretrained = Store(path), path, source, pretrained
        self.store.prepare()
        self.cells: list[dict[str, Any]] = []
        self.pretrainings: list[dict[str, Any]] = []

    def pretrain(self, arm: str, seed: int = 1, *, rate: float = 1e-3, search: bool = False, planned: bool = True,
                 loss: float = 4.0, seconds: float = 100.0) -> str:  # fmt: skip
        """A finished pretraining of an arm, or a run of its search for a rate, with its losses and measures."""
        name = f"{arm}-{_hex(arm, seed, rate, search)}"
        identity = {"variant": arm, "options": {}, "tokenizer": "t", "start": "scratch", "corpus": "c", "packing": 1}
        identity["settings"] = {"steps": STEPS, "learning_rate": rate, "seed": seed}
        facts = {"pretraining_id": name, "arm": arm, "seed": seed, "is_search": search, "identity": identity}
        self.pretrainings += [facts] * planned
        losses = [
            LossPoint(step=step, tokens=100 * step, train_loss=loss, validation_loss=loss + 1 / step, seconds=step)
            for step in (1, STEPS)
        ]
        record = PretrainingRecord(
            **{"schema_version": 1, "pretraining_id": name, "arm": arm, "origin": "pretrained", "identity": identity},
            **{"steps": STEPS, "tokens": 100 * STEPS, "seconds": seconds, "stream": "s"},
            **{"train_loss": loss, "validation_loss": loss + 1 / STEPS, "losses": losses, "environment": ENVIRONMENT},
            **({} if search else {"learning_rate": rate}),
        )
        self.store.write_pretraining(record, None if search else self._losses(name, loss, 0))
        if not search:
            self.measure(name)
        return name

    def measure(self, name: str, bits: int = 0) -> None:
        """The measures of a pretraining's encoder."""
        hits, pieces = _generator(name, bits).integers(5, 10, 12), np.full(12, 10)
        value = float(hits.sum() / pieces.sum())
        measure = Measure(name="swap_1", value=value, standard_error=0.01, n=12)
        seed = self.store.read_pretraining(name).identity.settings["seed"]
        told = {"pretraining_id": name, "arm": name.rpartition("-")[0], "pretraining_seed": seed, "step": STEPS}
        record = IntrinsicRecord(schema_version=1, tokens=100, measures=(measure,), **told)
        self.store.intrinsic.write(record, {"swap_1": np.stack([hits, pieces])})

    def losses(self, name: str, bits: int) -> None:
        """Other validation losses beside the record of a pretraining, which stays."""
        record = self.store.folder / "pretraining" / f"{name}.json"
        before = record.read_bytes()
        self.store.write_pretraining(self.store.read_pretraining(name), self._losses(name, 4.0, bits))
        record.write_bytes(before)

    def _losses(self, name: str, loss: float, bits: int) -> dict[str, np.ndarray]:
        noise = _generator(name, bits).normal(0, 0.1, 12)
        return {"loss_sum": 10 * (loss + noise), "count": np.full(12, 10), "document": np.arange(12)}

    def run(self, arm: str, task: str, seed: int = 1, pretraining_seed: int = 1, *, rate: float = 1e-3,
            steps: int = STEPS, planned: bool = True, recorded: bool = True, bits: int = 0,
            right: float = 0.7, collapsed: tuple[str, ...] = (), scored: Any = None, **more: Any) -> str:  # fmt: skip
        """A cell of the plan, with all that a finished run leaves; `more` are fields of its record."""
        key = {"arm": arm, "variant": arm, "task": task, "learning_rate": rate, "seed": seed}
        if self.pretrained:
            key |= {"steps": steps, "pretraining_seed": pretraining_seed}
        name = f"{arm}-{task}-lr{rate:g}-s{seed}-p{pretraining_seed}-step{steps}-{_hex(task, rate, seed)}"
        self.cells += [key | {"cell_id": name, "origin": self.origin}] * planned
        if recorded:
            logits = self.logits(name, task, bits, right)
            epochs = self._epochs(name, task, bits, right)
            epochs[-1] |= scored or {}
            document = {
                **{"schema_version": 1, "cell_id": name, "experiment": "toy", "cell": key, "origin": self.origin},
                **{
                    "scores": {split: epochs[-1][split] for split in TASKS[task].columns},
                    "collapsed": collapsed,
                    "seconds": {"total": 5.0},
                    "parameters": 1000,
                },
                "history": [
                    {"epoch": epoch, "train_loss": 1.0, "scores": scores} for epoch, scores in enumerate(epochs, 1)
                ],
                **{"shape": SHAPE, "tokens": {"training": 100}, "environment": ENVIRONMENT},
                **{"data": {"source": self.source, "digest": "d" * 12}, "checkpoint": {"name": "scratch"}},
            }
            self.store.write_record(Record.model_validate(document | more), logits)
        return name

    @property
    def origin(self) -> str:
        """How the weights of all arms came to be."""
        return "pretrained" if self.pretrained else "scratch"

    def logits(self, name: str, task: str, bits: int, right: float = 0.7) -> dict[str, np.ndarray]:
        """What a run has predicted of the scored splits."""
        generator, found = _generator(name, bits), {}
        for split in TASKS[task].columns:
            said, wrong = _labels(task), generator.permutation(ROWS)[round(min(right, 1) * ROWS) :]
            said[wrong] = (said[wrong] + 1) % TASKS[task].num_labels
            found[split] = np.eye(TASKS[task].num_labels, dtype=np.float32)[said] + generator.random((ROWS, 1)) / 10
        return {split: logits.astype(np.float32) for split, logits in found.items()}

    def _scores(self, task: str, logits: dict[str, np.ndarray]) -> dict[str, Any]:
        return {split: score(task, decide(task, said), _labels(task)) for split, said in logits.items()}

    def _epochs(self, name: str, task: str, bits: int, right: float) -> list[dict[str, Any]]:
        """Scores after two epochs, of which the first is the better one; a slice of train has its own opinion."""
        metric, chance = TASKS[task].metrics[0], _generator(name, bits).random(2)
        return [
            {**self._scores(task, self.logits(name, task, bits, share)), "held_out": {metric: float(held_out)}}
            for share, held_out in zip((right + 0.15, right), chance, strict=True)
        ]

    def beside(self, name: str, bits: int, kinds: Iterable[str] = ("tests", "model"), like: str = "") -> None:
        """What a run with these bits leaves beside the record of a cell, which stays; with tests as those of `like`."""
        task = name.split("-")[-6]
        if "predictions" in kinds:
            record = self.path / "records" / f"{name}.json"
            before = record.read_bytes()
            self.store.write_record(self.store.read_record(name), self.logits(name, task, bits))
            record.write_bytes(before)
        if "tests" in kinds:
            generator, splits = (
                _generator(like or name, bits),
                (*TASKS[task].test_splits, *["test_ax"] * (task == "mnli")),
            )
            arrays = {split: generator.random((TESTS, TASKS[task].num_labels)) for split in splits}
            self.store.tests.write(name, Predicted(arrays))
        if "model" in kinds:
            folder = self.path / "models" / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "config.json").write_text("{}")
            (folder / "model.safetensors").write_text(f"the weights of {name}, {bits}")
            write_checksums(folder)

    def gold(self, task: str, turn: int = 0) -> None:
        """The gold labels of a task; a `turn` of the classes makes other ones."""
        labels = (_labels(task) + turn) % TASKS[task].num_labels
        self.store.write_labels(task, "d" * 12, dict.fromkeys(TASKS[task].columns, labels))

    def fail(self, arm: str, task: str, seed: int, *, planned: bool = True) -> str:
        """A cell whose last attempt failed."""
        name = self.run(arm, task, seed, planned=planned, recorded=False)
        self.store.write_failure(FailureRecord(cell_id=name, arm=arm, task=task, seed=seed, error="gone wrong"))
        return name

    def plan(self, **protocol: Any) -> Path:
        """Write the plan, which asks for what is planned so far; the folder."""
        arms = list(dict.fromkeys(cell["arm"] for cell in self.cells))
        config: dict[str, Any] = {"name": "toy", "protocol": protocol, "arms": [{"name": arm} for arm in arms]}
        config["finetuning"] = {"held_out_share": 0.1}
        if self.pretrained:
            config["pretraining"] = {"segments": "pairs", "steps": STEPS, "start": "scratch"}
        facts = {"origin": self.origin, "shape": SHAPE, "start": "scratch"}
        document = {
            **{"schema_version": 1, "experiment": "toy", "data_source": self.source, "config": config},
            "arms": {arm: facts | {"variant": arm} for arm in arms},
            **{"pretrainings": self.pretrainings, "cells": self.cells},
        }
        (self.path / "plan.json").write_text(json.dumps(Plan.model_validate(document).document()))
        return self.path


def planned(folder: Path) -> list[dict[str, Any]]:
    """The cells that the plan asks for, each with the `state` that its files say and its `record`, if it has one."""
    cells: list[dict[str, Any]] = json.loads((folder / "plan.json").read_bytes())["cells"]
    for cell in cells:
        path = folder / "records" / f"{cell['cell_id']}.json"
        failed = (folder / "failures" / f"{cell['cell_id']}.json").exists()
        cell["record"] = json.loads(path.read_bytes()) if path.exists() else None
        cell["state"] = "done" if cell["record"] else "failed" if failed else "missing"
    return cells


def outside(folder: Path) -> int:
    """How many records the plan does not ask for."""
    return len({path.stem for path in (folder / "records").iterdir()} - {cell["cell_id"] for cell in planned(folder)})


def prune(folder: Path) -> Path:
    """Delete all that the plan does not ask for; the folder."""
    plan = json.loads((folder / "plan.json").read_bytes())
    ids = {cell["cell_id"] for cell in plan["cells"]} | {each["pretraining_id"] for each in plan["pretrainings"]}
    for path in _of_jobs(folder):
        if path.name.removesuffix(path.suffix if path.is_file() else "") not in ids:
            path.unlink() if path.is_file() else shutil.rmtree(path)
    return folder


def _of_jobs(folder: Path) -> Iterator[Path]:
    kinds = ("records", "predictions", "test_predictions", "models", "failures", "pretraining", "intrinsic")
    for kind in (*kinds, "checkpoints"):
        yield from list((folder / kind).glob("*"))


def shift(folder: Path, kind: str, task: str) -> None:
    """Give each run of a task what the run after it has left of a kind."""
    paths = sorted((folder / KINDS[kind]).glob(f"*-{task}-*"))
    aside = [path.rename(path.with_name(f"{path.name} aside")) for path in paths]
    for path, other in zip(paths, aside[1:] + aside[:1], strict=True):
        other.rename(path)


def drop_encoders(folder: Path) -> None:
    """Lose the encoders that MNLI runs have left for others to start from."""
    shutil.rmtree(folder / "checkpoints")


def swap_encoders(folder: Path) -> None:
    """Exchange the encoders that two MNLI runs have left for others to start from."""
    one, other = sorted((folder / "checkpoints").iterdir())
    aside = one.rename(one.with_name("aside"))
    other.rename(one)
    aside.rename(other)


def _labels(task: str) -> np.ndarray:
    return np.arange(ROWS) % TASKS[task].num_labels


def _generator(name: str, bits: int) -> np.random.Generator:
    return np.random.default_rng([crc32(name.encode()), bits])


def _hex(*said: Any) -> str:
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12]
