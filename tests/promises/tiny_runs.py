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

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
EXPERIMENT: dict[str, Any] = {
    **{"name": "tiny", "data": "demo", "limit": 24, "arms": ["add"], "tasks": ["stsb"], "seeds": [1]},
    "scratch": {"vocab_size": 200, "max_position_embeddings": 32, "initializer_range": 0.2, **SIZES},
    "pretraining": {
        **{"steps": 4, "batch_tokens": 128, "length": 16, "learning_rates": [1e-3]},
        **{"validations": 2, "validation_share": 0.1},
    },
    "finetuning": {"learning_rates": [1e-3], "epochs": 1, "batch_size": 8, "max_length": 32},
}
CLOCKS = {"seconds", "training_seconds", "tokens_per_second", "peak_memory_bytes"}
"""What a record says of time and memory, which no two runs have alike."""
_PLACE = tempfile.TemporaryDirectory()
WORDS = ("cat", "dog", "horse", "fox", "tom", "anna", "old", "young", "chased", "helped", "called", "the", "by")


def experiment(**changes: Any) -> dict[str, Any]:
    """The experiment above as plain values; a section is changed by its keys, and None takes a key away."""
    values = copy.deepcopy(EXPERIMENT)
    values["pretraining"]["corpus"] = str(text())
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(value, dict) and key in values else value
        if isinstance(values[key], dict):
            values[key] = {name: one for name, one in values[key].items() if one is not None}
    return {key: value for key, value in values.items() if value is not None}


def run(values: Mapping[str, Any], results: Path, **options: Any) -> Path:
    """Run an experiment without a word; the folder that it leaves, with nothing failed."""
    given = {"console": Console(file=io.StringIO()), "device": "cpu", "precision": "float32"} | options
    summary = glue_bench.run(values, results=results, **given)
    assert not summary.failed, summary.failed
    return summary.folder


@cache
def glue() -> Path:
    """A folder with a small STS-B in the classic layout, the same on every machine."""
    draw, folder = random.Random(0), Path(_PLACE.name) / "glue"
    (folder / "STS-B").mkdir(parents=True)
    for name, rows in (("train", 40), ("dev", 12)):
        lines = [f"{row}\t{_sentence(draw)}\t{_sentence(draw)}\t{draw.uniform(0, 5):.1f}\n" for row in range(rows)]
        (folder / "STS-B" / f"{name}.tsv").write_text("".join(["index\tsentence1\tsentence2\tscore\n", *lines]))
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
    frames = {path.name: pd.read_csv(path, dtype=str, keep_default_na=False) for path in folder.glob("*.csv")}
    return pages | {name: frame.filter(regex="^(?!.*(second|memory))").to_csv() for name, frame in frames.items()}


def results(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each finished cell and pretraining by its id: what changes when it is stored anew."""
    paths = [path for kind in ("cells", "pretrainings") for path in (folder / kind).glob("*/record.json")]
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
        return {key: still(value[key]) for key in sorted(value.keys() - moving - ({"digest"} if moving else set()))}

    found: dict[str, Any] = {}
    for path in (path for path in folder.glob("*/**/*") if path.is_file() and "/." not in str(path)):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".safetensors":  # whose head names the digest of its record
            found[name] = {key: (str(one.dtype), one.shape, one.tobytes()) for key, one in load_file(path).items()}
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
        losses = [point.get(key) for point in record["losses"] for key in ("train_loss", "validation_loss")]
        found[record["pretraining"]["arm"]] = [one for one in losses if one is not None]
    for path in sorted(folder.glob("cells/*/record.json")):
        record, logits = json.loads(path.read_bytes()), load_file(path.with_name("logits.safetensors"))
        found[record["cell"]["arm"]] += [epoch["train_loss"] for epoch in record["history"]]
        found[record["cell"]["arm"]] += [float(one) for split in sorted(logits) for one in np.ravel(logits[split])]
    return found


def machine(folder: Path) -> str:
    """The kind of processor, torch's version and the threads that its cells were computed with."""
    where = json.loads(min(folder.glob("cells/*/record.json")).read_bytes())["environment"]
    threads = f"{where['threads']} thread{'s' * (where['threads'] != 1)}"
    return f"{where['processor']}, torch {where['packages']['torch']}, {threads}"
