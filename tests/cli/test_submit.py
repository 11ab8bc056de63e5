"""From an experiment to the zip for the GLUE site, and back through its linter."""

import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest

from glue_bench.data import demo
from glue_bench.data.sources import DemoSource
from glue_bench.data.submission import FILES, fill_file, make_zip

pytestmark = pytest.mark.usefixtures("small_demo")


def labelled(folder: Path, wrong=slice(None)) -> Path:
    """The demo's AX with its labels, in the layout of diagnostic-full.tsv."""
    lines = ["Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel"]
    frame = demo.generate("ax")["test"]
    for premise, hypothesis in zip(frame["text_a"], frame["text_b"], strict=True):
        lines.append("\t".join(["", "", "Negation", "", "", premise, hypothesis, meaning(hypothesis)]))
    path = folder / "diagnostic-full.tsv"
    path.write_text("\n".join(lines[wrong]) + "\n")
    return path


def meaning(hypothesis: str) -> str:
    """The demo's rule, by the first word: no label is looked at."""
    first = hypothesis.split()[0]
    return "entailment" if first == "indeed" else "contradiction" if first in demo.NEGATIONS else "neutral"


def test_what_a_run_has_predicted_is_handed_in_and_scored(glue_bench, refused, tiny, write_yaml, tmp_path):
    config = write_yaml(tiny(arms=["add"], tasks=["mnli", "rte"], finetuning={"predict": ["validation", "test"]}))
    assert glue_bench("run", config, "--results", tmp_path).status == 0
    finished, out = tmp_path / "tiny", tmp_path / "x.zip"
    error = refused("submit", finished, "-o", out)
    assert "arm 'add' has no predictions for 7 of the eleven files: CoLA.tsv (no finished run of cola)" in error
    assert not list(tmp_path.glob("x.*"))
    said = glue_bench("submit", finished, "--arm", "add", "-o", out, "--fill")
    assert said.status == 1
    assert "filled with the majority class, not predicted: CoLA.tsv, SST-2.tsv, MRPC.tsv" in said.out
    assert "made-up data" in said.out
    assert said.err.splitlines() == [
        f"warning: the site will not take {out}:",
        "MNLI-m.tsv: 12 rows; expected 9796",
        "MNLI-mm.tsv: 12 rows; expected 9847",
        "RTE.tsv: 12 rows; expected 3000",
        "AX.tsv: 12 rows; expected 1104",
    ]
    assert glue_bench("submit", "--check", out).out.splitlines() == said.err.splitlines()[1:]
    told = json.loads(out.with_suffix(".json").read_text())
    assert told["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert told["files"]["AX.tsv"]["cell_id"] == told["files"]["MNLI-m.tsv"]["cell_id"]
    assert told["files"]["AX.tsv"]["data"] == DemoSource().load("ax").digest
    # The diagnostic set
    diagnostic = ("leaderboard", finished, "--diagnostic")
    page = glue_bench(*diagnostic, labelled(tmp_path)).out
    assert page.startswith("# Diagnostic set: tiny\n\n**Made from the embedded demo data")
    assert re.search(r"\| Logic +\| +\| +12 \|", page)
    glue_bench(*diagnostic, labelled(tmp_path), "-o", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == page
    assert "has 11 rows, but " in refused(*diagnostic, labelled(tmp_path, slice(-1)))
    (tmp_path / "diagnostic-full.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    assert "expected the labelled diagnostic-full.tsv" in refused(*diagnostic, tmp_path / "diagnostic-full.tsv")


def test_a_zip_is_called_good_or_its_findings_are_listed_one_a_line(glue_bench, tmp_path):
    path = tmp_path / "it.zip"
    path.write_bytes(make_zip({name: fill_file(file) for name, file in FILES.items()}))
    assert glue_bench("submit", "--check", path) == (0, f"{path}: good; 11 files, 426309 predictions\n", "")
    path.write_bytes(make_zip({"WNLI.tsv": fill_file(FILES["WNLI.tsv"]).replace(b"\n7\t0", b"\n7\tentailment")}))
    said = glue_bench("submit", "--check", path)
    assert (said.status, len(said.out.splitlines())) == (1, 11)
    assert said.out.splitlines()[-1] == r"WNLI.tsv, line 9: '7\tentailment'; expected 7, a tab, and 0 or 1"


def test_strings_are_right_for_a_checkpoint_with_another_order_of_labels(
    glue_bench, tiny, write_yaml, tmp_path, small_demo
):
    """Its MNLI head has the order that many have: contradiction first."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from glue_bench.training.tokenizers import train_tokenizer

    small_demo(train=480, validation=24, test=30)
    torch.manual_seed(0)
    shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 32}
    order = dict(enumerate(("contradiction", "entailment", "neutral")))
    config = BertConfig(vocab_size=250, hidden_size=64, **shape, id2label=order)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "mnli")
    frame = demo.generate("mnli")["train"]
    train_tokenizer([*frame["text_a"], *frame["text_b"]], 200).save_pretrained(tmp_path / "mnli")
    settings = {"learning_rates": [3e-3], "epochs": 8, "batch_size": 16, "predict": ["validation", "test"]}
    changed = {"checkpoint": str(tmp_path / "mnli"), "scratch": None, "arms": ["add"], "tasks": ["mnli"]}
    config = write_yaml(tiny(**changed, finetuning=settings))
    assert glue_bench("run", config, "--results", tmp_path).status == 0
    glue_bench("submit", tmp_path / "tiny", "-o", tmp_path / "x.zip", "--fill")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        for name, task, split in (("MNLI-m.tsv", "mnli", "test_matched"), ("AX.tsv", "ax", "test")):
            predicted = [line.split("\t")[1] for line in archive.read(name).decode().splitlines()[1:]]
            expected = [meaning(text) for text in demo.generate(task)[split]["text_b"]]
            right = sum(a == b for a, b in zip(predicted, expected, strict=True))
            assert right >= 27, (name, right)
