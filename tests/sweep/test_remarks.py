"""Remarks before a run on the checkpoints of arms: they are true, where they matter."""

import pytest
import transformers
from helpers.every_family import random_classifier

from glue_bench.training.tokenizers import train_tokenizer

pytestmark = pytest.mark.usefixtures("small_demo")
ONE_SEGMENT = "both texts of a pair are segment 0, because the encoder has one segment: native"
TRAINED_HEAD = (
    "the checkpoint has a trained classification head; it is not used, because every cell "
    "trains a fresh one: "
)
TEXTS = ("a cat sat on the mat", "the dog ran")


@pytest.fixture
def remarks(sweep, tiny, tmp_path):
    """What a dry run says of an arm, with this model as its checkpoint."""

    def of(model, task="rte", arm="native"):
        model.save_pretrained(tmp_path / "model")
        train_tokenizer(TEXTS, 200).save_pretrained(tmp_path / "model")
        arms = [{"name": arm, "variant": arm, "checkpoint": str(tmp_path / "model")}]
        sweep(tiny(arms=arms, checkpoint=None, tasks=[task]), dry_run=True)
        return sweep.said

    return of


def base_of(family, **changes):
    """Return a family's model without a head."""
    return random_classifier(family, **changes).base_model


def test_an_encoder_with_two_segments_is_said_to_have_no_lack(remarks):
    assert "segment 0" not in remarks(base_of("albert"))


def test_an_encoder_with_one_segment_is_named_where_texts_come_in_pairs(remarks):
    assert ONE_SEGMENT in remarks(base_of("bert", type_vocab_size=1), task="rte")


def test_an_encoder_with_one_segment_is_not_named_where_all_tasks_have_one_text(remarks):
    assert "segment 0" not in remarks(base_of("bert", type_vocab_size=1), task="sst2")


@pytest.mark.parametrize(
    "family", ["bert", "deberta-v2", "distilbert", "electra", "gpt2", "roberta", "xlnet"]
)
def test_a_trained_head_that_a_native_arm_leaves_is_named(remarks, family):
    assert f"{TRAINED_HEAD}native" in remarks(random_classifier(family))


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "roberta"])
def test_a_trained_head_that_a_variant_leaves_is_named(remarks, family):
    assert f"{TRAINED_HEAD}add" in remarks(random_classifier(family), arm="add")


@pytest.mark.parametrize("arm", ["native", "add"])
def test_a_masked_language_model_has_no_trained_classification_head(remarks, arm):
    model = transformers.BertForMaskedLM(random_classifier("bert").config)
    assert "trained classification head" not in remarks(model, arm=arm)
