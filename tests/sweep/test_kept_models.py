"""A kept model is the one that was scored: transformers reads it, with settings of its own head."""

import json

import numpy as np
import pytest
import torch
from helpers.every_family import random_classifier
from helpers.tiny_models import edit_settings, trained_tokenizer
from helpers.tiny_runs import records
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.data.tasks import TASKS
from glue_bench.records.store import Store
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")
PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
OLD_HEAD = {
    "problem_type": "multi_label_classification",
    "id2label": {"0": "toxic", "1": "obscene"},
    "label2id": {"toxic": 0, "obscene": 1},
    "finetuning_task": "jigsaw",
    "task_specific_params": {"text-classification": {"function_to_apply": "sigmoid"}},
    "function_to_apply": "sigmoid",
    "sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid",
    "sentence_transformers": {
        "activation_fn": "torch.nn.modules.activation.Sigmoid",
        "version": "5.0",
    },
    "auto_map": {"AutoModelForSequenceClassification": "mine.Model"},
}
"""Settings that transformers and sentence-transformers write into a classifier's config.json."""
FORGETFUL = """
import dataclasses
from glue_bench.model.variants.additive import Add

class Forgetful(Add):
    name = "forgetful"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.trained_batches = 0

    def forward(self, token_ids, segment_ids):
        self.trained_batches += self.training
        given = super().forward(token_ids, segment_ids)
        return dataclasses.replace(given, hidden=given.hidden.roll(self.trained_batches, dims=2))
"""
"""A variant that learns something which no file of weights has."""


@pytest.fixture
def classifier(tmp_path):
    """The folder of a tiny BERT that classifies, with settings in its config.json."""

    def save(name="tuned", **settings):
        folder = tmp_path / name
        random_classifier("bert").save_pretrained(folder)
        texts = tuple(generate("rte")["train"]["text_a"])
        trained_tokenizer(texts, 250).save_pretrained(folder)
        edit_settings(folder, **settings)
        return folder

    return save


def kept_config(folder, task, tiny, tmp_path):
    """Return the config.json of a model for a task that starts from a checkpoint."""
    arms = [{"variant": "native", "checkpoint": str(folder)}]
    inputs = Inputs(
        load_experiment(tiny(arms=arms, checkpoint=None, tasks=[task])), tmp_path / "none"
    )
    start = inputs.first_arm.start
    start.classifier(TASKS[task].labels or ("score",), seed=1).model.save_pretrained(
        tmp_path / "kept"
    )
    return json.loads((tmp_path / "kept" / "config.json").read_text())


@pytest.mark.parametrize("task", ["rte", "mnli", "stsb"])
def test_no_setting_of_the_old_head_stays(task, classifier, tiny, tmp_path):
    plain = kept_config(classifier("plain"), task, tiny, tmp_path)
    assert kept_config(classifier("tuned", **OLD_HEAD), task, tiny, tmp_path) == plain


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("variant", ["native", "add"])
def test_transformers_reads_what_a_classifier_of_another_kind_became(
    problem, variant, sweep, tiny, classifier
):
    arms = [{"variant": variant, "checkpoint": str(classifier(problem_type=problem))}]
    summary = sweep(
        tiny(arms=arms, checkpoint=None, tasks=["rte", "stsb"], finetuning={"keep": "all"})
    )
    store = Store(summary.folder)
    for record in records(summary).values():
        folder = store.models.find_whole(record)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        split = generate(record.cell.task)["validation"]
        texts = (split["text_a"].tolist(), split["text_b"].tolist())
        given = tokenizer(*texts, truncation=True, max_length=32, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**given).logits.numpy()
        np.testing.assert_allclose(logits, store.logits(record)["validation"], atol=1e-4)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_loss_of_a_kept_model_is_that_of_its_task(problem, sweep, tiny, classifier):
    arms = [{"variant": "native", "checkpoint": str(classifier(problem_type=problem))}]
    summary = sweep(tiny(arms=arms, checkpoint=None, tasks=["rte"], finetuning={"keep": "all"}))
    [record] = records(summary).values()
    model = AutoModelForSequenceClassification.from_pretrained(
        Store(summary.folder).models.find(record)
    ).eval()
    output = model(torch.tensor([[2, 30, 31, 3]]), labels=torch.tensor([1]))
    torch.testing.assert_close(
        output.loss, torch.nn.functional.cross_entropy(output.logits, torch.tensor([1]))
    )


def test_a_cell_fails_whose_kept_model_computes_other_logits(sweep, tiny, write_plugin):
    plugin = str(write_plugin(FORGETFUL, "forgetful.py"))
    values = tiny(plugins=[plugin], arms=["forgetful"], tasks=["cola"], finetuning={"keep": "all"})
    summary = sweep(values)
    [error] = summary.failed.values()
    assert "its kept model does not compute the logits that were scored" in error
    assert "leave finetuning.keep out" in error


def test_a_cell_whose_kept_model_computes_other_logits_leaves_no_model(sweep, tiny, write_plugin):
    plugin = str(write_plugin(FORGETFUL, "forgetful.py"))
    values = tiny(plugins=[plugin], arms=["forgetful"], tasks=["cola"], finetuning={"keep": "all"})
    assert not list(sweep(values).folder.glob("cells/*/model"))
