"""Whoever reads an error of the command line can do what it advises: by an option, or in an
experiment file.
"""

import json
import re
import shutil

import pytest
from helpers.stored import Bench
from typer.main import get_command

from glue_bench.cli import app
from glue_bench.data.demo import generate
from glue_bench.training.tokenizers import train_tokenizer

OPTIONS = {
    name: {text for option in command.params for text in option.opts}
    for name, command in get_command(app).commands.items()
}
TEXTS = ["one two three four", "five six seven eight"]


@pytest.fixture
def checkpoint(make_bert):
    return make_bert(texts=tuple(TEXTS), positions=130)


@pytest.fixture
def faulty(tmp_path, make_bert):
    """Make a checkpoint, or what is taken for one, with a fault of a kind."""

    def make(kind: str):
        if kind == "few positions":
            return make_bert(kind, texts=tuple(TEXTS), positions=32)
        folder = make_bert(kind, positions=130, vocab_size=20 if kind == "few rows" else 250)
        if kind == "few rows":
            train_tokenizer(TEXTS * 9, 200).save_pretrained(folder)
        if kind in ("empty", "results"):
            shutil.rmtree(folder)
            folder.mkdir()
        if kind == "results with a model":
            shutil.move(folder, tmp_path / "above")
            (folder / "cells" / "id").mkdir(parents=True)
            shutil.move(tmp_path / "above", folder / "cells" / "id" / "model")
        if kind.startswith("results"):
            (folder / "plan.json").write_text("{}")
        if kind == "folder of checkpoints":
            shutil.move(folder, tmp_path / "above")
            folder.mkdir()
            shutil.move(tmp_path / "above", folder / "inside")
        return folder

    return make


def is_possible(message: str, verb: str) -> bool:
    """Return whether advice speaks of an experiment file, or of an option that the verb has."""
    options = set(re.findall(r"(?<!\w)--[a-z-]+", message))
    assert options <= OPTIONS[verb]
    return bool(options) or "experiment file" in message


@pytest.mark.parametrize("arm", ["native", "add"])
@pytest.mark.parametrize("kind", ["few positions", "few rows", "no tokenizer"])
def test_what_a_checkpoint_lacks_can_be_given(refused, faulty, kind, arm):
    message = refused(
        "run",
        "--checkpoint",
        faulty(kind),
        "--arm",
        arm,
        "--task",
        "rte",
        "--data",
        "demo",
        "--dry-run",
    )
    assert is_possible(message, "run")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("empty", "has no config.json"),
        ("folder of checkpoints", "inside; give one of them, such as"),
        ("results", "is a folder of results; it has kept no model: run it again with --set"),
        ("results with a model", "is a folder of results; give one of its models, such as"),
        ("no tokenizer", "no tokenizer in"),
    ],
)
def test_a_folder_that_is_no_checkpoint_is_said_to_be_none(refused, faulty, kind, expected):
    message = refused(
        "run", "--checkpoint", faulty(kind), "--task", "rte", "--data", "demo", "--dry-run"
    )
    assert expected in message
    assert "backend" not in message


def test_tasks_that_the_data_lack_can_be_left_out(refused, checkpoint, tmp_path):
    rows = generate("rte")
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    for split, name in (("train", "train"), ("validation", "dev")):
        lines = [
            f"{row.Index}\t{row.text_a}\t{row.text_b}\tentailment"
            for row in rows[split].itertuples()
        ]
        (folder / f"{name}.tsv").write_text(
            "\n".join(["index\tsentence1\tsentence2\tlabel", *lines, ""])
        )
    message = refused("run", "--checkpoint", checkpoint, "--data", tmp_path / "glue", "--dry-run")
    assert "--task rte" in message
    assert is_possible(message, "run")


@pytest.mark.parametrize(
    "words", ["submit RUNS --arm add -o OUT.zip", "card RUNS --arm add --push me/it"]
)
def test_what_a_run_did_not_keep_is_asked_for_in_an_experiment_file(refused, tmp_path, words):
    bench = Bench(tmp_path / "toy")
    bench.finish("rte", seed=1, score=0.5, arm="add")
    words = words.replace("RUNS", str(bench.plan())).replace("OUT", str(tmp_path / "out"))
    message = refused(*words.split())
    assert "experiment file" in message


def test_a_pretraining_that_is_too_long_is_shortened_in_the_experiment_file(
    refused, faulty, tmp_path
):
    values = {
        "checkpoint": str(faulty("few positions")),
        "pretraining": {"corpus": "demo", "from": "checkpoint", "steps": 1, "length": 64},
        "finetuning": {"max_length": 32},
    }
    file = tmp_path / "long.yaml"
    file.write_text(json.dumps({"name": "long", "data": "demo", "arms": ["add"], **values}))
    message = refused("run", file, "--dry-run")
    assert "set `pretraining: {length: 32}` in the experiment file" in message


def test_a_line_with_longer_texts_than_positions_is_given_the_option_that_shortens_them(
    refused, faulty
):
    words = ("run", "--checkpoint", faulty("few positions"), "--task", "rte", "--data", "demo")
    assert "give `--max-length 32`" in refused(*words, "--dry-run")


def test_a_tokenizer_is_named_by_set_where_there_is_no_file(glue_bench, refused, faulty):
    checkpoint = faulty("no tokenizer")
    train_tokenizer(TEXTS * 9, 200).save_pretrained(checkpoint.with_name("words"))
    words = ["run", "--checkpoint", checkpoint, "--task", "rte", "--data", "demo", "--dry-run"]
    assert "or by `run --set`" in refused(*words)
    result = glue_bench(*words, "--set", f"tokenizer={checkpoint.with_name('words')}")
    assert result.status == 0
