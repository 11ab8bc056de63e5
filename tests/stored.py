"""Stores of hand-made records: no run is needed to test a table."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.errors import UserError
from glue_bench.records.plan import Plan
from glue_bench.records.record import Record
from glue_bench.records.store import Store
from glue_bench.records.value import SCHEMA_VERSION
from glue_bench.tables.published import TABLES

SHAPE = {
    **{"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16},
    **{"embedding_size": 8, "vocab_size": 100},
}

ROWS = 400
"""Examples of each split whose predictions are made up."""

Scores = dict[str, dict[str, float | None]]


def scores_of(task: str, value: Any) -> Scores:
    """`value` (0 to 1) for every metric of every split, or for named metrics, or for named splits."""
    named = value if isinstance(value, dict) else dict.fromkeys(TASKS[task].metrics, value)
    splits = TASKS[task].columns
    return {split: named.get(split, named) for split in splits}


def labels_of(task):
    """Made-up gold labels: classes in turn, or even steps from 0 to 5."""
    number = TASKS[task].num_labels
    return np.linspace(0, 5, ROWS) if TASKS[task].is_regression else np.arange(ROWS) % max(number, 2)


def read_records(store: Store) -> list[Record]:
    """All records of a store, sorted by cell id; the first of its problems is raised."""
    records, problems = store.scan_records()
    if problems:
        raise UserError(problems[0])
    return records


def documents(store: Store, kind: str = "records") -> list[dict[str, Any]]:
    """The JSON objects of a store's records (or `pretraining`, or `failures`), all of which can be read, by id."""
    reads = {"pretraining": store.read_pretrainings, "failures": store.read_failures}
    reads.get(kind, lambda: read_records(store))()
    return [json.loads(path.read_bytes()) for path in sorted((store.folder / kind).glob("*.json"))]


def record_of(**changes: Any) -> Record:
    """A record that says nothing of interest but `changes`."""
    bare = {
        **{"schema_version": SCHEMA_VERSION, "cell_id": "a", "origin": "pretrained", "scores": {}, "history": []},
        **{"cell": {"arm": "a", "variant": "add", "task": "rte", "learning_rate": 2e-5, "seed": 1}},
        **{"collapsed": [], "seconds": {"total": 1}, "tokens": {}, "parameters": 1, "environment": {}},
        **{"data": {"source": "tsv", "digest": "d", "partial": False}},
    }
    return Record.model_validate(bare | changes)


def plan_with(*cells: dict[str, Any], **more: Any) -> Plan:
    """A plan of these cells, which say what is of interest, and `more` of it."""
    bare = {"origin": "pretrained", "arm": "add", "variant": "add", "task": "rte", "learning_rate": 1e-3, "seed": 1}
    return Plan.model_validate({"schema_version": SCHEMA_VERSION, "cells": [bare | cell for cell in cells], **more})


class Bench:
    """An experiment on disk, filled cell by cell; `plan` fixes what it asks for."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.prepare()
        self.cells: list[dict[str, Any]] = []
        self.arms: dict[str, dict[str, Any]] = {}  # what the plan says of each

    @property
    def path(self) -> Path:
        return self.store.folder

    def expect(self, task="rte", seed=1, *, arm="add", origin="pretrained", rate=2e-5, variant="") -> dict[str, Any]:
        """A cell that the plan asks for and no record answers yet."""
        cell_id = f"{arm}-{task}-lr{rate:g}-s{seed}"
        entry = {"cell_id": cell_id, "arm": arm, "variant": variant or arm, "origin": origin, "task": task}
        self.cells.append(entry | {"learning_rate": rate, "seed": seed})
        self.arms.setdefault(arm, {"variant": variant or arm, "origin": origin, "shape": SHAPE, "parameters": 1})
        return self.cells[-1]

    def finish(self, task="rte", seed=1, value: Any = 0.5, *, collapsed=(), source="tsv", partial=False, **where):
        """A cell with its record; `value` as in `scores_of`."""
        self.record(self.expect(task, seed, **where), value, collapsed, source, partial)

    def record(self, cell, value: Any = 0.5, collapsed=(), source="tsv", partial=False, seconds=1.0, **more) -> None:
        record = {
            "schema_version": SCHEMA_VERSION,
            "cell_id": cell["cell_id"],
            "experiment": "toy",
            "cell": {name: cell[name] for name in ("arm", "variant", "task", "learning_rate", "seed")},
            "origin": cell["origin"],
            "scores": scores_of(cell["task"], value),
            "history": [],
            "collapsed": list(collapsed),
            "seconds": {"total": seconds},
            "tokens": {},
            "parameters": 1,
            "shape": SHAPE,
            "data": {"source": source, "digest": "d", "partial": partial},
            "environment": {},
        }
        text = json.dumps(record | more)
        (self.path / "records" / f"{cell['cell_id']}.json").write_text(text)

    def predict(self, cell_id: str, logits: dict[str, np.ndarray]) -> None:
        """The predictions of a finished cell: split -> (rows, labels)."""
        path = self.path / "predictions" / f"{cell_id}.safetensors"
        save_file({split: np.ascontiguousarray(rows, dtype=np.float32) for split, rows in logits.items()}, path)

    def finish_predicted(self, task, arm, accuracy, seeds=3, origin="pretrained", spread=0.005, source="tsv") -> None:
        """Runs whose predictions are right on such a share of the task's labels; of a correlation near enough."""
        generator = np.random.default_rng([len(self.cells), TRAINABLE.index(task)])
        labels = {split: labels_of(task) for split in TASKS[task].columns}
        self.store.write_labels(task, "d", labels)
        for seed in range(1, seeds + 1):
            logits, scores = {}, {}
            for split, gold in labels.items():
                share = min(accuracy + spread * generator.uniform(-1, 1), 1.0)
                if TASKS[task].is_regression:
                    said = share * gold + (1 - share) * generator.uniform(0, 5, ROWS)
                    logits[split], scores[split] = (
                        said[:, None],
                        {"pearson": np.corrcoef(said, gold)[0, 1], "spearmanr": 0.0},
                    )
                    continue
                wrong = generator.choice(ROWS, round((1 - share) * ROWS), replace=False)
                said = gold.copy()
                said[wrong] = (said[wrong] + 1) % TASKS[task].num_labels
                logits[split] = np.eye(TASKS[task].num_labels)[said]
                scores[split] = dict.fromkeys(TASKS[task].metrics, float((said == gold).mean()))
                if task == "cola":
                    scores[split] = {"matthews_correlation": np.corrcoef(said, gold)[0, 1]}
            self.finish(task, seed, scores, arm=arm, origin=origin, source=source)
            self.predict(self.cells[-1]["cell_id"], logits)

    def finish_published(self, table: str, label: str, **where) -> None:
        """The figures of a published row as one seed of an arm; half for metrics that it does not print."""
        published = TABLES[table]
        printed = next(row.printed for row in published.rows if row.label == label)
        scores: dict[str, Scores] = {}
        for column, (task, split, metric) in published.scores.items():
            by_metric = scores.setdefault(task, {}).setdefault(split, dict.fromkeys(TASKS[task].metrics, 0.5))
            by_metric[metric] = float(printed[column]) / 100
        for task, value in scores.items():
            self.finish(task, 1, value, **where)

    def plan(self, **more: Any) -> Path:
        """Write the plan of all cells so far, and `more` of it; the experiment's folder."""
        facts = {"experiment": "toy", "data_source": "tsv", "arms": self.arms}
        self.store.write_plan(plan_with(*self.cells, **facts | more))
        return self.path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "toy")


@pytest.fixture(scope="module")
def lasting_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One that the tests of a module share, and do not change."""
    return Bench(tmp_path_factory.mktemp("bench") / "toy")


@pytest.fixture
def new_bench(tmp_path: Path):
    """Further experiments of one test, by name."""
    return lambda name: Bench(tmp_path / name)


def weights(folder) -> dict[str, bytes]:
    """The weights of all checkpoints by their paths."""
    found = {path.relative_to(folder): load_file(path) for path in folder.rglob("model.safetensors")}
    return {f"{path} {name}": t.tobytes() for path, tensors in found.items() for name, t in tensors.items()}
