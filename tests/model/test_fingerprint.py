"""A fingerprint covers every file that decides what a checkpoint computes."""

import json
import sys
from pathlib import Path

import pytest
import torch
from helpers.every_family import random_classifier
from helpers.opened_files import opened_files
from helpers.tiny_models import edit_settings

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.locate import fingerprint
from glue_bench.model.native import read_native
from glue_bench.training.tokenizers import load_tokenizer, train_tokenizer

needs_inotify = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="inotify is Linux's"
)
NATIVE_FAMILIES = (
    "bert",
    "roberta",
    "gpt2",
    "bart",
    "t5",
    "xlnet",
    "deberta-v2",
    "funnel",
    "nomic_bert",
    "fnet",
)
VARIANT_FAMILIES = ("bert", "roberta", "electra", "distilbert")
FORMATS = ("safetensors", "shards", "bin")
# Files that may lie beside a checkpoint and decide nothing that it computes.
UNUSED_FILES = (
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "decision_config.json",
)


def save_checkpoint(folder: Path, family: str, form: str) -> Path:
    """Save a tiny checkpoint with a tokenizer, and return its folder.

    Its weights are in this form, one of FORMATS. Beside them are files that must not be taken for
    its settings or weights.
    """
    model = random_classifier(family).base_model
    model.save_pretrained(folder, max_shard_size="5KB" if form == "shards" else "1GB")
    if form == "bin":
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    train_tokenizer(("a cat sat on the mat", "the dog ran"), 200).save_pretrained(folder)
    for name in UNUSED_FILES:
        (folder / name).write_text("{}")
    for name in ("model.fp16.safetensors", "head.safetensors", "other.safetensors"):
        (folder / name).write_bytes(b"no weights")
    return folder


@needs_inotify
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("family", NATIVE_FAMILIES)
def test_every_file_that_a_native_arm_opens_is_in_its_fingerprint(family, form, tmp_path):
    folder = save_checkpoint(tmp_path / "model", family, form)
    tokenizer = load_tokenizer(str(folder))
    with opened_files(folder) as digested:
        fingerprint(folder)
    with opened_files(folder) as read:
        read_native(str(folder), None, tokenizer)
    assert "config.json" in read
    assert read - digested == set()


@needs_inotify
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("family", VARIANT_FAMILIES)
def test_every_file_that_a_variant_opens_is_in_its_fingerprint(family, form, tmp_path):
    folder = save_checkpoint(tmp_path / "model", family, form)
    with opened_files(folder) as digested:
        fingerprint(folder)
    with opened_files(folder) as read:
        read_checkpoint(str(folder))
    assert "config.json" in read
    assert read - digested == set()


def test_a_config_that_names_another_file_of_weights_is_refused(tmp_path):
    folder = save_checkpoint(tmp_path / "model", "bert", "safetensors")
    edit_settings(folder, transformers_weights="other.safetensors")
    with pytest.raises(
        UserError,
        match=r"config\.json' names its weights \(transformers_weights: 'other\.safetensors'\)",
    ):
        fingerprint(folder)


def test_a_folder_with_an_adapter_beside_whole_weights_is_refused(tmp_path):
    folder = save_checkpoint(tmp_path / "model", "bert", "safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(UserError, match=r"is an adapter \(adapter_config\.json\)"):
        read_checkpoint(str(folder))
