"""An encoder that knows segments is given them, whatever its tokenizer gives by default."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.every_family import (
    CLASSES,
    LEFT_OUT,
    TAKE_SEGMENTS,
    has_segment_weights,
    random_classifier,
    takes_segments,
)
from transformers import PreTrainedTokenizerFast

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import BERT_TOKENS, train_tokenizer
from glue_bench.training.tokens import collate

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture(scope="module")
def vocabulary():
    """A tokenizer of 250 words."""
    return train_tokenizer(tuple(generate("rte")["train"]["text_a"]), 250).backend_tokenizer


@pytest.fixture
def inputs_of(tiny):
    """Return a function that makes the inputs of an experiment with one native arm."""

    def of(folder: Path) -> Inputs:
        arms = [{"variant": "native", "checkpoint": str(folder)}]
        return Inputs(
            load_experiment(tiny(arms=arms, checkpoint=None, tasks=["rte"])), Path("none")
        )

    return of


@pytest.mark.parametrize("family", TAKE_SEGMENTS)
def test_logits_of_pairs_are_those_with_segments_where_the_encoder_has_weights_for_them(
    family, vocabulary, inputs_of, tmp_path
):
    model = random_classifier(family)
    model.save_pretrained(tmp_path)
    offered = ["input_ids", "attention_mask"]
    if not has_segment_weights(model):
        offered.append("token_type_ids")  # the tokenizer says the opposite of what is true

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, **BERT_TOKENS, model_input_names=offered
    )
    tokenizer.save_pretrained(tmp_path)

    inputs = inputs_of(tmp_path)
    _, [cell] = settle_jobs(inputs)
    split = inputs.tokens(cell).splits["validation"]
    batch = collate(split, np.flatnonzero(split.lengths == split.lengths[0]), 0)

    classifier = inputs.first_arm.start.classifier(("yes", "no"), seed=1).eval()
    segments = {"token_type_ids": batch.segments} if has_segment_weights(model) else {}
    with torch.no_grad():
        actual = classifier(batch.ids, batch.mask, batch.segments).logits
        expected = classifier.model(
            input_ids=batch.ids, attention_mask=batch.mask, **segments
        ).logits

    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_every_family_whose_forward_takes_segments_is_listed():
    taking = {family for family in CLASSES if takes_segments(family)}
    assert taking <= {*TAKE_SEGMENTS, *LEFT_OUT}
