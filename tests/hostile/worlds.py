"""What hostile inputs are made from: one finished experiment, its bundle, checkpoints and data, made once."""

import copy
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tupe_files import TUPE_ARGS, tupe_shapes

EXPERIMENT: dict[str, Any] = {
    "name": "small",
    "data": "demo",
    "scratch": {
        "vocab_size": 150,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
    },
    "arms": ["add", {"name": "other", "variant": "untied", "options": {"segments": "scores"}}],
    "tasks": ["mnli", "stsb"],
    "seeds": [1, 2],
    "pretraining": {
        "corpus": "demo",
        "steps": 4,
        "batch_tokens": 128,
        "length": 16,
        "learning_rates": [1e-3],
        "validations": 2,
        "validation_share": 0.05,
    },
    "finetuning": {
        "learning_rates": [1e-3],
        "epochs": 1,
        "batch_size": 16,
        "max_length": 16,
        "predict": ["validation", "test"],
        "tasks": {"rte": {"epochs": 2}},
    },
    "protocol": {"contrasts": [["other", "add"]]},
    "resources": {"cpus": 1, "gpus": 0.0},
}


class World(NamedTuple):
    """The folder that examples are made in, and what they are made from."""

    place: Path
    runs: Path
    bundle: Path
    bert: Path
    own: Path
    tupe: Path
    glue: Path

    def clear(self) -> None:
        """Empty the place of the examples."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        os.chdir(self.place)

    def fresh(self, kind: str) -> Path:
        """A copy of one of the inputs, alone in an empty place."""
        self.clear()
        source = getattr(self, kind)
        target = self.place / source.name
        return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))


@contextmanager
def a_world(base: Path) -> Iterator[World]:
    """Made in the folder `base`. The current folder is the place of the examples, and no hub is asked."""
    import matplotlib.font_manager  # noqa: F401 (which writes a list of fonts, once for each home)

    from glue_bench.data import demo
    from glue_bench.training import memory

    here = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setenv("HOME", str(base / "home"))
        patch.setenv("TMPDIR", str(base / "tmp"))
        patch.setattr(tempfile, "tempdir", None)
        patch.setattr("sys.dont_write_bytecode", True)
        patch.setattr(memory, "_CLEAR", base / "tmp" / "no" / "such")  # the judge's to begin anew
        patch.setattr(demo, "ROWS", {"train": 24, "validation": 12, "test": 6})
        demo.generate.cache_clear()
        for name in ("home", "tmp", "work"):
            (base / name).mkdir()
        yield _made(base)
        os.chdir(here)
    tempfile.tempdir = None
    demo.generate.cache_clear()


def _made(base: Path) -> World:
    from rich.console import Console

    from glue_bench.api import run
    from glue_bench.audit.bundle import write_bundle
    from glue_bench.records.store import Store

    summary = run(copy.deepcopy(EXPERIMENT), results=base / "runs", console=Console(file=io.StringIO()))
    assert not summary.failed
    shutil.rmtree(summary.folder / "checkpoints")
    write_bundle([Store(summary.folder)], base / "bundle.zip")
    _take_up(summary.folder, "add-1.json")
    bert = _bert(base / "bert")
    world = World(
        base / "work", summary.folder, base / "bundle.zip", bert, _own(base, bert), _tupe(base), _glue(base / "glue")
    )
    world.clear()
    return world


def _take_up(folder: Path, job: str) -> None:
    """As if this process worked on a job, whose name ends as a file of JSON does."""
    from glue_bench.sweep.claims import Claims

    assert Claims(folder / "claims").take(job)
    (folder / "progress").mkdir()
    told = {"step": 1, "steps": 2, "loss": 0.5, "seconds_left": 7.5}
    (folder / "progress" / f"{job}.json").write_text(json.dumps(told))


def _bert(folder: Path) -> Path:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    from glue_bench.training.tokenizers import train_tokenizer

    torch.manual_seed(0)
    sizes = {"vocab_size": 150, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(**sizes, intermediate_size=16, max_position_embeddings=16)
    BertForMaskedLM(config).save_pretrained(folder)
    train_tokenizer(["the old cat sat on a mat", "dogs bark at the moon, and at night"], 150).save_pretrained(folder)
    return folder


def _own(base: Path, bert: Path) -> Path:
    from glue_bench.training.convert import convert

    convert(str(bert), base / "own", "untied")
    return base / "own"


def _tupe(base: Path) -> Path:
    import argparse

    import torch

    model = {key: torch.zeros(shape) for key, shape in tupe_shapes().items()}
    torch.save({"args": argparse.Namespace(**TUPE_ARGS), "model": model}, base / "tupe.pt")
    return base / "tupe.pt"


def _glue(folder: Path) -> Path:
    from glue_bench.data.demo import generate
    from glue_bench.data.tasks import TASKS
    from glue_bench.data.tsv import COLA_COLUMNS

    for task in TASKS.values():
        (folder / task.title).mkdir(parents=True)
        for name, frame in generate(task.name).items():
            split, texts = task.splits[name], task.tsv_texts or task.texts
            written = frame["label"] if task.is_regression else [task.written[label] for label in frame["label"]]
            columns = ["index", *texts] if name in task.test_splits else ["index", *texts, task.tsv_label]
            rows = [columns] if split.header else []
            for number, (row, label) in enumerate(zip(frame.itertuples(index=False), written, strict=True)):
                fields = [str(number), *map(str, row[: len(texts)]), str(label)][: len(columns)]
                rows.append(fields if split.header else ["x", fields[2], "", fields[1]])
            assert split.header or len(rows[0]) == len(COLA_COLUMNS)
            (folder / task.title / split.file).write_text("\n".join(map("\t".join, rows)) + "\n", encoding="utf-8")
    return folder
