"""`glue-bench convert`: what it prints and what it refuses."""

import json
import re

import pytest

SENTENCES = ("the old cat chased the tall dog again .", "was the quiet goose watched by anna ?")


@pytest.fixture
def bert(make_bert):
    return make_bert(texts=SENTENCES)


def test_convert_says_what_was_lost_and_where_it_is(glue_bench, bert, tmp_path):
    said = glue_bench("convert", bert, tmp_path / "out", "--variant", "untied", "--option", "segments=scores")
    assert said.status == 0
    rows = said.out.splitlines()
    assert rows[0] == f"{bert} (add) -> {tmp_path / 'out'} (untied)"
    assert any(row.startswith("conversion      approximate") for row in rows)
    assert any(row.startswith("origin          grafted: weights of another variant") for row in rows)
    assert re.search(r"relative error 0\.\d\d, mean cosine 0\.\d{4} after the last block", said.out)
    assert re.search(r"error by layer  0\.\d\d 0\.\d\d \(the input first\)", said.out)
    assert re.search(r"masked-LM head  none in the source", said.out)
    assert re.search(r"measured on     6 pairs of English sentences, \d+ tokens *\n", said.out)
    assert f"written to {tmp_path / 'out'}" in said.out
    assert "\x1b" not in said.out
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert (record["variant"], record["options"]) == ("untied", {"segments": "scores"})


def test_a_checkpoint_becomes_one_of_a_plugins_variant(glue_bench, refused, bert, write_plugin, tmp_path):
    convert = ["convert", bert, tmp_path / "out", "--variant", "mine"]
    assert "unknown variant 'mine'" in refused(*convert)
    said = glue_bench(*convert, "--plugin", write_plugin())
    assert "(add) -> " in said.out
    assert json.loads((tmp_path / "out" / "config.json").read_text())["variant"] == "mine"


def test_an_exact_conversion_says_so(glue_bench, bert, tmp_path):
    said = glue_bench("convert", bert, tmp_path / "out", "--variant", "concat")
    assert "conversion      exact: it computes what the source computes" in said.out


def test_variance_kept_is_shown_where_a_graft_reports_it(glue_bench, bert, tmp_path):
    said = glue_bench("convert", bert, tmp_path / "out", "--variant", "concat-split")
    kept = json.loads((tmp_path / "out" / "conversion.json").read_text())["variance_kept"]
    assert 0 < kept["positions"] < 1
    assert f"variance kept   tokens {kept['tokens']:.1%}, positions {kept['positions']:.1%}" in said.out


def test_a_tupe_file_is_measured_on_random_ids(glue_bench, make_tupe, tmp_path):
    said = glue_bench("convert", make_tupe(), tmp_path / "out", "--variant", "untied-relative")
    assert said.status == 0
    assert "origin          pretrained: the weights were trained with this variant" in said.out
    assert "masked-LM loss" not in said.out
    line = "measured on     random token ids, for want of a tokenizer that masks (--tokenizer names one): 160 tokens"
    assert line in said.out
    assert "of them masked" not in said.out


def test_values_of_options_are_those_of_an_experiment_file(glue_bench, bert, tmp_path):
    said = glue_bench(
        "convert", bert, tmp_path / "out", "--variant", "diet-abs", "--option", "rank=4", "--option", "share=false"
    )
    assert said.status == 0
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert record["options"] == {"rank": 4, "share": False}


def test_a_tokenizer_may_be_named(glue_bench, make_tupe, bert, tmp_path):
    said = glue_bench("convert", make_tupe(), tmp_path / "out", "--variant", "untied-relative", "--tokenizer", bert)
    assert "6 pairs of English sentences" in said.out
    assert json.loads((tmp_path / "out" / "conversion.json").read_text())["tokenizer"] == str(bert)


def test_bad_sources_and_folders_are_refused(refused, bert, make_tupe, tmp_path):
    assert "no checkpoint folder './nowhere'" in refused("convert", "./nowhere", tmp_path / "out", "--variant", "add")
    assert "no checkpoint file 'tupe.pt'" in refused("convert", "tupe.pt", tmp_path / "out", "--variant", "add")
    assert "is not empty" in refused("convert", bert, bert, "--variant", "add")
    said = refused("convert", make_tupe(), tmp_path / "out", "--variant", "concat")
    assert "which is 'untied-relative'; only additive checkpoints can be grafted" in said


@pytest.mark.usefixtures("small_demo")
def test_an_arm_may_start_from_a_tupe_file(glue_bench, refused, make_tupe, bert, tiny, write_yaml, tmp_path):
    arm = {"variant": "untied-relative", "checkpoint": str(make_tupe()), "tokenizer": str(bert)}
    values = tiny(arms=[arm], tasks=["cola"], finetuning={"max_length": 20})
    said = glue_bench("run", write_yaml(values), "--results", tmp_path / "runs")
    assert said.status == 0
    assert "1 cells run" in said.out
    del arm["tokenizer"]
    said = refused("run", write_yaml(tiny(arms=[arm])), "--results", tmp_path / "runs")
    assert "tupe.pt', which is one file; name one with `tokenizer`" in said


@pytest.mark.usefixtures("small_demo")
def test_an_arm_may_start_from_what_was_converted(glue_bench, bert, tiny, write_yaml, tmp_path):
    glue_bench("convert", bert, tmp_path / "out", "--variant", "rotary")
    values = tiny(arms=["rotary"], checkpoint=str(tmp_path / "out"), tasks=["cola"])
    said = glue_bench("run", write_yaml(values), "--results", tmp_path / "runs")
    assert said.status == 0
    assert "1 cells run" in said.out
    record = json.loads(next((tmp_path / "runs" / "tiny" / "cells").glob("*/record.json")).read_text())
    assert record["cell"]["origin"] == "grafted"
