"""What a conversion loses is measured over real tokens alone, and digests of tokenizers tell
special tokens apart.
"""

import pytest
import torch
from helpers.tiny_models import encoder_config, random_model
from transformers import PreTrainedTokenizerFast

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.grafts import graft
from glue_bench.model.parity import random_tokens
from glue_bench.model.start import Start, encoder, weights_digest
from glue_bench.training.convert import relative_error
from glue_bench.training.tokenizers import BERT_TOKENS, tokenizer_digest, train_tokenizer


@pytest.mark.parametrize("variant", ["untied", "concat-split", "none"])
@torch.no_grad()
def test_the_error_of_a_conversion_leaves_padding_out(variant):
    """The error is computed token by token, at the input and after each block."""
    model = random_model(EncoderModel, encoder_config("add", num_hidden_layers=3))
    before = Start(model.config, model.state_dict(), "pretrained")
    after = graft(before, variant, {})
    token_ids, segment_ids, mask = random_tokens(model.config)
    assert 0 < int(mask.sum()) < mask.numel()
    states = [
        encoder(start).eval().hidden_states(token_ids, mask, segment_ids)
        for start in (before, after)
    ]
    errors = relative_error(before, after)
    assert len(errors) == 4
    for layer, (old, new) in enumerate(zip(*states, strict=True)):
        lost = 0.0
        size = 0.0
        for row, column in mask.nonzero().tolist():
            lost += float((new[row, column] - old[row, column]).square().sum())
            size += float(old[row, column].square().sum())
        assert errors[layer] == pytest.approx((lost / size) ** 0.5, rel=1e-4), f"layer {layer}"


def test_swapped_special_tokens_change_the_digest_of_a_tokenizer():
    """Text becomes the same ids, but [CLS] and [SEP] of a pretraining, or padding and the mask, are
    others.
    """
    plain = train_tokenizer(("one two", "three"), 90)

    def with_tokens(**changes: str) -> str:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=plain.backend_tokenizer, **BERT_TOKENS | changes
        )
        return tokenizer_digest(tokenizer)

    digests = [
        with_tokens(),
        with_tokens(cls_token="[SEP]", sep_token="[CLS]"),
        with_tokens(pad_token="[MASK]", mask_token="[PAD]"),
        with_tokens(unk_token="[MASK]", mask_token="[UNK]"),
    ]
    assert len(set(digests)) == 4
    assert with_tokens() == digests[0]


def test_digests_of_weights_tell_names_types_shapes_and_bits_apart():
    table = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    weights = [
        {"a": table},
        {"b": table},
        {"a": table.reshape(3, 2)},
        {"a": table.view(torch.int32)},
        {"a": table.clone().index_fill_(0, torch.tensor([1]), 7.0)},
        {"a": table, "b": table},
        {"a": -0.0 * table},
        {"a": 0.0 * table},
    ]
    digests = [weights_digest(one_set) for one_set in weights]
    assert len(set(digests)) == len(weights)
    assert weights_digest({"b": table, "a": table}) == weights_digest({"a": table, "b": table})
