"""Folders of tiny classifiers that were fine-tuned elsewhere, and permutations of their heads."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from glue_bench.data.demo import generate
from helpers.every_family import random_classifier
from helpers.tiny_models import edit_settings, edit_weights, read_settings, trained_tokenizer


def save_classifier(
    folder: Path, outputs: Sequence[str], family: str = "bert", **settings: Any
) -> Path:
    """Save a random classifier with these names of outputs, and a tokenizer beside it."""
    random_classifier(family, num_labels=len(outputs)).save_pretrained(folder)
    texts = tuple(generate("rte")["train"]["text_a"])
    trained_tokenizer(texts, 250).save_pretrained(folder)
    name_outputs(folder, outputs)
    edit_settings(folder, **settings)
    return folder


def name_outputs(folder: Path, outputs: Sequence[str]) -> None:
    """Name the outputs of a classifier in its config.json."""
    names = {str(place): name for place, name in enumerate(outputs)}
    ids = {name: place for place, name in enumerate(outputs)}
    edit_settings(folder, id2label=names, label2id=ids)


def permuted(folder: Path, target: Path, order: Sequence[int], *, named: bool = True) -> Path:
    """Copy a classifier with the outputs of its head in another order, perhaps without names."""

    def permute(weights: dict[str, Tensor]) -> None:
        for name in ("classifier.weight", "classifier.bias"):
            weights[name] = weights[name][list(order)].contiguous()

    shutil.copytree(folder, target)
    edit_weights(target, permute)
    outputs = read_settings(folder)["id2label"]
    names = [outputs[str(place)] for place in order]
    if not named:
        names = [f"LABEL_{place}" for place in range(len(order))]
    name_outputs(target, names)
    return target
