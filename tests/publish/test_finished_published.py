"""What leaves the house of classifiers that were fine-tuned elsewhere."""

import json

import pytest
from huggingface_hub import ModelCard

import glue_bench
from glue_bench.errors import UserError
from glue_bench.publish.card import RESULTS_FILE
from glue_bench.publish.card_output import push_card


@pytest.fixture
def folder(bench):
    """A classifier that was scored on RTE."""
    cell = bench.expect("rte", seed=0, arm="clf", variant="finished", origin="finished", rate=0.0)
    bench.record(cell, score=0.8)
    arm = {"name": "clf", "variant": "finished", "checkpoint": "org/clf"}
    return bench.plan(config={"arms": [arm]})


@pytest.fixture
def model_card(folder):
    """Its card."""
    return glue_bench.card(folder)


def test_the_card_says_that_it_was_fine_tuned_elsewhere(model_card):
    assert "A classifier that was fine-tuned elsewhere, scored on GLUE by" in model_card.text
    assert "seed" not in model_card.text.lower()


def test_the_hub_is_told_its_score(model_card):
    (result,) = ModelCard(model_card.text).data.eval_results
    assert result.metric_value == 0.8
    assert RESULTS_FILE in model_card.files


def test_no_model_is_missed(model_card):
    assert model_card.without == ()


def test_a_push_is_refused(model_card):
    with pytest.raises(UserError, match="was fine-tuned elsewhere, so that there is no model"):
        push_card(model_card, "me/it")


def test_the_log_says_that_it_was_fine_tuned_elsewhere(folder, tmp_path):
    written = glue_bench.export(folder, tmp_path / "out", format="eee", organization="my-lab")
    log = json.loads((tmp_path / "out" / written["files"][0]).read_text())
    assert log["model_info"]["additional_details"]["fine_tuned"] == "elsewhere"
