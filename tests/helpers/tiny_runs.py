"""Runs of a second or two, and what they leave: this file knows what lies in their folders, and
the tests do not.
"""

import copy
import io
import json
import random
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from safetensors.numpy import load_file

import glue_bench
from glue_bench.config import load_experiment
from glue_bench.model.plugins import PLUGINS
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.records.values import Plan, PretrainingRecord, Record
from glue_bench.sweep.plan import make_plan
from glue_bench.sweep.run import Summary
from glue_bench.training.inputs import Inputs


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of plain values with changes.

    A section is merged into the section of the same name. None takes a key away.
    """
    values: dict[str, Any] = dict(base)
    for key, change in changes.items():
        section = base.get(key)
        if isinstance(section, dict) and isinstance(change, dict):
            values[key] = merged(section, change)
        else:
            values[key] = change
    return {key: copy.deepcopy(value) for key, value in values.items() if value is not None}


Stamp = tuple[int, bytes]
"""What changes when a record is stored anew, even with the same content: its inode and bytes."""
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
TINY: dict[str, Any] = {
    "name": "tiny",
    "data": "demo",
    "checkpoint": "scratch",
    "seeds": [1],
    "arms": ["add", "none"],
    "tasks": ["cola", "stsb"],
    "scratch": {"vocab_size": 200, "max_position_embeddings": 32, **SIZES},
    "finetuning": {"learning_rates": [1e-3], "epochs": 1, "batch_size": 16, "max_length": 32},
}
"""What tests of single rooms run, most of them through the fixture `tiny`."""
PRETRAINED: dict[str, Any] = {
    "checkpoint": None,
    "limit": 24,
    "arms": ["add"],
    "tasks": ["stsb"],
    "scratch": {"initializer_range": 0.2},
    "finetuning": {"batch_size": 8},
    "pretraining": {
        "steps": 4,
        "batch_tokens": 128,
        "length": 16,
        "learning_rates": [1e-3],
        "validations": 2,
        "validation_share": 0.1,
    },
}
"""How what promises run differs from it."""
CLOCKS = {"seconds", "training_seconds", "tokens_per_second", "peak_memory_bytes"}
"""What a record says of time and memory, which no two runs have alike."""
PLUGIN = """
from glue_bench.model.variants.additive import Add

class Mine(Add):
    name = "mine"
"""
_PLACE = tempfile.TemporaryDirectory()
WORDS = [
    "cat",
    "dog",
    "horse",
    "fox",
    "tom",
    "anna",
    "old",
    "young",
    "chased",
    "helped",
    "called",
    "the",
    "by",
]


def experiment(**changes: Any) -> dict[str, Any]:
    """Return what promises run, as plain values, with changes as in `merged`."""
    values = merged(TINY, PRETRAINED)
    values = merged(values, {"pretraining": {"corpus": str(text())}})
    return merged(values, changes)


def run(values: Mapping[str, Any], results: Path, **options: Any) -> Path:
    """Run an experiment without a word, with nothing failed, and return the folder that it
    leaves.
    """
    defaults = {
        "console": Console(file=io.StringIO()),
        "device": "cpu",
        "precision": "float32",
    }
    summary = glue_bench.run(values, results=results, **defaults | options)
    assert not summary.failed, summary.failed
    return summary.folder


def forget_plugins() -> None:
    """Forget the plugins that were loaded."""
    for name in PLUGINS:
        del VARIANTS[name]
    PLUGINS.clear()


@cache
def glue() -> Path:
    """Make a folder with a small STS-B in the classic layout, the same on every machine."""
    draw = random.Random(0)
    folder = Path(_PLACE.name) / "glue"
    (folder / "STS-B").mkdir(parents=True)
    for name, rows in (("train", 40), ("dev", 12)):
        lines = ["index\tsentence1\tsentence2\tscore\n"]
        for row in range(rows):
            first = _sentence(draw)
            second = _sentence(draw)
            lines.append(f"{row}\t{first}\t{second}\t{draw.uniform(0, 5):.1f}\n")
        (folder / "STS-B" / f"{name}.tsv").write_text("".join(lines))
    return folder


@cache
def text() -> Path:
    """Write a short text to pretrain on, the same on every machine."""
    draw = random.Random(1)
    path = Path(_PLACE.name) / "text.txt"
    path.write_text("".join(f"{_sentence(draw)} .\n" for _ in range(160)), encoding="utf-8")
    return path


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(3, 9)))


def tables(folder: Path) -> dict[str, Any]:
    """Return the tables that a run leaves, without seconds and bytes.

    The page of the budget is left out: it has them within sentences.
    """
    contents: dict[str, Any] = {}
    for path in folder.glob("*.md"):
        if path.stem != "budget":
            contents[path.name] = path.read_bytes()
    for path in folder.glob("*.csv"):
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        contents[path.name] = frame.filter(regex="^(?!.*(second|memory))").to_csv()
    return contents


def record_stamps(folder: Path) -> dict[str, Stamp]:
    """Return by its id the stamp of each finished cell and pretraining."""
    stamps: dict[str, Stamp] = {}
    for kind in ("cells", "pretrainings"):
        for path in (folder / kind).glob("*/record.json"):
            stamps[path.parent.name] = (path.stat().st_ino, path.read_bytes())
    return stamps


def bits(folder: Path, *without: str) -> dict[str, Any]:
    """Return all that cells and pretrainings have left, by file: numbers to the last bit, and no
    clocks.

    Wherever they are in JSON, the keys of the names `without` are left out.
    """
    moving = CLOCKS.union(without)
    contents: dict[str, Any] = {}
    for path in folder.glob("*/**/*"):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or "/." in str(path):
            continue
        if path.suffix == ".safetensors":  # whose head names the digest of its record
            contents[name] = _arrays(path)
        elif path.suffix == ".json":
            contents[name] = _still(json.loads(path.read_bytes()), moving)
        elif not path.suffix:
            contents[name] = path.read_bytes()
    return contents


def _arrays(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    arrays: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for key, array in load_file(path).items():
        arrays[key] = (str(array.dtype), array.shape, array.tobytes())
    return arrays


def _still(value: Any, moving: set[str]) -> Any:
    """Return a document without the keys that move, and without a digest of them."""
    if isinstance(value, list):
        return [_still(item, moving) for item in value]
    if not isinstance(value, dict):
        return value
    left_out = moving & value.keys()
    if left_out:
        left_out |= {"digest"}
    return {key: _still(value[key], moving) for key in sorted(value.keys() - left_out)}


def differing_files(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the files of the first of two `bits` or `tables` that the second has not, or has
    with other contents.
    """
    return sorted(name for name in first if first[name] != second.get(name))


def numbers(folder: Path) -> dict[str, list[float]]:
    """Return by arm the losses of its pretraining and of its cells, then their logits."""
    numbers_by_arm: dict[str, list[float]] = {}
    for path in sorted(folder.glob("pretrainings/*/record.json")):
        record = json.loads(path.read_bytes())
        losses: list[float | None] = []
        for point in record["losses"]:
            losses += [point.get("train_loss"), point.get("validation_loss")]
        arm = record["pretraining"]["arm"]
        numbers_by_arm[arm] = [loss for loss in losses if loss is not None]
    for path in sorted(folder.glob("cells/*/record.json")):
        record = json.loads(path.read_bytes())
        values = numbers_by_arm[record["cell"]["arm"]]
        values += [epoch["train_loss"] for epoch in record["history"]]
        for _, logits in sorted(load_file(path.with_name("logits.safetensors")).items()):
            values += np.ravel(logits).astype(float).tolist()
    return numbers_by_arm


def machine(folder: Path) -> str:
    """Return the kind of processor, torch's version and the threads that its cells were computed
    with.
    """
    record = json.loads(min(folder.glob("cells/*/record.json")).read_bytes())
    environment = record["environment"]
    threads = "1 thread" if environment["threads"] == 1 else f"{environment['threads']} threads"
    return f"{environment['processor']}, torch {environment['packages']['torch']}, {threads}"


def plan(values: Mapping[str, Any]) -> Plan:
    """Make the plan of an experiment."""
    return make_plan(Inputs(load_experiment(values), Path("none")))


def records(summary: Summary) -> dict[str, Record]:
    """Return the records of a run's plan, by arm and task."""
    store = Store(summary.folder)
    finished = store.finished(store.plan()).records.values()
    return {f"{record.cell.arm} {record.cell.task}": record for record in finished}


def pretrainings(summary: Summary) -> list[PretrainingRecord]:
    """Return the records of its pretrainings, in the plan's order."""
    store = Store(summary.folder)
    plan = store.plan()
    records = store.finished(plan).pretrainings
    return [records[job.id] for job in plan.pretrainings if job.id in records]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder by its path."""
    files: dict[str, bytes] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            files[str(path.relative_to(folder))] = path.read_bytes()
    return files
