"""From an experiment to the zip for the GLUE site, and back through its linter."""

import hashlib
import io
import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from stored import bench

from glue_bench.data import demo
from glue_bench.data.sources import DemoSource
from glue_bench.data.submission import FILES, fill_file, make_zip

__all__ = ["bench"]

pytestmark = pytest.mark.usefixtures("small_demo")
GLUE = Path(__file__).resolve().parents[3] / "shared" / "glue"


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Where the finished experiment stays, once a test has asked for it."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def finished(glue_bench, tiny, write_yaml, kept, tmp_path) -> Path:
    """The folder of a finished experiment on MNLI and RTE, to be changed."""
    if not (kept / "tiny").exists():
        config = write_yaml(tiny(arms=["add"], tasks=["mnli", "rte"], finetuning={"predict": ["validation", "test"]}))
        assert glue_bench("run", config, "--results", kept).status == 0
    return shutil.copytree(kept / "tiny", tmp_path / "runs" / "tiny")


@pytest.fixture
def good(tmp_path) -> Path:
    path = tmp_path / "good.zip"
    path.write_bytes(make_zip({name: fill_file(file) for name, file in FILES.items()}))
    return path


def predictions(path: Path, name: str) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [line.split("\t")[1] for line in archive.read(name).decode().splitlines()[1:]]


# Writing


def test_what_is_missing_is_named_and_nothing_is_written(refused, finished, tmp_path):
    error = refused("submit", finished, "-o", tmp_path / "x.zip")
    assert "arm 'add' has no predictions for 7 of the eleven files: CoLA.tsv (no finished run of cola)" in error
    assert all(name in error for name in ("SST-2", "MRPC", "STS-B", "QQP", "QNLI", "WNLI"))
    assert "AX.tsv" not in error
    assert not list(tmp_path.glob("x.*"))


def test_a_demo_is_written_and_said_not_to_pass(glue_bench, finished, tmp_path):
    said = glue_bench("submit", finished, "--arm", "add", "-o", tmp_path / "x.zip", "--fill")
    assert said.status == 1
    assert "filled with the majority class, not predicted: CoLA.tsv, SST-2.tsv, MRPC.tsv" in said.out
    assert "made-up data" in said.out
    assert said.err.splitlines() == [
        f"warning: the site will not take {tmp_path / 'x.zip'}:",
        "MNLI-m.tsv: 12 rows; expected 9796",
        "MNLI-mm.tsv: 12 rows; expected 9847",
        "RTE.tsv: 12 rows; expected 3000",
        "AX.tsv: 12 rows; expected 1104",
    ]
    assert glue_bench("submit", "--check", tmp_path / "x.zip").out.splitlines() == said.err.splitlines()[1:]
    told = json.loads((tmp_path / "x.json").read_text())
    assert told["sha256"] == hashlib.sha256((tmp_path / "x.zip").read_bytes()).hexdigest()
    assert told["files"]["AX.tsv"]["cell_id"] == told["files"]["MNLI-m.tsv"]["cell_id"]
    assert told["files"]["CoLA.tsv"] == {"rows": 1063, "filled": "1"}
    assert told["files"]["AX.tsv"]["data"] == DemoSource().load("ax").digest


def test_a_check_ignores_no_option(refused, good):
    assert "--check takes a zip alone, without an experiment or any other option" in refused(
        "submit", "--check", good, "--fill"
    )


# Checking


def test_a_good_zip_is_called_good(glue_bench, good):
    said = glue_bench("submit", "--check", good)
    assert said.status == 0
    assert said.out == f"{good}: good; 11 files, 426309 predictions\n"


def test_findings_are_listed_one_a_line(glue_bench, tmp_path):
    path = tmp_path / "bad.zip"
    path.write_bytes(make_zip({"WNLI.tsv": fill_file(FILES["WNLI.tsv"]).replace(b"\n7\t0", b"\n7\tentailment")}))
    said = glue_bench("submit", "--check", path)
    assert said.status == 1
    assert len(said.out.splitlines()) == 11
    assert said.out.splitlines()[-1] == (
        "WNLI.tsv, line 9: label 'entailment' (a name, where the class's number is wanted); expected 0 or 1"
    )


def test_what_is_no_zip_is_refused(refused, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert f"{path} is not a zip" in refused("submit", "--check", path)
    assert "cannot read" in refused("submit", "--check", tmp_path / "absent.zip")


# Labels by name


@pytest.fixture
def other_order(tmp_path) -> Path:
    """A checkpoint with an MNLI head of its own, in the order that many have: contradiction first."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from glue_bench.training.tokenizers import train_tokenizer

    torch.manual_seed(0)
    order = {0: "contradiction", 1: "entailment", 2: "neutral"}
    config = BertConfig(
        vocab_size=250,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        id2label=order,
        label2id={name: number for number, name in order.items()},
    )
    folder = tmp_path / "mnli"
    BertForSequenceClassification(config).save_pretrained(folder)
    frame = demo.generate("mnli")["train"]
    train_tokenizer([*frame["text_a"], *frame["text_b"]], 200).save_pretrained(folder)
    return folder


def meaning(hypothesis: str) -> str:
    """The demo's rule, by the first word: no label is looked at."""
    first = hypothesis.split()[0]
    return "entailment" if first == "indeed" else "contradiction" if first in demo.NEGATIONS else "neutral"


def test_strings_are_right_for_a_checkpoint_with_another_order_of_labels(
    glue_bench, tiny, write_yaml, tmp_path, small_demo, other_order
):
    assert json.loads((other_order / "config.json").read_text())["id2label"]["0"] == "contradiction"
    small_demo(train=480, validation=24, test=30)
    settings = {"learning_rates": [3e-3], "epochs": 8, "batch_size": 16, "predict": ["validation", "test"]}
    config = write_yaml(
        tiny(checkpoint=str(other_order), scratch=None, arms=["add"], tasks=["mnli"], finetuning=settings)
    )
    assert glue_bench("run", config, "--results", tmp_path).status == 0
    glue_bench("submit", tmp_path / "tiny", "-o", tmp_path / "x.zip", "--fill")
    for name, task, split in (
        ("MNLI-m.tsv", "mnli", "test_matched"),
        ("AX.tsv", "ax", "test"),
    ):
        expected = [meaning(text) for text in demo.generate(task)[split]["text_b"]]
        right = sum(a == b for a, b in zip(predictions(tmp_path / "x.zip", name), expected, strict=True))
        assert right >= 27, (name, right)


# Real data


@pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE folder here")
def test_where_qqp_has_no_test_file_it_is_named_and_filled(glue_bench, refused, tmp_path, official_store):
    assert "no predictions for 1 of the eleven files: QQP.tsv" in refused(
        "submit", official_store, "-o", tmp_path / "x.zip"
    )
    said = glue_bench("submit", official_store, "-o", tmp_path / "x.zip", "--fill")
    assert said.status == 0, said
    assert glue_bench("submit", "--check", tmp_path / "x.zip").status == 0


@pytest.fixture
def official_store(bench) -> Path:
    """Records of every task with random outputs for each test split that the real data has."""
    import numpy as np

    from glue_bench.data.sources import open_source
    from glue_bench.data.tasks import AX_SPLIT, TASKS, TRAINABLE

    source, generator = open_source(str(GLUE)), np.random.default_rng(0)
    sizes = {
        task: {name: len(frame) for name, frame in source.load(task).splits.items() if name.startswith("test")}
        for task in TASKS
    }
    sizes["mnli"][AX_SPLIT] = sizes["ax"]["test"]
    for task in TRAINABLE:
        bench.finish(task)
        shapes = {split: (rows, TASKS[task].num_labels) for split, rows in sizes[task].items()}
        bench.predict(bench.cells[-1]["cell_id"], {name: generator.normal(size=size) for name, size in shapes.items()})
    return bench.plan()


def test_a_zip_is_read_by_any_reader(good):
    with zipfile.ZipFile(io.BytesIO(good.read_bytes())) as archive:
        assert archive.testzip() is None


# The diagnostic set


def test_the_labelled_diagnostic_set_is_scored(glue_bench, finished, tmp_path):
    said = glue_bench("leaderboard", finished, "--diagnostic", labelled(tmp_path))
    assert said.status == 0, said
    assert said.out.startswith("# Diagnostic set: tiny\n\n**Made from the embedded demo data")
    assert re.search(r"\| Logic +\| +\| +12 \|", said.out)
    assert "agree in their number only" not in said.out
    glue_bench("leaderboard", finished, "--diagnostic", labelled(tmp_path), "-o", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == said.out


def test_a_page_that_has_no_place_is_refused_before_any_work(refused, tmp_path):
    verb = ["leaderboard", tmp_path, "--diagnostic", tmp_path]
    assert f"-o {tmp_path} is a folder" in refused(*verb, "-o", tmp_path)
    assert "there is no folder" in refused(*verb, "-o", tmp_path / "nowhere" / "page.md")


def labelled(folder: Path) -> Path:
    """The demo's AX with its labels, in the layout of diagnostic-full.tsv."""
    lines = ["Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel"]
    frame = demo.generate("ax")["test"]
    for premise, hypothesis in zip(frame["text_a"], frame["text_b"], strict=True):
        lines.append("\t".join(["", "", "Negation", "", "", premise, hypothesis, meaning(hypothesis)]))
    path = folder / "diagnostic-full.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_wrong_diagnostic_file_is_refused(refused, finished, tmp_path):
    assert "looked for" in refused("leaderboard", finished, "--diagnostic", tmp_path)
    path = labelled(tmp_path)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    assert f"{path} has 11 rows, but " in refused("leaderboard", finished, "--diagnostic", path)
    path.write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    assert "expected the labelled diagnostic-full.tsv" in refused("leaderboard", finished, "--diagnostic", path)
