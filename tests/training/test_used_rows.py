"""Training only the rows that occur is AdamW on all of them."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from test_loop import batches_of, settings, split  # noqa: F401
from tiny_pretraining import CPU, config
from torch import nn

from glue_bench.model.heads import EncoderForSequenceClassification
from glue_bench.training.loop import train
from glue_bench.training.used_rows import UsedRows, used_rows_only

STRONG = {"weight_decay": 0.5, "clip_norm": 1e6}


def model_of(variant="add") -> EncoderForSequenceClassification:
    torch.manual_seed(0)
    return EncoderForSequenceClassification(config(variant, num_labels=2))


def trained(model, split, *, rows: bool) -> dict[str, torch.Tensor]:  # noqa: F811
    """The weights after fine-tuning in double precision, with or without the short table."""
    torch.manual_seed(3)
    with used_rows_only(model, split.ids) if rows else nullcontext():
        list(train(model, batches_of(split, settings()), 5, settings(**STRONG), CPU))
    assert all(parameter.requires_grad for parameter in model.parameters())
    return model.state_dict()


@pytest.mark.parametrize("variant", ["add", "concat", "untied"])
def test_the_model_is_that_of_adamw_on_the_whole_table(split, variant):  # noqa: F811
    assert len(np.unique(split.ids)) < config().vocab_size / 2
    short, whole = (trained(model_of(variant).double(), split, rows=rows) for rows in (True, False))
    assert short.keys() == whole.keys()
    for name, weight in short.items():
        torch.testing.assert_close(weight, whole[name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("replaced", [False, True], ids=["same parameters", "new parameters"])
def test_what_was_learnt_stays_where_training_moves_the_model(split, replaced):  # noqa: F811
    """Whether a move keeps the parameters and changes what they hold, or replaces them; torch does either."""
    whole, model = trained(model_of().double(), split, rows=False), model_of()
    model.to = lambda _: model.double()  # in the place of another device
    torch.__future__.set_overwrite_module_params_on_conversion(replaced)
    try:
        found = trained(model, split, rows=True)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    for name, weight in found.items():
        torch.testing.assert_close(weight, whole[name], rtol=1e-9, atol=1e-12, msg=name)


def test_words_that_do_not_occur_are_decayed_and_used_in_evaluation():
    model = model_of()
    table = model.base.variant.words
    before = table.weight.detach().clone()
    with used_rows_only(model, np.array([5, 7])):
        rows = model.base.variant.words
        assert isinstance(rows, UsedRows)
        assert rows.weight.shape[0] == 3  # and the padding row
        rows.decay = 0.5
        model.eval()
        torch.testing.assert_close(rows(torch.tensor([[9, 7]]))[0], torch.stack([before[9] / 2, before[7]]))
    assert model.base.variant.words is table
    torch.testing.assert_close(table.weight[9], before[9] / 2)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in model.state_dict().values())


def test_nothing_is_left_behind_on_the_first_device():
    model = model_of()
    with used_rows_only(model, np.array([5, 7])):
        model.to("meta").train()
        assert model(torch.tensor([[5, 7]], device="meta")).logits.is_meta
        model.eval()
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_a_variant_of_the_users_own_keeps_its_table(write_plugin):
    from glue_bench.model.plugins import load_file

    load_file(write_plugin())
    model = model_of("mine")
    with used_rows_only(model, np.array([5])):
        assert type(model.base.variant.words) is nn.Embedding
