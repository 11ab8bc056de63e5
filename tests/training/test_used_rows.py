"""Training only the rows that occur is AdamW on all of them."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tiny_pretraining import CPU

from glue_bench.config import parse_experiment
from glue_bench.training import finetune as finetuning
from glue_bench.training.inputs import Inputs
from glue_bench.training.used_rows import UsedRows, used_rows_only

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def cell_of(tiny):
    """A inputs and its one cell, with a strong weight decay."""

    def make(**changes):
        settings = {"learning_rates": [1e-2], "epochs": 2, "batch_size": 16, "max_length": 32, "weight_decay": 0.5}
        inputs = Inputs(parse_experiment(tiny(tasks=["cola"], finetuning=settings, **changes)))
        return inputs, next(inputs.experiment.cells())

    return make


def trained(inputs, cell, monkeypatch, *, rows, moved=False):
    """The classifier after fine-tuning in double precision, with or without the short table.

    With `moved` it is training itself that takes the model to double precision, as it takes it to another device.
    """
    made = []
    build = finetuning.build_classifier

    def watched(*arguments):
        model = build(*arguments)
        if moved:
            model.to = lambda _: model.double()
        made.append(model if moved else model.double())
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(finetuning, "build_classifier", watched)
        if not rows:
            patch.setattr(finetuning, "used_rows_only", lambda *_: nullcontext())
        outcome = finetuning.finetune(cell, inputs, CPU)
    return made[0], outcome


@pytest.mark.parametrize("arm", ["add", "concat", "untied"])
def test_the_model_is_that_of_adamw_on_the_whole_table(cell_of, monkeypatch, arm):
    inputs, cell = cell_of(arms=[arm])
    (short, mine), (whole, theirs) = (trained(inputs, cell, monkeypatch, rows=rows) for rows in (True, False))
    assert mine.facts.parameters == theirs.facts.parameters
    weights = whole.state_dict()
    assert set(short.state_dict()) == set(weights)
    for name, weight in short.state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=1e-9, atol=1e-12, msg=name)
    for split, logits in mine.predictions.items():
        np.testing.assert_allclose(logits, theirs.predictions[split], rtol=1e-6)


@pytest.fixture(params=[False, True], ids=["same parameters", "new parameters"])
def new_parameters(request):
    """Whether a move keeps the parameters and changes what they hold, or replaces them; torch does either."""
    torch.__future__.set_overwrite_module_params_on_conversion(request.param)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(False)


@pytest.mark.usefixtures("new_parameters")
def test_what_was_learnt_stays_where_training_moves_the_model(cell_of, monkeypatch):
    inputs, cell = cell_of(arms=["add"])
    model, outcome = trained(inputs, cell, monkeypatch, rows=True, moved=True)
    whole, expected = trained(inputs, cell, monkeypatch, rows=False)
    assert {name for name, _ in model.named_parameters()} == {name for name, _ in whole.named_parameters()}
    assert all(parameter.requires_grad for parameter in model.parameters())
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, whole.state_dict()[name], rtol=1e-9, atol=1e-12, msg=name)
    for split, logits in outcome.predictions.items():
        np.testing.assert_allclose(logits, expected.predictions[split], rtol=1e-6)


def test_nothing_is_left_behind_on_the_first_device(cell_of):
    inputs, cell = cell_of(arms=["add"])
    model = finetuning.build_classifier(inputs.initial(cell.arm), "cola", 1)
    with used_rows_only(model, np.array([5, 7])):
        model.to("meta")
        model.train()
        assert model(torch.tensor([[5, 7]], device="meta")).logits.is_meta
        model.eval()
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert model(torch.tensor([[5, 7]], device="meta")).logits.is_meta


def test_words_that_do_not_occur_are_decayed_and_used_in_evaluation(cell_of):
    inputs, cell = cell_of(arms=["add"])
    model = finetuning.build_classifier(inputs.initial(cell.arm), "cola", 1)
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


def test_a_model_that_is_moved_meanwhile_gets_its_trained_table_back(cell_of):
    # As to a GPU or MPS; here to another precision, which is a copy, too.
    inputs, cell = cell_of(arms=["add"])
    model = finetuning.build_classifier(inputs.initial(cell.arm), "cola", 1)
    with used_rows_only(model, np.array([5, 7])):
        model.double()
        with torch.no_grad():
            model.base.variant.words.weight.fill_(3.0)
    weight = model.base.variant.words.weight
    assert weight.dtype == torch.float64
    assert (weight[[5, 7]] == 3.0).all()


def test_a_variant_of_the_users_own_keeps_its_table(cell_of, write_plugin):
    from glue_bench.testing import load_plugins

    load_plugins([write_plugin()])
    inputs, cell = cell_of(arms=["mine"])
    model = finetuning.build_classifier(inputs.initial(cell.arm), "cola", 1)
    with used_rows_only(model, np.array([5])):
        assert type(model.base.variant.words) is torch.nn.Embedding
