"""Stores of hand-made records: no run is needed to test a table."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from glue_bench.config import Experiment, Hyperparameters, PretrainingSettings
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.records.store import Labels, Store
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
    **{"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16},
    **{"embedding_size": 8, "vocab_size": 100},
}
SETTINGS = {
    **{"epochs": 3, "batch_size": 32, "max_length": 128, "warmup_ratio": 0.06},
    **{"weight_decay": 0.01, "adam_epsilon": 1e-6, "clip_norm": 1.0},
}

ROWS = 400
"""Examples of each split whose predictions are made up."""


def digest(text: str) -> str:
    """A digest that is told from others by what it is of."""
    return hashlib.sha256(text.encode()).hexdigest()


DATA = digest("d")
"""The digest of every task's data, unless a record says another one."""


def cell_with(**facts: Any) -> Cell:
    """A cell that says nothing of interest but `facts`; settings are named beside them."""
    settings = SETTINGS | {"learning_rate": 2e-5} | facts.pop("settings", {})
    settings |= {
        name: facts.pop(name) for name in list(facts) if name in Hyperparameters.model_fields
    }
    bare = {
        "arm": "add",
        "variant": "add",
        "origin": "pretrained",
        "task": "rte",
        "seed": 1,
        "data": DATA,
    }
    bare |= {"tokenizer": digest("words"), "checkpoint": digest("weights")}
    return Cell(**bare | facts, settings=Hyperparameters(**settings))


def record_of(cell: Cell | None = None, **facts: Any) -> Record:
    """A record that says nothing of interest but `facts`."""
    bare = {
        "scores": {},
        "history": (),
        "seconds": 1.0,
        "training_tokens": 1,
        "parameters": 1,
        "environment": {},
    }
    return Record(cell=cell or cell_with(), **bare | facts)


def history_of(split: str, metric: str, *values: float | None) -> tuple[dict[str, Any], ...]:
    """The epochs of a run with these values of one score."""
    scores = ({split: {metric: value}} for value in values)
    return tuple(
        {"epoch": epoch, "train_loss": 1.0, "scores": each} for epoch, each in enumerate(scores, 1)
    )


def pretraining_with(arm: str = "add", seed: int = 1, steps: int = 1, **facts: Any) -> Pretraining:
    """A pretraining that says nothing of interest but `facts`."""
    bare = {
        "variant": "add",
        "origin": "pretrained",
        "tokenizer": digest("words"),
        "checkpoint": "scratch {}",
    }
    bare |= {"corpus": digest("text"), "packing": 2}
    settings = PretrainingSettings(
        corpus=["text"], steps=steps, seeds=[seed], **facts.pop("settings", {})
    )
    return Pretraining(arm=arm, **bare | facts, settings=settings)


def pretrained_of(pretraining: Pretraining, **facts: Any) -> PretrainingRecord:
    """The record of a pretraining that says nothing of interest but `facts`."""
    bare = {
        "steps": pretraining.settings.steps,
        "tokens": 1,
        "seconds": 1.0,
        "stream": "s",
        "losses": (),
    }
    return PretrainingRecord(pretraining=pretraining, **bare | {"environment": {}} | facts)


def plan_with(*cells: Cell, **more: Any) -> Plan:
    """A plan of these cells, and `more` of it; `config` has what the experiment says beyond names."""
    config, source, name = (
        more.pop("config", {}),
        more.pop("data_source", "tsv"),
        more.pop("experiment", "toy"),
    )
    if "pretraining" in config:
        config = config | {"pretraining": {"corpus": "text", "steps": 1} | config["pretraining"]}
    start = "scratch" if "pretraining" in config else "org/{}"
    jobs = [*cells, *more.get("pretrainings", ())]
    named = {
        job.arm: {"name": job.arm, "variant": job.variant, "checkpoint": start.format(job.arm)}
        for job in jobs
    }
    named = named or {"add": {"name": "add", "variant": "add", "checkpoint": "scratch"}}
    for arm in config.get("arms", ()):
        named[arm["name"]] = (
            named.get(arm["name"], {"variant": "add", "checkpoint": "scratch"}) | arm
        )
    digests = {cell.task: cell.data for cell in reversed(cells)}
    facts = {cell.task: TaskFacts(source=source, digest=digests[cell.task]) for cell in cells}
    bare = {"name": name, "data": source, "tasks": [*facts] or ["rte"], "seeds": [1]}
    experiment = Experiment.model_validate({**bare, **config, "arms": [*named.values()]})
    arms = {cell.arm: ArmFacts(summary="", shape=SHAPE, parameters=1) for cell in cells}
    values = {"arms": arms, "tasks": facts, "tokens": dict.fromkeys(facts, 1)}
    return Plan(experiment=experiment, cells=cells, **values | more)


class Bench:
    """An experiment on disk, filled cell by cell; `plan` fixes what it asks for, and writes all there is."""

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
        """A file of a finished cell."""
        return self.path / "cells" / cell_id / name

    def expect(
        self, task="rte", seed=1, *, arm="add", origin="pretrained", rate=2e-5, variant=""
    ) -> dict[str, Any]:
        """A cell that the plan asks for and no record answers yet."""
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
        seed=1,
        value: Any = 0.5,
        *,
        collapsed=(),
        source="tsv",
        partial=False,
        **where,
    ):
        """A cell with its record; `value` (0 to 1) is of every metric of every split, or of named metrics or splits."""
        self.record(self.expect(task, seed, **where), value, collapsed, source, partial)

    def record(
        self, cell, value: Any = 0.5, collapsed=(), source="tsv", partial=False, **facts
    ) -> None:
        """What a cell has left; `facts` of its record, `data` of its task's data, `hyperparameters` of the cell."""
        self.tasks[cell["task"]] = {"source": source, "partial": partial} | facts.pop("data", {})
        named = (
            value if isinstance(value, dict) else dict.fromkeys(TASKS[cell["task"]].metrics, value)
        )
        scores = {split: named.get(split, named) for split in TASKS[cell["task"]].columns}
        facts |= {"scores": scores, "collapsed": tuple(collapsed)}
        cell |= {"settings": facts.pop("hyperparameters", {})}
        self.runs[cell["cell_id"]] = cell, facts

    def predict(self, cell_id: str, logits: dict[str, np.ndarray]) -> None:
        """The predictions of a finished cell: split -> (rows, labels)."""
        arrays = {
            split: np.ascontiguousarray(rows, dtype=np.float32) for split, rows in logits.items()
        }
        self.logits[cell_id] = {
            split: rows for split, rows in arrays.items() if not split.startswith("test")
        }
        self.tests[cell_id] = {
            split: rows for split, rows in arrays.items() if split.startswith("test")
        }

    def label(
        self, task: str, gold: dict[str, np.ndarray], **baselines: dict[str, np.ndarray]
    ) -> None:
        """The labels of a task, and what baselines predict."""
        self.labels[task] = {"gold": gold, **baselines}

    def pretrain(
        self, arm="add", seed=1, *, pieces=None, sums=None, finished=True, **facts
    ) -> Pretraining:
        """A pretraining that the plan asks for, with its record if it is `finished`."""
        named = ("steps", "settings", "is_search", "searches", "rate")
        of_job = {name: facts.pop(name) for name in named if name in facts}
        job = pretraining_with(arm, seed, id=f"{arm}-{seed}", **of_job)
        sums = sums or self.pretrained.get(job.id, (None, None, None))[2]
        self.pretrained[job.id] = pretrained_of(job, **facts) if finished else job, pieces, sums
        return job

    def finish_predicted(
        self, task, arm, accuracy, seeds=3, origin="pretrained", spread=0.005, source="tsv"
    ) -> None:
        """Runs whose predictions are right on such a share of the task's labels; of a correlation near enough."""
        generator = np.random.default_rng([len(self.cells), TRAINABLE.index(task)])
        count, is_regression = TASKS[task].num_labels, TASKS[task].is_regression
        gold = np.linspace(0, 5, ROWS) if is_regression else np.arange(ROWS) % count
        self.label(task, labels := dict.fromkeys(TASKS[task].columns, gold))
        for seed in range(1, seeds + 1):
            logits, scores = {}, {}
            for split in labels:
                share = min(accuracy + spread * generator.uniform(-1, 1), 1.0)
                if is_regression:
                    said = share * gold + (1 - share) * generator.uniform(0, 5, ROWS)
                    logits[split] = said[:, None]
                    scores[split] = {"pearson": np.corrcoef(said, gold)[0, 1], "spearmanr": 0.0}
                    continue
                wrong, said = (
                    generator.choice(ROWS, round((1 - share) * ROWS), replace=False),
                    gold.copy(),
                )
                said[wrong] = (said[wrong] + 1) % count
                logits[split] = np.eye(TASKS[task].num_labels)[said]
                value = (
                    np.corrcoef(said, gold)[0, 1]
                    if task == "cola"
                    else float((said == gold).mean())
                )
                scores[split] = dict.fromkeys(TASKS[task].metrics, value)
            self.finish(task, seed, scores, arm=arm, origin=origin, source=source)
            self.predict(self.cells[-1]["cell_id"], logits)

    def finish_published(self, table: str, label: str, **where) -> None:
        """The figures of a published row as one seed of an arm; half for metrics that it does not print."""
        from glue_bench.pages.papers import (
            PAPERS,
        )  # which imports what a worker of Ray has no use for

        published = PAPERS[table]
        printed = next(row.printed for row in published.rows if row.label == label)
        scores: dict[str, Any] = {}
        for column, ((task, split, metric),) in published.singly.parts.items():
            by_metric = scores.setdefault(task, {}).setdefault(
                split, dict.fromkeys(TASKS[task].metrics, 0.5)
            )
            by_metric[metric] = float(printed[column]) / 100
        for task, value in scores.items():
            self.finish(task, 1, value, **where)

    def plan(self, **more: Any) -> Path:
        """Write the plan of all cells so far, and `more` of it, and all records; the experiment's folder."""
        cells = [self._cell(cell) for cell in self.cells]
        known = (
            {name: {"shape": facts["shape"]} for name, facts in self.arms.items()}
            if "arms" in more
            else self.arms
        )
        more["arms"] = {
            name: {"summary": "", **facts} for name, facts in (known | more.get("arms", {})).items()
        }
        more.setdefault(
            "pretrainings",
            tuple(getattr(one, "pretraining", one) for one, *_ in self.pretrained.values()),
        )
        source = more.setdefault(
            "data_source", next((each["source"] for each in self.tasks.values()), "tsv")
        )
        kinds = {cell.task: {"source": source} | self.tasks.get(cell.task, {}) for cell in cells}
        more["tasks"] = {cell.task: kinds[cell.task] | {"digest": cell.data} for cell in cells}
        self.store.write_plan(plan_with(*cells, **more), self.labels)
        for name, (cell, facts) in self.runs.items():

            def save(model: Path, name=name) -> None:
                (model / "config.json").write_text("{}")
                (model / "model.safetensors").write_text(name)

            arrays = {"logits": self.logits.get(name), "tests": self.tests.get(name)}
            self.store.write(
                record_of(self._cell(cell), **facts), save if name in self.kept else None, **arrays
            )
        for record, pieces, sums in self.pretrained.values():
            if isinstance(record, PretrainingRecord):
                self.store.write(record, losses=pieces, sums=sums)
        return self.path

    def _cell(self, entry: dict[str, Any]) -> Cell:
        if entry.get("steps"):
            entry = {"pretraining_seed": 1} | entry
        named = {
            "id": entry["cell_id"],
            "data": digest(self.tasks.get(entry["task"], {}).get("digest", "d")),
        }
        return cell_with(
            **{name: value for name, value in entry.items() if name != "cell_id"}, **named
        )


LONG = "concat-with-a-projection-and-a-rather-long-name"
ARMS = {"add": 0.8, "none": 0.5, LONG: 0.805}


def fill(bench: Bench, arms=None, tasks=("rte", "sst2"), source="demo") -> Path:
    """Three runs of each arm (name -> accuracy) on each task, with predictions; the experiment's folder.

    Beside the demo data, which `source` names, no published table is shown, so that reports are made sooner.
    """
    for arm, accuracy in (arms or ARMS).items():
        for task in tasks:
            bench.finish_predicted(task, arm, accuracy, source=source)
    return bench.plan(
        config={"name": "toy", "arms": [{"name": arm} for arm in arms or ARMS]}, data_source=source
    )
