"""Finished experiments, made by hand in milliseconds: of the promises, this file alone knows what is on the disk."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from stored import plan_with

from glue_bench.config import Hyperparameters, PretrainingSettings
from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import TASKS
from glue_bench.records.arrays import Labels
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Failure, LossPoint, Measure, Pretraining, PretrainingRecord, Record

ROWS, TESTS = 40, 12
"""Examples of each validation split, and of each test split."""
STEPS = 8
SETTINGS = {
    **{"epochs": 2, "batch_size": 8, "max_length": 32, "warmup_ratio": 0.1},
    **{"weight_decay": 0.0, "adam_epsilon": 1e-6, "clip_norm": 1.0, "held_out_share": 0.1},
}
ENVIRONMENT = {"glue_bench": "0.1.0", "processor": "this one", "device": "cpu", "precision": "float32", "threads": 1}
KINDS = {"predictions": "logits.safetensors", "tests": "tests.safetensors", "model": "model"}
"""What a run leaves beside its record, and where."""


def digest(*said: Any) -> str:
    """A digest that is told from others by what it is of."""
    return hashlib.sha256(repr(said).encode()).hexdigest()


class Folder:
    """The folder of an experiment. What is not `planned` is of an earlier plan.

    `bits` tell runs of one cell apart: their logits, scores, models and measures are others.
    """

    def __init__(self, path: Path, *, source: str = "tsv", pretrained: bool = True) -> None:
        self.store, self.path, self.source, self.pretrained = Store(path), path, source, pretrained
        self.store.prepare()
        self.cells: dict[str, Cell] = {}
        self.pretrainings: dict[str, Pretraining] = {}
        self.labels: dict[str, Labels] = {}

    def pretrain(self, arm: str, seed: int = 1, *, rate: float = 1e-3, search: bool = False, planned: bool = True,
                 loss: float = 4.0, seconds: float = 100.0) -> str:  # fmt: skip
        """A finished pretraining of an arm, or a run of its search for a rate, with its losses and measures."""
        settings = PretrainingSettings(corpus=["text"], steps=STEPS, seeds=[seed], learning_rates=[rate])
        job = Pretraining(**self._of_arm(arm), corpus=digest("text"), packing=1, settings=settings, is_search=search)
        self.pretrainings |= {job.id: job} if planned else {}
        points = [
            LossPoint(step=step, tokens=100 * step, train_loss=loss, validation_loss=loss + 1 / step, seconds=step)
            for step in (1, STEPS)
        ]
        facts = {"steps": STEPS, "tokens": 100 * STEPS, "seconds": seconds, "stream": "s", "environment": ENVIRONMENT}
        facts |= {"train_loss": loss, "validation_loss": loss + 1 / STEPS, "losses": tuple(points)}
        if search:
            self.store.write_pretraining(PretrainingRecord(pretraining=job, **facts))
            return job.id
        sums = _sums(job.id, 0)
        value = float(sums["swap_1"][0].sum() / sums["swap_1"][1].sum())
        facts |= {"weights": {STEPS: digest("weights", job.id)}, "measure_tokens": 100}
        facts |= {"measures": (Measure(name="swap_1", value=value, standard_error=0.01, n=12),)}
        job = job.model_copy(update={"rate": rate})
        self.store.write_pretraining(PretrainingRecord(pretraining=job, **facts), _losses(job.id, loss, 0), sums)
        return job.id

    def measure(self, name: str, bits: int) -> None:
        """What a pretraining with these bits has measured, beside the record, which stays."""
        self._from_aside(
            f"pretrainings/{name}/sums.safetensors", lambda aside: self._pretrained_aside(aside, name, bits)
        )

    def losses(self, name: str, bits: int) -> None:
        """The validation losses of a pretraining with these bits, beside the record, which stays."""
        self._from_aside(
            f"pretrainings/{name}/losses.safetensors", lambda aside: self._pretrained_aside(aside, name, bits)
        )

    def _pretrained_aside(self, aside: Store, name: str, bits: int) -> None:
        record = self.store.pretraining(name)
        assert record is not None
        aside.write_pretraining(record, _losses(name, 4.0, bits), _sums(name, bits))

    def run(self, arm: str, task: str, seed: int = 1, pretraining_seed: int = 1, *, rate: float = 1e-3,
            steps: int = STEPS, planned: bool = True, recorded: bool = True, bits: int = 0,
            right: float = 0.7, collapsed: tuple[str, ...] = (), scored: Any = None,
            options: dict[str, Any] | None = None, data: str = "", **more: Any) -> str:  # fmt: skip
        """A cell of the plan, with all that a finished run leaves; `more` are fields of its record."""
        start: dict[str, Any] = {}
        if self.pretrained:
            named = [one.id for one in self.pretrainings.values() if (one.arm, one.seed) == (arm, pretraining_seed)]
            start = {"steps": steps, "pretraining_seed": pretraining_seed, "pretraining": next(iter(named), None)}
        cell = Cell(
            **self._of_arm(arm) | {"options": options or {}},
            task=task,
            data=digest("data", task, data),
            settings=Hyperparameters(learning_rate=rate, **SETTINGS),
            seed=seed,
            **start,
        )
        self.cells |= {cell.id: cell} if planned else {}
        if recorded:
            epochs = self._epochs(cell.id, task, bits, right)
            epochs[-1] |= scored or {}
            facts = {"seconds": 5.0, "training_tokens": 100, "parameters": 1000, "environment": ENVIRONMENT}
            record = Record(
                cell=cell,
                scores={split: epochs[-1][split] for split in TASKS[task].columns},
                collapsed=collapsed,
                history=tuple(
                    {"epoch": epoch, "train_loss": 1.0, "scores": scores} for epoch, scores in enumerate(epochs, 1)
                ),
                started_from=digest("weights", cell.pretraining),
                **facts | more,
            )
            self.store.write(record, self.logits(cell.id, task, bits, right))
        return cell.id

    def _of_arm(self, arm: str) -> dict[str, Any]:
        start = {"tokenizer": digest("words"), "checkpoint": "scratch {}", "origin": self.origin}
        return {"arm": arm, "variant": arm, **start}

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

    def complete(self, name: str, like: str = "", kinds: Iterable[str] = ("tests", "model")) -> None:
        """Store a cell once more, now with its test predictions, those of the cell `like`, and with its model."""
        record = self._record(name)
        self._left(self.store, record, self.store.logits(record), 0, like or name, kinds)

    def beside(self, name: str, bits: int, kind: str) -> None:
        """What a run with these bits leaves of a kind beside the record of a cell, which stays."""
        record = self._record(name)

        def other(aside: Store) -> None:
            self._left(aside, record, self.logits(name, record.cell.task, bits), bits, name, ("tests", "model"))

        self._from_aside(f"cells/{name}/{KINDS[kind]}", other)

    def _record(self, name: str) -> Record:
        record = self.store.record(name)
        assert record is not None
        return record

    def _left(self, store: Store, record: Record, logits: dict[str, np.ndarray], bits: int, like: str,
              kinds: Iterable[str]) -> None:  # fmt: skip
        task, generator = record.cell.task, _generator(like, bits)
        splits = (*TASKS[task].test_splits, *["test_ax"] * (task == "mnli"))
        shape = TESTS, TASKS[task].num_labels
        tests = {split: generator.random(shape).astype(np.float32) for split in splits} if "tests" in kinds else None
        diagnostic = digest("ax") if tests and task == "mnli" else None
        with store.aside() as aside:
            (aside / "config.json").write_text("{}")
            (aside / "model.safetensors").write_text(f"the weights of {record.cell.id}, {bits}")
            told = record.model_copy(update={"diagnostic": diagnostic})
            store.write(told, logits, tests, aside if "model" in kinds else None)

    def _from_aside(self, name: str, write: Callable[[Store], Any]) -> None:
        """Put a file or folder where it would be, out of a results folder that another run has written."""
        with tempfile.TemporaryDirectory() as place:
            write(Store(place))
            there = self.path / name
            shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)
            shutil.move(Path(place) / name, there)

    def gold(self, task: str, turn: int = 0) -> None:
        """The gold labels of a task; each `turn` above 0 makes other ones."""
        labels = np.random.default_rng(turn).permutation(_labels(task)) if turn else _labels(task)
        self.labels[task] = Labels(dict.fromkeys(TASKS[task].columns, labels))
        if self.store.has_plan:
            data = digest("data", task, "")
            (self.path / "labels" / f"{task}-{data[:12]}.safetensors").write_bytes(self.labels[task].file(data))

    def fail(self, arm: str, task: str, seed: int, *, planned: bool = True) -> str:
        """A cell whose last attempt failed."""
        name = self.run(arm, task, seed, planned=planned, recorded=False)
        self.store.write_failure(Failure(id=name, error="gone wrong"))
        return name

    def plan(self, **protocol: Any) -> Path:
        """Write the plan, which asks for what is planned so far; the folder."""
        config = {"protocol": protocol, "finetuning": {"held_out_share": 0.1}}
        config |= {
            "arms": [{"name": arm, "checkpoint": "scratch"} for arm in {cell.arm for cell in self.cells.values()}]
        }
        if self.pretrained:
            config |= {"pretraining": {"segments": "pairs", "steps": STEPS}}
        more = {"data_source": self.source, "pretrainings": tuple(self.pretrainings.values())}
        plan = plan_with(*self.cells.values(), config=config, **more)
        self.store.write_plan(plan, {task: labels for task, labels in self.labels.items() if task in plan.tasks})
        return self.path


def planned(folder: Path) -> list[dict[str, Any]]:
    """The cells that the plan asks for, each with the `state` that its files say and its `record`, if it has one."""
    cells: list[dict[str, Any]] = json.loads((folder / "plan.json").read_bytes())["cells"]
    for cell in cells:
        path = folder / "cells" / cell["id"] / "record.json"
        failed = (folder / "failures" / f"{cell['id']}.json").exists()
        cell["record"] = json.loads(path.read_bytes()) if path.exists() else None
        cell["state"] = "done" if cell["record"] else "failed" if failed else "missing"
    return cells


def outside(folder: Path) -> int:
    """How many records the plan does not ask for."""
    return len({path.name for path in (folder / "cells").iterdir()} - {cell["id"] for cell in planned(folder)})


def prune(folder: Path) -> Path:
    """Delete all that the plan does not ask for; the folder."""
    plan = json.loads((folder / "plan.json").read_bytes())
    ids = {job["id"] for kind in ("cells", "pretrainings") for job in plan.get(kind, ())}
    for kind in ("cells", "pretrainings", "failures", "checkpoints"):
        for path in list((folder / kind).glob("*")):
            if (path.stem if path.suffix == ".json" else path.name) not in ids:
                path.unlink() if path.is_file() else shutil.rmtree(path)
    return folder


def pretrained(folder: Path) -> list[str]:
    """The ids of the pretrainings that have a record."""
    return sorted(path.name for path in (folder / "pretrainings").iterdir())


def shift(folder: Path, kind: str, task: str) -> None:
    """Give each run of a task what the run after it has left of a kind."""
    paths = sorted((folder / "cells").glob(f"*-{task}-*/{KINDS[kind]}"))
    aside = [path.rename(path.with_name(f"{path.name} aside")) for path in paths]
    for path, other in zip(paths, aside[1:] + aside[:1], strict=True):
        other.rename(path)


def drop_encoders(folder: Path) -> None:
    """Lose the models that MNLI runs have left for others to start from."""
    for path in list((folder / "cells").glob("*-mnli-*/model")):
        shutil.rmtree(path)


def swap_encoders(folder: Path) -> None:
    """Exchange the models that two MNLI runs have left for others to start from."""
    one, other = sorted((folder / "cells").glob("*-mnli-*/model"))
    aside = one.rename(one.with_name("aside"))
    other.rename(one)
    aside.rename(other)


def _losses(name: str, loss: float, bits: int) -> dict[str, np.ndarray]:
    noise = _generator(name, bits).normal(0, 0.1, 12)
    return {"loss_sum": 10 * (loss + noise), "count": np.full(12, 10), "document": np.arange(12)}


def _sums(name: str, bits: int) -> dict[str, np.ndarray]:
    hits = _generator(name, bits).integers(5, 10, 12).astype(np.float64)
    return {"swap_1": np.stack([hits, np.full(12, 10.0)])}


def _labels(task: str) -> np.ndarray:
    return np.arange(ROWS) % TASKS[task].num_labels


def _generator(name: str, bits: int) -> np.random.Generator:
    return np.random.default_rng([crc32(name.encode()), bits])
