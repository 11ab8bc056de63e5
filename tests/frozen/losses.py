"""Cells and pretrainings, run whole: each step's loss, scores, hashes of logits and of weights.

No default hides a fault: the last batch is not full, texts are cut, gradients are clipped, dropout is above zero, and
runs end before their last epoch does.
"""

import hashlib
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file
from transformers import BertConfig, BertModel, BertTokenizer
from transformers.utils.logging import disable_progress_bar
from variants import OPTIONS

SCRATCH = {
    "vocab_size": 200, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
    "max_position_embeddings": 32, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.15,
}  # fmt: skip
FINETUNING = {
    "learning_rates": [3e-3], "epochs": 3, "batch_size": 16, "max_length": 17, "warmup_ratio": 0.25,
    "weight_decay": 0.1, "adam_epsilon": 1e-7, "clip_norm": 0.3, "max_steps": 9, "held_out_share": 0.2,
    "predict": ["validation", "test"], "keep": "all",
}  # fmt: skip
PRETRAINING = {
    "corpus": "demo", "steps": 11, "batch_tokens": 500, "length": 24, "learning_rates": [4e-3], "warmup_ratio": 0.2,
    "weight_decay": 0.1, "adam_epsilon": 1e-7, "clip_norm": 0.5, "validation_share": 0.02, "validations": 3,
}  # fmt: skip
SENTENCES = ("the old cat saw anna.", "tom helped it, and then he left!", "why?", "nobody called the lazy seal today.")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
EARLY = 2
"""Steps from whose losses on other processors come to differ by more than rounding, as AdamW divides by gradients."""


NATIVE = "native"
"""The run of published models: without dropout, whose draws are theirs, and compared to ROUNDING."""
ROUNDING = 1e-5


def _arms(*given: tuple[str, dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    named = [(f"{variant}-{number}", variant, options) for number, (variant, options) in enumerate(given)]
    both = {"checkpoint": "scratch"} | more
    return [{"name": name, "variant": variant, "options": options, **both} for name, variant, options in named]


def experiments(folder: Path) -> dict[str, dict[str, Any]]:
    """What is run, by name; text and a checkpoint are written into the folder."""
    kept, published = str(bert(folder)), str(bert(folder, dropout=0.0))
    own = _arms(("add", {}), ("untied", {}), ("concat", {}), ("rotary", {}), checkpoint=kept)
    narrow = [
        arm | {"name": f"narrow-{arm['name']}", "embedding_size": 10} for arm in _arms(("add", {}), ("untied", {}))
    ]
    several = {
        "tasks": ["mnli", "rte", "sst2"],
        "seeds": [3, 4],
        "finetuning": {
            "from_mnli": ["rte"],
            "predictions": "float16",
            "max_steps": None,
            "clip_norm": 1.0,
            "tasks": {"sst2": {"learning_rates": [1e-3, 5e-3], "epochs": 2, "batch_size": 11, "max_length": 9}},
        },
    }
    few = {"tasks": ["cola"], "limit": 40, "seeds": [1]}
    return {
        "cells": {"arms": _arms(*OPTIONS), "tasks": ["qnli", "stsb"]},
        "starts": several | {"arms": [*own, *narrow]},
        NATIVE: several | {"arms": _arms(("native", {}), checkpoint=published)},
        "one": few | {
            "arms": _arms(("add", {}), ("untied-relative", {})),
            "pretraining": {"checkpoints": [4], "finetune_checkpoints": True, "validations": 4},
        },
        "pairs": few | {
            "arms": _arms(("concat-split", {}), ("disentangled", {})),
            "pretraining": {
                "corpus": [str(text(folder)), "demo"], "documents": "blank_lines", "segments": "pairs",
                "schedule": "trapezoid", "decay_share": 0.3, "seeds": [1, 2], "dropout": 0.2,
            },
        },
        "search": few | {
            "arms": _arms(("shaw", {}), ("multiply", {})),
            "pretraining": {
                "learning_rates": [1e-3, 8e-3], "rate_search": {"steps": 5, "seed": 7},
                "mask_probability": 0.3,
            },
        },
        "parts": few | {
            "arms": _arms(("diet-abs", {}), ("four-term", {}), ("gate", {})),
            "pretraining": {"micro_batch_tokens": 170, "clip_norm": 0.1, "seeds": [5], "validation_share": 0.05},
        },
        "adapted": few | {
            "arms": own,
            "pretraining": {"from": "checkpoint", "schedule": "trapezoid", "decay_share": 0.5, "dropout": 0.0},
        },
        "bf16": few | {"arms": _arms(("add", {}), ("untied", {})), "pretraining": {"steps": 5}},
    }  # fmt: skip


def whole(name: str, given: dict[str, Any]) -> dict[str, Any]:
    base = {"name": name, "data": "demo", "limit": 70, "seeds": [1], "scratch": SCRATCH}
    changed = {"finetuning": FINETUNING | given.get("finetuning", {})}
    if "pretraining" in given:
        merged = PRETRAINING | given["pretraining"]
        changed["pretraining"] = {key: value for key, value in merged.items() if value is not None}
    return base | given | changed


def text(folder: Path) -> Path:
    """Documents of one to nine sentences between blank lines."""
    draw = np.random.default_rng(11)
    documents = ("\n".join(draw.choice(SENTENCES, draw.integers(1, 10))) for _ in range(120))
    path = folder / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def bert(folder: Path, dropout: float | None = None) -> Path:
    """A random BERT with a tokenizer that knows some words and every letter; `dropout` in place of SCRATCH's."""
    words = sorted({word.strip(".,!?") for sentence in SENTENCES for word in sentence.split()})
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = list(
        dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "?", "!", *letters, *words])
    )
    sizes = {name: value for name, value in SCRATCH.items() if name != "vocab_size"}
    if dropout is not None:
        sizes |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    place = folder / f"bert-{dropout}"
    model, draw = BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)), torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        middle = 1.0 if "LayerNorm.weight" in name else 0.0
        parameter.data = middle + torch.randn(parameter.shape, generator=draw) * 0.1
    disable_progress_bar()
    model.save_pretrained(place)
    BertTokenizer(vocab={word: number for number, word in enumerate(vocabulary)}).save_pretrained(place)
    return place


def values(adapter: ModuleType, quick: bool) -> dict[str, pd.DataFrame]:
    """Frames of steps, scores, curves, facts and hashes; `job` is the experiment, the arm and what tells runs apart."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("steps", "scores", "curves", "facts", "hashes")}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, given in experiments(folder).items():
            if quick and name not in ("pairs", "adapted"):
                continue
            told = adapter.run(whole(name, given), folder / "runs", "bf16" if name == "bf16" else "float32")
            labels = {}
            for cell in adapter.cells(folder / "runs" / name):
                labels[cell["id"]] = job = f"{name} {cell['label']}"
                _cell(rows, job, cell)
            for run in adapter.pretrainings(folder / "runs" / name):
                labels[run["id"]] = job = f"{name} {run['label']}"
                _pretraining(rows, job, run)
            for job, step, loss in told:
                across = 1e-6 if step <= EARLY and name != "bf16" else 0.05
                rows["steps"].append({"job": labels[job], "step": step, "loss": loss, "across": across})
    frames = {name: pd.DataFrame(each).sort_values("job", kind="stable") for name, each in rows.items()}
    own = frames["hashes"]["job"].str.startswith(f"{NATIVE} ")
    frames["hashes"].loc[own, "bits"] = ""
    for name in ("steps", "scores"):
        own = frames[name]["job"].str.startswith(f"{NATIVE} ")
        frames[name] = frames[name].assign(within=np.where(own, ROUNDING, 0.0))
    return frames


def _cell(rows: dict[str, list[dict[str, Any]]], job: str, cell: dict[str, Any]) -> None:
    sets = [
        (epoch, f"{split}.{metric}", value)
        for epoch, _, scores in cell["epochs"]
        for split, metric, value in _flat(scores)
    ]
    sets += [(epoch, "train_loss", loss) for epoch, loss, _ in cell["epochs"]]
    # A score counts rows: elsewhere one of them may be decided otherwise.
    rows["scores"] += [
        {"job": job, "name": name, "epoch": epoch, "value": value, "across": 0.05 if name == "train_loss" else np.inf}
        for epoch, name, value in sets
    ]
    rows["facts"] += [{"job": job, "name": name, "value": value} for name, value in cell["facts"].items()]
    arrays = sorted(cell["predictions"].items())
    rows["hashes"] += [{"job": job, "name": f"logits {name}", "bits": digest(array)} for name, array in arrays]
    if cell["weights"]:
        rows["hashes"].append({"job": job, "name": "weights", "bits": _weights(cell["weights"])})


def _pretraining(rows: dict[str, list[dict[str, Any]]], job: str, run: dict[str, Any]) -> None:
    names = ("step", "tokens", "train_loss", "validation_loss")
    rows["curves"] += [{"job": job, **dict(zip(names, point, strict=True)), "across": 0.05} for point in run["curve"]]
    rows["facts"] += [
        {"job": job, "name": name, "value": value, "across": 0.05} for name, value in run["facts"].items()
    ]
    rows["hashes"] += [
        {"job": job, "name": name, "bits": digest(array)} for name, array in sorted(run["arrays"].items())
    ]
    rows["hashes"] += [{"job": job, "name": path.parent.name, "bits": _weights(path)} for path in run["weights"]]
    rows["hashes"].append({"job": job, "name": f"stream {run['stream'][:16]}", "bits": ""})


def _flat(scores: dict[str, dict[str, float]]) -> list[tuple[str, str, float]]:
    return [(split, metric, value) for split, each in scores.items() for metric, value in each.items()]


def _weights(path: Path) -> str:
    tensors = load_file(path)
    return digest(
        *(array for name in sorted(tensors) for array in (np.frombuffer(name.encode(), np.uint8), tensors[name]))
    )


def digest(*arrays: np.ndarray) -> str:
    total = hashlib.sha256()
    for array in arrays:
        whole = np.ascontiguousarray(array)
        total.update(f"{whole.dtype} {whole.shape}".encode() + (whole + 0).tobytes())  # -0.0 counts as 0
    return total.hexdigest()[:16]
