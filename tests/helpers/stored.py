"""Stores of hand-made records: no run is needed to test a table."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from glue_bench.config import Evaluation, Experiment, Hyperparameters, PretrainingSettings
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.records.labels import Labels
from glue_bench.records.store import Store
from glue_bench.records.values import (
    ArmFacts,
    Cell,
    Plan,
    Pretraining,
    PretrainingRecord,
    Record,
    TaskFacts,
)

SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "embedding_size": 8,
    "vocab_size": 100,
}
SETTINGS = {
    "epochs": 3,
    "batch_size": 32,
    "max_length": 128,
    "warmup_ratio": 0.06,
    "weight_decay": 0.01,
    "adam_epsilon": 1e-6,
    "clip_norm": 1.0,
}

ROWS = 400
"""Examples of each split whose predictions are made up."""


def digest(text: str) -> str:
    """Make a digest that tells what it is made of from others."""
    return hashlib.sha256(text.encode()).hexdigest()


DATA = digest("d")
"""The digest of every task's data, unless a record says another one."""


def cell_with(**facts: Any) -> Cell:
    """Return a cell that says nothing of interest but `facts`; settings are named beside them."""
    settings = SETTINGS | {"learning_rate": 2e-5} | facts.pop("settings", {})
    for name in list(facts):
        if name in Hyperparameters.model_fields:
            settings[name] = facts.pop(name)
    values = {
        "arm": "add",
        "variant": "add",
        "origin": "pretrained",
        "task": "rte",
        "seed": 1,
        "data": DATA,
        "tokenizer": digest("words"),
        "checkpoint": digest("weights"),
    }
    is_finished = facts.get("origin") == "finished"
    evaluation = Evaluation(max_length=settings["max_length"])
    tuning = Hyperparameters(**settings)
    return Cell(**values | facts, settings=evaluation if is_finished else tuning)


def record_of(cell: Cell | None = None, **facts: Any) -> Record:
    """Return a record that says nothing of interest but `facts`."""
    values = {
        "scores": {},
        "history": (),
        "seconds": 1.0,
        "training_tokens": 1,
        "parameters": 1,
        "environment": {},
    }
    return Record(cell=cell or cell_with(), **values | facts)


def history_of(split: str, metric: str, *values: float | None) -> tuple[dict[str, Any], ...]:
    """Return the epochs of a run with these values of one score."""
    epochs: list[dict[str, Any]] = []
    for epoch, value in enumerate(values, 1):
        scores = {split: {metric: value}}
        epochs.append({"epoch": epoch, "train_loss": 1.0, "scores": scores})
    return tuple(epochs)


def pretraining_with(arm: str = "add", seed: int = 1, steps: int = 1, **facts: Any) -> Pretraining:
    """Return a pretraining that says nothing of interest but `facts`."""
    values = {
        "variant": "add",
        "origin": "pretrained",
        "tokenizer": digest("words"),
        "checkpoint": "scratch {}",
        "corpus": digest("text"),
        "packing": 2,
    }
    options = facts.pop("settings", {})
    settings = PretrainingSettings(corpus=["text"], steps=steps, seeds=[seed], **options)
    return Pretraining(arm=arm, **values | facts, settings=settings)


def pretrained_of(pretraining: Pretraining, **facts: Any) -> PretrainingRecord:
    """Return the record of a pretraining that says nothing of interest but `facts`."""
    values = {
        "steps": pretraining.settings.steps,
        "tokens": 1,
        "seconds": 1.0,
        "stream": "s",
        "losses": (),
        "environment": {},
    }
    return PretrainingRecord(pretraining=pretraining, **values | facts)


def plan_with(*cells: Cell, **parts: Any) -> Plan:
    """Return a plan of these cells, with `parts` of it; `config` has what the experiment says
    beyond names.
    """
    config = parts.pop("config", {})
    source = parts.pop("data_source", "tsv")
    name = parts.pop("experiment", "toy")

    if "pretraining" in config:
        config = config | {"pretraining": {"corpus": "text", "steps": 1} | config["pretraining"]}
    start = "scratch" if "pretraining" in config else "org/{}"

    arms: dict[str, dict[str, Any]] = {}
    for job in (*cells, *parts.get("pretrainings", ())):
        checkpoint = start.format(job.arm)
        arms[job.arm] = {"name": job.arm, "variant": job.variant, "checkpoint": checkpoint}

    usual = {"variant": "add", "checkpoint": "scratch"}
    if not arms:
        arms["add"] = {"name": "add", **usual}
    for arm in config.get("arms", ()):
        arms[arm["name"]] = arms.get(arm["name"], usual) | arm

    # The first cell of a task says what its data are.
    digests = {cell.task: cell.data for cell in reversed(cells)}
    tasks = {cell.task: TaskFacts(source=source, digest=digests[cell.task]) for cell in cells}

    values = {"name": name, "data": source, "tasks": [*tasks] or ["rte"], "seeds": [1]}
    experiment = Experiment.model_validate({**values, **config, "arms": [*arms.values()]})
    facts = {
        "arms": {cell.arm: ArmFacts(summary="", shape=SHAPE, parameters=1) for cell in cells},
        "tasks": tasks,
        "tokens": dict.fromkeys(tasks, 1),
    }

    return Plan(experiment=experiment, cells=cells, **facts | parts)


class Bench:
    """An experiment on disk, which is filled cell by cell.

    `plan` fixes what it asks for, and writes all there is.
    """

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.prepare()
        self.cells: list[dict[str, Any]] = []
        self.arms: dict[str, dict[str, Any]] = {}  # what the plan says of each
        self.runs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.logits: dict[str, dict[str, np.ndarray]] = {}
        self.tests: dict[str, dict[str, np.ndarray]] = {}
        self.labels: dict[str, Labels] = {}
        self.kept: set[str] = set()  # finished cells with a made-up model
        self.tasks: dict[str, dict[str, Any]] = {}  # what the plan says of the data of each
        self.pretrained: dict[str, tuple[PretrainingRecord | Pretraining, Any, Any]] = {}

    @property
    def path(self) -> Path:
        return self.store.folder

    def file(self, cell_id: str, name: str = "record.json") -> Path:
        """Return the path of a file of a finished cell."""
        return self.path / "cells" / cell_id / name

    def expect(
        self, task="rte", *, seed=1, arm="add", origin="pretrained", rate=2e-5, variant=""
    ) -> dict[str, Any]:
        """Add a cell that the plan asks for and that has no record yet."""
        cell_id = f"{arm}-{task}-lr{rate:g}-s{seed}"
        entry = {
            "cell_id": cell_id,
            "arm": arm,
            "variant": variant or arm,
            "origin": origin,
            "task": task,
        }
        self.cells.append(entry | {"learning_rate": rate, "seed": seed})
        self.arms.setdefault(arm, {"shape": SHAPE, "parameters": 1})
        return self.cells[-1]

    def finish(
        self,
        task="rte",
        *,
        seed=1,
        score: Any = 0.5,
        collapsed=(),
        source="tsv",
        partial=False,
        **place,
    ) -> dict[str, Any]:
        """Add a cell with its record, and return it; `place` is what `expect` takes.

        `score` (0 to 1) is of every metric of every split, or of named metrics or splits.
        """
        cell = self.expect(task, seed=seed, **place)
        self.record(cell, score=score, collapsed=collapsed, source=source, partial=partial)
        return cell

    def record(
        self, cell, *, score: Any = 0.5, collapsed=(), source="tsv", partial=False, **facts
    ) -> None:
        """Note what a cell leaves.

        `facts` are of its record, `data` of its task's data, `hyperparameters` of the cell.
        """
        task = TASKS[cell["task"]]
        self.tasks[cell["task"]] = {"source": source, "partial": partial} | facts.pop("data", {})
        values = score if isinstance(score, dict) else dict.fromkeys(task.metrics, score)
        facts["scores"] = {split: values.get(split, values) for split in task.columns}
        facts["collapsed"] = tuple(collapsed)
        cell["settings"] = facts.pop("hyperparameters", {})
        self.runs[cell["cell_id"]] = cell, facts

    def predict(self, cell_id: str, logits: dict[str, np.ndarray]) -> None:
        """Note the predictions of a finished cell: split -> (rows, labels)."""
        self.logits[cell_id] = {}
        self.tests[cell_id] = {}
        for split, rows in logits.items():
            arrays = self.tests if split.startswith("test") else self.logits
            arrays[cell_id][split] = np.ascontiguousarray(rows, dtype=np.float32)

    def label(
        self, task: str, gold: dict[str, np.ndarray], **baselines: dict[str, np.ndarray]
    ) -> None:
        """Note the labels of a task, and what baselines predict."""
        self.labels[task] = {"gold": gold, **baselines}

    def pretrain(
        self, arm="add", *, seed=1, pieces=None, sums=None, finished=True, **facts
    ) -> Pretraining:
        """Add a pretraining to the plan, with its record if it is `finished`."""
        names = ("steps", "settings", "is_search", "searches", "rate")
        of_job = {name: facts.pop(name) for name in names if name in facts}
        job = pretraining_with(arm, seed, id=f"{arm}-{seed}", **of_job)
        sums = sums or self.pretrained.get(job.id, (None, None, None))[2]
        self.pretrained[job.id] = pretrained_of(job, **facts) if finished else job, pieces, sums
        return job

    def finish_predicted(
        self, task, arm, accuracy, seeds=3, origin="pretrained", spread=0.005, source="tsv"
    ) -> None:
        """Add runs whose predictions are right on a share of the task's labels, or correlate
        about as much.
        """
        generator = np.random.default_rng([len(self.cells), TRAINABLE.index(task)])
        classes = np.arange(ROWS) % TASKS[task].num_labels
        gold = np.linspace(0, 5, ROWS) if TASKS[task].is_regression else classes
        labels = dict.fromkeys(TASKS[task].columns, gold)
        self.label(task, labels)
        for seed in range(1, seeds + 1):
            logits: dict[str, np.ndarray] = {}
            scores: dict[str, dict[str, float]] = {}
            for split in labels:
                share = min(accuracy + spread * generator.uniform(-1, 1), 1.0)
                logits[split], scores[split] = _predict(task, gold, share, generator)
            cell = self.finish(task, seed=seed, score=scores, arm=arm, origin=origin, source=source)
            self.predict(cell["cell_id"], logits)

    def finish_published(self, table: str, label: str, **place) -> None:
        """Add the figures of a published row as one seed of an arm; half for metrics that it
        does not print.
        """
        # This imports what a worker of Ray has no use for.
        from glue_bench.pages.published import PAPERS

        published = PAPERS[table]
        printed = next(row.printed for row in published.rows if row.label == label)
        scores: dict[str, Any] = {}
        for column, ((task, split, metric),) in published.singly.parts.items():
            splits = scores.setdefault(task, {})
            halves = dict.fromkeys(TASKS[task].metrics, 0.5)
            splits.setdefault(split, halves)[metric] = float(printed[column]) / 100
        for task, score in scores.items():
            self.finish(task, score=score, **place)

    def plan(self, **parts: Any) -> Path:
        """Write the plan of all cells so far, with `parts` of it, and all records; return the
        experiment's folder.
        """
        cells = [self._cell(entry) for entry in self.cells]

        arms: dict[str, Any] = {}
        for name, facts in self.arms.items():
            # Given arms have a shape; what else they are they say themselves.
            usual = {"shape": facts["shape"]} if "arms" in parts else facts
            arms[name] = {"summary": "", **usual}
        for name, facts in parts.get("arms", {}).items():
            arms[name] = {"summary": "", **facts}
        parts["arms"] = arms

        jobs = [getattr(record, "pretraining", record) for record, *_ in self.pretrained.values()]
        parts.setdefault("pretrainings", tuple(jobs))
        sources = [task["source"] for task in self.tasks.values()]
        source = parts.setdefault("data_source", sources[0] if sources else "tsv")

        tasks: dict[str, Any] = {}
        for cell in cells:
            facts = {"source": source} | self.tasks.get(cell.task, {})
            tasks[cell.task] = facts | {"digest": cell.data}
        parts["tasks"] = tasks

        self.store.write_plan(plan_with(*cells, **parts), self.labels)
        for name, (entry, facts) in self.runs.items():
            self._write_run(name, record_of(self._cell(entry), **facts))
        for record, pieces, sums in self.pretrained.values():
            if isinstance(record, PretrainingRecord):
                self.store.write(record, losses=pieces, sums=sums)
        return self.path

    def _write_run(self, name: str, record: Record) -> None:
        def save(model: Path) -> None:
            (model / "config.json").write_text("{}")
            (model / "model.safetensors").write_text(name)

        self.store.write(
            record,
            save if name in self.kept else None,
            logits=self.logits.get(name),
            tests=self.tests.get(name),
        )

    def _cell(self, entry: dict[str, Any]) -> Cell:
        data = self.tasks.get(entry["task"], {}).get("digest", "d")
        values = {name: value for name, value in entry.items() if name != "cell_id"}
        values |= {"id": entry["cell_id"], "data": digest(data)}
        if entry.get("steps"):
            values.setdefault("pretraining_seed", 1)
        return cell_with(**values)


def _predict(
    task: str, gold: np.ndarray, share: float, generator: np.random.Generator
) -> tuple[np.ndarray, dict[str, float]]:
    """Return logits that are right on a share of the labels, and their scores."""
    if TASKS[task].is_regression:
        predicted = share * gold + (1 - share) * generator.uniform(0, 5, ROWS)
        correlation = np.corrcoef(predicted, gold)[0, 1]
        return predicted[:, None], {"pearson": correlation, "spearmanr": 0.0}
    count = TASKS[task].num_labels
    wrong = generator.choice(ROWS, round((1 - share) * ROWS), replace=False)
    predicted = gold.copy()
    predicted[wrong] = (predicted[wrong] + 1) % count
    if task == "cola":
        value = np.corrcoef(predicted, gold)[0, 1]
    else:
        value = float((predicted == gold).mean())
    return np.eye(count)[predicted], dict.fromkeys(TASKS[task].metrics, value)


LONG = "concat-with-a-projection-and-a-rather-long-name"
ARMS = {"add": 0.8, "none": 0.5, LONG: 0.805}


def fill(bench: Bench, arms=None, tasks=("rte", "sst2"), source="demo") -> Path:
    """Add three runs of each arm (name -> accuracy) on each task, with predictions; return the
    experiment's folder.

    Beside the demo data, which `source` names, no published table is shown, so that reports are
    made sooner.
    """
    accuracies = arms or ARMS
    for arm, accuracy in accuracies.items():
        for task in tasks:
            bench.finish_predicted(task, arm, accuracy, source=source)
    config = {"name": "toy", "arms": [{"name": arm} for arm in accuracies]}
    return bench.plan(config=config, data_source=source)
