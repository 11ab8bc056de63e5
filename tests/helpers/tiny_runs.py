"""Runs of a second or two, and what they leave: this file knows what lies in their folders, and the tests do not."""

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
from glue_bench.records.store import Store
from glue_bench.records.values import Plan, PretrainingRecord, Record
from glue_bench.sweep.plan import make_plan
from glue_bench.sweep.run import Summary
from glue_bench.training.inputs import Inputs


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain values with changes: sections are merged into those of the same name, None takes a key away."""
    both = {
        key: base[key]
        for key in base
        if isinstance(base[key], dict) and isinstance(changes.get(key), dict)
    }
    values = {
        **base,
        **changes,
        **{key: merged(section, changes[key]) for key, section in both.items()},
    }
    return {key: copy.deepcopy(value) for key, value in values.items() if value is not None}


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
TINY: dict[str, Any] = {
    **{"name": "tiny", "data": "demo", "checkpoint": "scratch", "seeds": [1]},
    **{"arms": ["add", "none"], "tasks": ["cola", "stsb"]},
    "scratch": {"vocab_size": 200, "max_position_embeddings": 32, **SIZES},
    "finetuning": {"learning_rates": [1e-3], "epochs": 1, "batch_size": 16, "max_length": 32},
}
"""What tests of single rooms run, most of them through the fixture `tiny`."""
PRETRAINED: dict[str, Any] = {
    **{"checkpoint": None, "limit": 24, "arms": ["add"], "tasks": ["stsb"]},
    **{"scratch": {"initializer_range": 0.2}, "finetuning": {"batch_size": 8}},
    "pretraining": {
        **{"steps": 4, "batch_tokens": 128, "length": 16, "learning_rates": [1e-3]},
        **{"validations": 2, "validation_share": 0.1},
    },
}
"""How what promises run differs from it."""
CLOCKS = {"seconds", "training_seconds", "tokens_per_second", "peak_memory_bytes"}
"""What a record says of time and memory, which no two runs have alike."""
_PLACE = tempfile.TemporaryDirectory()
WORDS = (
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
)


def experiment(**changes: Any) -> dict[str, Any]:
    """What promises run, as plain values, with changes as in `merged`."""
    return merged(
        merged(merged(TINY, PRETRAINED), {"pretraining": {"corpus": str(text())}}), changes
    )


def run(values: Mapping[str, Any], results: Path, **options: Any) -> Path:
    """Run an experiment without a word; the folder that it leaves, with nothing failed."""
    given = {
        "console": Console(file=io.StringIO()),
        "device": "cpu",
        "precision": "float32",
    } | options
    summary = glue_bench.run(values, results=results, **given)
    assert not summary.failed, summary.failed
    return summary.folder


@cache
def glue() -> Path:
    """A folder with a small STS-B in the classic layout, the same on every machine."""
    draw, folder = random.Random(0), Path(_PLACE.name) / "glue"
    (folder / "STS-B").mkdir(parents=True)
    for name, rows in (("train", 40), ("dev", 12)):
        lines = [
            f"{row}\t{_sentence(draw)}\t{_sentence(draw)}\t{draw.uniform(0, 5):.1f}\n"
            for row in range(rows)
        ]
        (folder / "STS-B" / f"{name}.tsv").write_text(
            "".join(["index\tsentence1\tsentence2\tscore\n", *lines])
        )
    return folder


@cache
def text() -> Path:
    """A short text to pretrain on, the same on every machine."""
    draw, path = random.Random(1), Path(_PLACE.name) / "text.txt"
    path.write_text("".join(f"{_sentence(draw)} .\n" for _ in range(160)), encoding="utf-8")
    return path


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(3, 9)))


def tables(folder: Path) -> dict[str, Any]:
    """The tables that a run leaves, without seconds and bytes; the page of the budget has them within sentences."""
    pages = {path.name: path.read_bytes() for path in folder.glob("*.md") if path.stem != "budget"}
    frames = {
        path.name: pd.read_csv(path, dtype=str, keep_default_na=False)
        for path in folder.glob("*.csv")
    }
    return pages | {
        name: frame.filter(regex="^(?!.*(second|memory))").to_csv()
        for name, frame in frames.items()
    }


def results(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each finished cell and pretraining by its id: what changes when it is stored anew."""
    paths = [
        path for kind in ("cells", "pretrainings") for path in (folder / kind).glob("*/record.json")
    ]
    return {path.parent.name: (path.stat().st_ino, path.read_bytes()) for path in paths}


def bits(folder: Path, *without: str) -> dict[str, Any]:
    """All that cells and pretrainings have left, by file: numbers to the last bit, and no clocks.

    Wherever they are in JSON, the keys of the names `without` are left out.
    """

    def still(value: Any) -> Any:
        """Without the keys that move; a document that has some has a digest of them, too."""
        if isinstance(value, list):
            return [still(one) for one in value]
        if not isinstance(value, dict):
            return value
        moving = CLOCKS.union(without) & value.keys()
        return {
            key: still(value[key])
            for key in sorted(value.keys() - moving - ({"digest"} if moving else set()))
        }

    found: dict[str, Any] = {}
    for path in (
        path for path in folder.glob("*/**/*") if path.is_file() and "/." not in str(path)
    ):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".safetensors":  # whose head names the digest of its record
            found[name] = {
                key: (str(one.dtype), one.shape, one.tobytes())
                for key, one in load_file(path).items()
            }
        elif path.suffix in (".json", ""):
            found[name] = still(json.loads(path.read_bytes())) if path.suffix else path.read_bytes()
    return found


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The files of `one` that differ from those of `other`, or are not there: two of `bits` or `tables`."""
    return sorted(name for name in one if one[name] != other.get(name))


def numbers(folder: Path) -> dict[str, list[float]]:
    """By arm, losses of its pretraining and of its cells, then their logits."""
    found: dict[str, list[float]] = {}
    for path in sorted(folder.glob("pretrainings/*/record.json")):
        record = json.loads(path.read_bytes())
        losses = [
            point.get(key)
            for point in record["losses"]
            for key in ("train_loss", "validation_loss")
        ]
        found[record["pretraining"]["arm"]] = [one for one in losses if one is not None]
    for path in sorted(folder.glob("cells/*/record.json")):
        record, logits = (
            json.loads(path.read_bytes()),
            load_file(path.with_name("logits.safetensors")),
        )
        found[record["cell"]["arm"]] += [epoch["train_loss"] for epoch in record["history"]]
        found[record["cell"]["arm"]] += [
            float(one) for split in sorted(logits) for one in np.ravel(logits[split])
        ]
    return found


def machine(folder: Path) -> str:
    """The kind of processor, torch's version and the threads that its cells were computed with."""
    where = json.loads(min(folder.glob("cells/*/record.json")).read_bytes())["environment"]
    threads = f"{where['threads']} thread{'s' * (where['threads'] != 1)}"
    return f"{where['processor']}, torch {where['packages']['torch']}, {threads}"


def plan(values: Mapping[str, Any]) -> Plan:
    """The plan of an experiment."""
    asked = load_experiment(values)
    return make_plan(Inputs(asked, Path("none")))


def records(summary: Summary) -> dict[str, Record]:
    """The records of a run's plan, by arm and task."""
    store = Store(summary.folder)
    return {
        f"{one.cell.arm} {one.cell.task}": one
        for one in store.finished(store.plan()).records.values()
    }


def pretrainings(summary: Summary) -> list[PretrainingRecord]:
    """The records of its pretrainings, in the plan's order."""
    store = Store(summary.folder)
    found = store.finished(asked := store.plan()).pretrainings
    return [found[job.id] for job in asked.pretrainings if job.id in found]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
