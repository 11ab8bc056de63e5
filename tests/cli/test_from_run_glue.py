"""The page on run_glue.py: its options are all there, and what stands beside them is understood."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from transformers import TrainingArguments
from typer.main import get_command

from glue_bench.cli import app
from glue_bench.config import load_experiment

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-run-glue.md"
SCRIPT = {
    "model_name_or_path",
    "config_name",
    "tokenizer_name",
    "cache_dir",
    "use_fast_tokenizer",
    "model_revision",
    "token",
    "use_auth_token",
    "trust_remote_code",
    "ignore_mismatched_sizes",
    "task_name",
    "dataset_name",
    "dataset_config_name",
    "max_seq_length",
    "overwrite_cache",
    "pad_to_max_length",
    "max_train_samples",
    "max_eval_samples",
    "max_predict_samples",
    "train_file",
    "validation_file",
    "test_file",
}
"""The options of the script itself, beside those of transformers' Trainer."""
OLDER = {"warmup_ratio", "overwrite_output_dir"}
"""Options that Trainer has had."""


def rows() -> list[tuple[str, str]]:
    """Return both cells of each row of the tables."""
    cells = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [row for row in cells if row[0] != "run_glue.py"]


def options_of_theirs() -> set[str]:
    """Return the options on the left."""
    lefts = " ".join(left for left, _ in rows())
    return set(re.findall(r"--(\w+)", lefts))


def lines_of_ours() -> list[str]:
    """Return the options on the right, as one would type them."""
    lines: list[str] = []
    for _, right in rows():
        lines += re.findall(r"`(--[^`]+)`", right)
    return lines


def test_every_option_of_the_script_is_there():
    assert options_of_theirs() >= SCRIPT


def test_every_other_option_is_of_the_trainer():
    of_trainer = {field.name for field in fields(TrainingArguments)}
    assert options_of_theirs() - SCRIPT - of_trainer - OLDER == {"nproc_per_node"}


@pytest.mark.parametrize("line", [line for line in lines_of_ours() if " " in line])
def test_what_stands_beside_it_is_understood(line):
    words = [word for word in shlex.split(line) if word != "..."]
    get_command(app).commands["run"].make_context("run", words)


@pytest.mark.parametrize("line", [line for line in lines_of_ours() if "--set" in line])
def test_every_key_that_is_set_is_one(glue_bench, line, tmp_path):
    line = line.replace("NAME", "org/words").replace("REV", "main")
    options = ["--checkpoint", "org/model", *shlex.split(line)]
    glue_bench("run", *options, "--write", tmp_path / "line.yaml")
    load_experiment(tmp_path / "line.yaml")
